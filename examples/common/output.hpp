// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace warmset_tools {

/// What a command writes: all of it at the end, or nothing. Each file is written beside its place and renamed, so that
/// an error leaves what was there, and keeps the mode of what it replaces. Links are followed, also those that lead to
/// nothing yet; devices and pipes are written through. `-` is stdout.
class outputs {
 public:
  outputs() = default;
  outputs(outputs const&) = delete;
  outputs& operator=(outputs const&) = delete;
  ~outputs();

  /// Says that this file is read, as `what`: no output may replace it.
  void keep(std::string const& path, std::string what);

  /// Says that this path will be written. Throws file_error where that cannot be: a directory, a file that may not be
  /// written, a folder that does not exist or takes no file; and usage_error where it is kept or another output. An
  /// empty path is no output.
  void expect(std::string const& path);

  /// Writes the contents beside their place; zstd on demand, or where the name ends in `.zst`. Throws file_error.
  void stage(std::string const& path, std::span<std::byte const> bytes, bool zstd = false);
  void stage(std::string const& path, std::string_view text);

  /// Puts everything in its place, first where that may fail: stdout, devices and pipes, then files. Throws file_error.
  void commit();

 private:
  struct kept {
    std::string path;
    std::string what;
  };
  struct staged {
    std::string path;  ///< as the command line has it
    std::filesystem::path place;
    std::filesystem::path temporary;  ///< what is renamed; empty where `bytes` are written through
    std::vector<std::byte> bytes;
  };
  std::vector<kept> kept_;
  std::vector<std::filesystem::path> expected_;
  std::vector<staged> staged_;
};

}  // namespace warmset_tools
