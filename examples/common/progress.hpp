// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdio>
#include <mutex>
#include <string>

#include <fmt/format.h>

namespace warmset_tools {

/// A bar on stderr that its owner moves.
class progress_bar {
 public:
  progress_bar(bool shown, std::size_t total) : shown_(shown), total_(total) { draw(0); }
  ~progress_bar() {
    if (shown_) {
      std::fputs("\r\033[K", stderr);
    }
  }
  void advance() {
    std::lock_guard const lock(mutex_);
    draw(++done_);
  }

 private:
  void draw(std::size_t done) const {
    if (shown_) {
      constexpr std::size_t width = 40;
      std::size_t const filled = total_ == 0 ? width : done * width / total_;
      std::string const text = fmt::format("\r[{}{}] {} of {}", std::string(filled, '#'),
                                           std::string(width - filled, '.'), done, total_);
      std::fputs(text.c_str(), stderr);
      std::fflush(stderr);
    }
  }

  bool shown_;
  std::size_t total_;
  std::size_t done_ = 0;
  std::mutex mutex_;
};

}  // namespace warmset_tools
