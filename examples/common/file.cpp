// SPDX-License-Identifier: Apache-2.0
#include "file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <system_error>

#if defined(WARMSET_HAS_ZSTD)
#include <zstd.h>
#endif

namespace warmset_tools {

namespace {

struct closes_file {
  void operator()(std::FILE* f) const noexcept { std::fclose(f); }
};
using file_handle = std::unique_ptr<std::FILE, closes_file>;

[[noreturn]] void fail(std::string const& path, std::string const& why) {
  throw file_error(path + ": " + why);
}

[[noreturn]] void fail_cap(std::string const& path, std::size_t cap) {
  fail(path, "the contents are longer than the cap of " + std::to_string(cap) + " bytes");
}

file_handle open(std::string const& path, char const* mode) {
  file_handle file(std::fopen(path.c_str(), mode));
  if (!file) {
    fail(path, std::strerror(errno));
  }
  return file;
}

bool is_zstd(std::span<std::byte const> bytes) {
  constexpr std::array<unsigned char, 4> magic = {0x28, 0xB5, 0x2F, 0xFD};
  return bytes.size() >= 4 && std::memcmp(bytes.data(), magic.data(), 4) == 0;
}

#if defined(WARMSET_HAS_ZSTD)

struct frees_stream {
  void operator()(ZSTD_DStream* s) const noexcept { ZSTD_freeDStream(s); }
};

std::vector<std::byte> decompress(std::string const& path, std::span<std::byte const> bytes,
                                  std::size_t cap) {
  std::unique_ptr<ZSTD_DStream, frees_stream> const stream(ZSTD_createDStream());
  if (!stream) {
    fail(path, "zstd has no memory");
  }
  std::vector<std::byte> out;
  // A hint only, so it does not decide how much is allocated beyond the cap or for a small file.
  unsigned long long const promised = ZSTD_getFrameContentSize(bytes.data(), bytes.size());
  if (promised != ZSTD_CONTENTSIZE_UNKNOWN && promised != ZSTD_CONTENTSIZE_ERROR) {
    out.reserve(std::min({static_cast<std::size_t>(promised), cap, bytes.size() * 16}));
  }
  std::vector<std::byte> chunk(ZSTD_DStreamOutSize());
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
  std::size_t state = 1;
  bool drained = true;
  while (in.pos < in.size || !drained) {
    ZSTD_outBuffer to{chunk.data(), chunk.size(), 0};
    state = ZSTD_decompressStream(stream.get(), &to, &in);
    if (ZSTD_isError(state) != 0) {
      fail(path, std::string("zstd: ") + ZSTD_getErrorName(state));
    }
    if (to.pos > cap - out.size()) {
      fail_cap(path, cap);
    }
    out.insert(out.end(), chunk.data(), chunk.data() + to.pos);
    drained = to.pos < to.size;
  }
  if (state != 0) {
    fail(path, "the zstd data is truncated");
  }
  return out;
}

#endif

}  // namespace

std::vector<std::byte> read_file(std::string const& path, std::size_t size_cap) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    fail(path, "a directory, not a file");
  }
  file_handle const file = open(path, "rb");
  std::vector<std::byte> bytes;
  std::uintmax_t const size = std::filesystem::file_size(path, error);
  bytes.resize(error ? 0 : static_cast<std::size_t>(std::min<std::uintmax_t>(size, size_cap)));
  std::size_t n = std::fread(bytes.data(), 1, bytes.size(), file.get());
  // The size is unknown for a pipe and may change under a reader, so the end of the file decides.
  std::array<std::byte, 65536> more;
  while (n == bytes.size()) {
    std::size_t const got = std::fread(more.data(), 1, more.size(), file.get());
    if (got == 0) {
      break;
    }
    if (got > size_cap - n) {
      fail_cap(path, size_cap);
    }
    bytes.insert(bytes.end(), more.data(), more.data() + got);
    n += got;
  }
  if (std::ferror(file.get()) != 0) {
    fail(path, "cannot be read");
  }
  bytes.resize(n);
  if (bytes.empty()) {
    fail(path, "the file is empty");
  }
  if (!is_zstd(bytes)) {
    return bytes;
  }
#if defined(WARMSET_HAS_ZSTD)
  bytes = decompress(path, bytes, size_cap);
  if (bytes.empty()) {
    fail(path, "the zstd data is empty");
  }
  return bytes;
#else
  fail(path, "zstd data, but this build has no zstd");
#endif
}

std::vector<std::byte> compress([[maybe_unused]] std::string const& path,
                                [[maybe_unused]] std::span<std::byte const> bytes) {
#if defined(WARMSET_HAS_ZSTD)
  constexpr int level = 19;
  std::vector<std::byte> packed(ZSTD_compressBound(bytes.size()));
  std::size_t const n =
      ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), level);
  if (ZSTD_isError(n) != 0) {
    fail(path, std::string("zstd: ") + ZSTD_getErrorName(n));
  }
  packed.resize(n);
  return packed;
#else
  fail(path, "is to be compressed with zstd, but this build has none");
#endif
}

void write_file(std::string const& path, std::span<std::byte const> bytes, char const* mode) {
  file_handle file = open(path, mode);
  bool const written = std::fwrite(bytes.data(), 1, bytes.size(), file.get()) == bytes.size();
  if (std::fclose(file.release()) != 0 || !written) {
    fail(path, "cannot be written");
  }
}

}  // namespace warmset_tools
