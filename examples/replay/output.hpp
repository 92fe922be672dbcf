// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace warmset_tools {

/// Files that a command writes: all of them at the end, or none. Each is written beside its place and renamed, so
/// that an error leaves what was there. `-` is stdout.
class outputs {
 public:
  outputs() = default;
  outputs(outputs const&) = delete;
  outputs& operator=(outputs const&) = delete;
  ~outputs();

  /// Says that this path will be written. Throws file_error where it is a directory or its folder does not exist,
  /// and usage_error where two outputs have one path. An empty path is no output.
  void expect(std::string const& path);

  /// Writes the contents beside their place; zstd on demand. Throws file_error.
  void stage(std::string const& path, std::span<std::byte const> bytes, bool zstd = false);
  void stage(std::string const& path, std::string_view text);

  /// Puts everything in its place. Throws file_error.
  void commit();

 private:
  struct staged {
    std::string temporary;
    std::string path;
  };
  std::vector<std::string> expected_;
  std::vector<staged> staged_;
  std::string standard_output_;
};

}  // namespace warmset_tools
