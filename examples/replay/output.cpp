// SPDX-License-Identifier: Apache-2.0
#include "output.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include <unistd.h>

#include <fmt/format.h>

#include "file.hpp"
#include "usage_error.hpp"

namespace warmset_tools {

namespace fs = std::filesystem;

outputs::~outputs() {
  for (staged const& s : staged_) {
    std::error_code ignored;
    fs::remove(s.temporary, ignored);
  }
}

void outputs::expect(std::string const& path) {
  if (path.empty()) {
    return;
  }
  if (std::find(expected_.begin(), expected_.end(), path) != expected_.end()) {
    throw usage_error(fmt::format("two outputs go to '{}'", path));
  }
  expected_.push_back(path);
  if (path == "-") {
    return;
  }
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    throw file_error(path + ": a directory, not a file");
  }
  fs::path const folder = fs::path(path).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, ignored)) {
    throw file_error(path + ": its folder does not exist");
  }
}

void outputs::stage(std::string const& path, std::span<std::byte const> bytes, bool zstd) {
  if (path.empty()) {
    return;
  }
  if (path == "-") {
    standard_output_.append(reinterpret_cast<char const*>(bytes.data()), bytes.size());
    return;
  }
  bool const packed = zstd || path.ends_with(".zst");
  std::string const temporary =
      fmt::format("{}.{}.part{}", path, static_cast<long>(::getpid()), packed ? ".zst" : "");
  staged_.push_back({temporary, path});
  try {
    write_file(temporary, bytes);
  } catch (file_error const& e) {
    std::string const what = e.what();
    throw file_error(what.starts_with(temporary) ? path + what.substr(temporary.size()) : what);
  }
}

void outputs::stage(std::string const& path, std::string_view text) {
  stage(path, std::as_bytes(std::span(text.data(), text.size())));
}

void outputs::commit() {
  for (staged const& s : staged_) {
    std::error_code error;
    fs::rename(s.temporary, s.path, error);
    if (error) {
      throw file_error(s.path + ": " + error.message());
    }
  }
  staged_.clear();
  if (!standard_output_.empty() && (std::fwrite(standard_output_.data(), 1, standard_output_.size(),
                                                stdout) != standard_output_.size() ||
                                    std::fflush(stdout) != 0)) {
    throw file_error("standard output: cannot be written");
  }
}

}  // namespace warmset_tools
