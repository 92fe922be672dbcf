// SPDX-License-Identifier: Apache-2.0
#include "output.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <span>
#include <system_error>

#include <unistd.h>

#include <fmt/format.h>

#include "file.hpp"
#include "usage_error.hpp"

namespace warmset_tools {

namespace fs = std::filesystem;

namespace {

/// Where a path leads: links followed, so that what they name is written and two names of one file are one.
fs::path place_of(std::string const& path) {
  std::error_code error;
  fs::path place = fs::absolute(path, error);
  // Links that lead to nothing are followed by hand; what a link of /proc leads to may have no path at all.
  constexpr int most_links = 40;
  for (int i = 0; i < most_links && !fs::exists(place, error) && fs::is_symlink(place, error);
       ++i) {
    place = place.parent_path() / fs::read_symlink(place, error);
  }
  fs::path const whole = fs::weakly_canonical(place, error);
  return error ? place : whole;
}

/// A device, pipe or socket: written through, never replaced.
bool is_special(fs::file_status const& status) {
  return fs::exists(status) && !fs::is_regular_file(status);
}

/// A name for a new file beside a place.
fs::path name_beside(fs::path const& place) {
  for (unsigned n = 0;; ++n) {
    fs::path name =
        place.parent_path() / fmt::format("warmset-{}-{}.part", static_cast<long>(::getpid()), n);
    std::error_code ignored;
    if (!fs::exists(fs::symlink_status(name, ignored))) {
      return name;
    }
  }
}

/// Writes a file that stands for `path`, by which errors call it.
void write_for(std::string const& path, fs::path const& file, std::span<std::byte const> bytes,
               char const* mode) {
  try {
    write_file(file.string(), bytes, mode);
  } catch (file_error const& e) {
    throw file_error(path + std::string(e.what()).substr(file.string().size()));
  }
}

}  // namespace

outputs::~outputs() {
  for (staged const& s : staged_) {
    std::error_code ignored;
    fs::remove(s.temporary, ignored);
  }
}

void outputs::keep(std::string const& path, std::string what) {
  kept_.push_back({path, std::move(what)});
}

void outputs::expect(std::string const& path) {
  if (path.empty()) {
    return;
  }
  fs::path const place = path == "-" ? fs::path(path) : place_of(path);
  if (std::find(expected_.begin(), expected_.end(), place) != expected_.end()) {
    throw usage_error(fmt::format("two outputs go to '{}'", path));
  }
  expected_.push_back(place);
  if (path == "-") {
    return;
  }
  std::error_code error;
  fs::file_status const status = fs::status(place, error);
  if (error && status.type() != fs::file_type::not_found) {
    throw file_error(path + ": " + error.message());
  }
  if (fs::is_directory(status)) {
    throw file_error(path + ": a directory, not a file");
  }
  for (kept const& k : kept_) {
    if (fs::is_regular_file(status) && fs::equivalent(place, k.path, error)) {
      throw usage_error(fmt::format("output '{}' is {}", path, k.what));
    }
  }
  if (fs::exists(status) && ::access(place.c_str(), W_OK) != 0) {
    throw file_error(path + ": " + std::strerror(errno));
  }
  if (is_special(status)) {
    return;
  }
  if (!fs::is_directory(place.parent_path(), error)) {
    throw file_error(path + ": its folder does not exist");
  }
  fs::path const tried = name_beside(place);  // before there is anything to lose
  write_for(path, tried, {}, "wbx");
  fs::remove(tried, error);
}

void outputs::stage(std::string const& path, std::span<std::byte const> bytes, bool zstd) {
  if (path.empty()) {
    return;
  }
  std::vector<std::byte> packed;
  if (zstd || path.ends_with(".zst")) {
    packed = compress(path, bytes);
    bytes = packed;
  }
  fs::path const place = path == "-" ? fs::path(path) : place_of(path);
  std::error_code error;
  fs::file_status const status = fs::status(place, error);
  if (path == "-" || is_special(status)) {
    staged_.push_back({path, place, {}, {bytes.begin(), bytes.end()}});
    return;
  }
  fs::path const temporary = name_beside(place);
  staged_.push_back({path, place, temporary, {}});
  write_for(path, temporary, bytes, "wbx");
  if (fs::exists(status)) {
    fs::permissions(temporary, status.permissions(), error);
  }
}

void outputs::stage(std::string const& path, std::string_view text) {
  stage(path, std::as_bytes(std::span(text.data(), text.size())));
}

void outputs::commit() {
  for (staged const& s : staged_) {
    if (s.path == "-") {
      if (std::fwrite(s.bytes.data(), 1, s.bytes.size(), stdout) != s.bytes.size() ||
          std::fflush(stdout) != 0) {
        throw file_error(fmt::format("standard output: {}", std::strerror(errno)));
      }
    } else if (s.temporary.empty()) {
      write_for(s.path, s.place, s.bytes, "wb");
    }
  }
  for (staged const& s : staged_) {
    std::error_code error;
    if (!s.temporary.empty()) {
      fs::rename(s.temporary, s.place, error);
    }
    if (error) {
      throw file_error(s.path + ": " + error.message());
    }
  }
  staged_.clear();
}

}  // namespace warmset_tools
