// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace warmset_tools {

/// A file that cannot be read or written. The message names the file and why.
class file_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline constexpr std::size_t default_size_cap = std::size_t{1} << 30;

/// The contents of a file, decompressed where it starts with the magic of zstd.
///
/// What is returned is never longer than `size_cap` bytes: decompression is streamed and stops
/// there. Throws file_error for a directory, a missing, unreadable or empty file, damaged or
/// truncated zstd data, contents beyond the cap, and zstd data in a build without that library.
std::vector<std::byte> read_file(std::string const& path, std::size_t size_cap = default_size_cap);

/// The bytes, compressed with zstd. Throws file_error, which names `path`, in a build without that library.
std::vector<std::byte> compress(std::string const& path, std::span<std::byte const> bytes);

/// Writes a file that is opened in a mode of std::fopen. Throws file_error.
void write_file(std::string const& path, std::span<std::byte const> bytes, char const* mode = "wb");

}  // namespace warmset_tools
