// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace trace_test;
using warmset_tools::compress;
using warmset_tools::file_error;
using warmset_tools::read_file;
using warmset_tools::write_file;

namespace {

/// A folder of its own that goes away with the test.
class scratch_folder {
 public:
  scratch_folder()
      : path_(std::filesystem::temp_directory_path() /
              ("warmset-file-test-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~scratch_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  scratch_folder(scratch_folder const&) = delete;
  scratch_folder& operator=(scratch_folder const&) = delete;

  std::string operator/(char const* name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

std::string error_of(std::string const& path, std::size_t cap = warmset_tools::default_size_cap) {
  try {
    read_file(path, cap);
  } catch (file_error const& e) {
    return e.what();
  }
  return "";
}

bool has(std::string const& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

void put(std::string const& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace

TEST_CASE("file: plain contents, and the errors of files that are none") {
  scratch_folder const folder;
  put(folder / "a", "hello");
  CHECK(trace::text_of(read_file(folder / "a")) == "hello");
  CHECK(trace::text_of(read_file(folder / "a", 5)) == "hello");
  CHECK(has(error_of(folder / "a", 4), "cap of 4 bytes"));
  put(folder / "empty", "");
  CHECK(has(error_of(folder / "empty"), "empty"));
  CHECK(has(error_of(folder / "missing"), "missing: "));
  CHECK(has(error_of(folder.path()), "directory"));
  CHECK_THROWS_AS(write_file(folder / "no/such/folder", {}), file_error);
}

#if defined(WARMSET_HAS_ZSTD)
TEST_CASE("file: zstd is recognised by its magic and stops at the cap") {
  scratch_folder const folder;
  std::string const text(3'000'000, 'x');
  write_file(folder / "a.zst", compress("a.zst", trace::bytes_of(text)));
  CHECK(std::filesystem::file_size(folder / "a.zst") < 2000);
  CHECK(trace::text_of(read_file(folder / "a.zst")) == text);
  CHECK(trace::text_of(read_file(folder / "a.zst", 3'000'000)) == text);
  CHECK(has(error_of(folder / "a.zst", 2'999'999), "cap of 2999999 bytes"));

  std::vector<std::byte> packed;
  {
    std::ifstream in(folder / "a.zst", std::ios::binary);
    std::string const raw((std::istreambuf_iterator<char>(in)), {});
    put(folder / "renamed", raw);
    CHECK(trace::text_of(read_file(folder / "renamed")) == text);
    put(folder / "twice", raw + raw);  // frames follow each other
    CHECK(read_file(folder / "twice").size() == 6'000'000);
    put(folder / "cut", std::string_view(raw).substr(0, raw.size() - 1));
    CHECK(has(error_of(folder / "cut"), "truncated"));
    put(folder / "head", std::string_view(raw).substr(0, 4));
    CHECK(has(error_of(folder / "head"), "truncated"));
    put(folder / "garbage", raw + "garbage");
    CHECK(has(error_of(folder / "garbage"), "zstd: "));
  }
  write_file(folder / "nothing.zst", compress("nothing.zst", {}));
  CHECK(has(error_of(folder / "nothing.zst"), "empty"));
}
#endif
