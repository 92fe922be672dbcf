// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <cstdlib>
#include <new>
#include <random>

#include <warmset/trace/decision_log.hpp>

using namespace trace_test;

// A malformed input must not make a reader allocate more than a small multiple of its size. Counts
// the bytes that are asked for, at their peak.

namespace {
std::size_t now = 0;
std::size_t peak = 0;
}  // namespace

// Not inlined: g++ would pair the malloc inside with a delete outside and warn.
[[gnu::noinline]] void* operator new(std::size_t size) {
  // The size stands in front of the block, so that a plain delete can give it back.
  void* const p = std::malloc(size + 16);
  if (p == nullptr) {
    throw std::bad_alloc();
  }
  *static_cast<std::size_t*>(p) = size;
  now += size;
  peak = now > peak ? now : peak;
  return static_cast<char*>(p) + 16;
}
[[gnu::noinline]] void* operator new(std::size_t size, std::nothrow_t const&) noexcept {
  try {
    return ::operator new(size);
  } catch (std::bad_alloc const&) {
    return nullptr;
  }
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  if (p != nullptr) {
    void* const start = static_cast<char*>(p) - 16;
    now -= *static_cast<std::size_t*>(start);
    std::free(start);
  }
}
[[gnu::noinline]] void operator delete(void* p, std::nothrow_t const&) noexcept {
  ::operator delete(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
  ::operator delete(p);
}

namespace {

template <class F>
std::size_t peak_of(F&& f) {
  peak = now;
  std::size_t const before = now;
  f();
  return peak - before;
}

std::string bytes32(std::initializer_list<u32> values) {
  std::string s;
  for (u32 v : values) {
    for (int i = 0; i < 4; ++i) {
      s += static_cast<char>(v >> (8 * i));
    }
  }
  return s;
}

}  // namespace

TEST_CASE("readers: huge counts in a small input allocate little") {
  u32 const most = 0xFFFF'FFFF;
  std::string const json =
      R"({"format":"routing-jsonl-1","model":"m","layers":65535,"experts":65535,"top_k":65535,"expert_bytes":1})"
      "\n";
  std::string const csv =
      "# route_trace v1\n# model=m n_layer=65535 n_expert=65535 n_expert_used=65535\n"
      "# layer=0 expert_bytes=1\nturn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n";
  std::vector<std::string> const inputs = {
      json,
      csv,
      "RTB1" + bytes32({65535, 65535, 65535, most, most}),
      "RTB1" + bytes32({65535, 1, 1, most, 1}) + std::string(1000, '\0'),
      "WARMSET\n" + bytes32({1, 0, 80, 0, 0, 0, most, most, 65535, most, most, most, most, most,
                             most, 0, 0, 0}),
  };
  for (std::string const& input : inputs) {
    INFO(input.substr(0, 12));
    std::size_t const asked =
        peak_of([&] { format_error_of([&] { return trace::read(trace::bytes_of(input)); }); });
    // 1.1 MB: what the readers of text keep per expert id, at most 65,535 ids.
    CHECK(asked < 1'100'000 + 16 * input.size());
  }
}

TEST_CASE("readers: look-ahead cannot multiply the input") {
  std::string text =
      R"({"format":"routing-jsonl-1","model":"m","layers":1,"experts":30000,"top_k":1,"expert_bytes":1})"
      "\n"
      R"({"s":0,"p":0,"f":"d","l":0,"e":[0],"a":[0)";
  for (int i = 1; i < 20'000; ++i) {
    text += "," + std::to_string(i);
  }
  text += "]}\n";
  for (int i = 1; i < 10'000; ++i) {
    text += R"({"s":0,"p":)" + std::to_string(i) + R"(,"f":"d","l":0,"e":[0]})" + "\n";
  }
  std::size_t const asked =
      peak_of([&] { format_error_of([&] { return trace::read_tinymoe(text); }); });
  CHECK(asked < 20 * text.size());
}

TEST_CASE("readers: mutated inputs allocate no more than a small multiple") {
  trace::contents c;
  c.geometry = geometry::uniform(4, 16, 2, 10);
  trace::block b;
  b.n_rows = 4;
  b.n_steps = 50;
  b.k = 2;
  c.blocks = {b};
  for (int i = 0; i < 200; ++i) {
    c.ids.push_back(static_cast<u16>(i % 15));
    c.ids.push_back(15);
  }
  std::vector<std::byte> const good = trace::write_warmset(trace::recording(std::move(c)));
  std::mt19937 random(3);
  for (int round = 0; round < 5'000; ++round) {
    std::vector<std::byte> bytes = good;
    for (int i = 0; i < 3; ++i) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    u64 const sum = trace::checksum({bytes.data(), bytes.size() - 8});
    trace::detail::store_le(bytes.data() + bytes.size() - 8, sum);
    std::size_t const asked = peak_of([&] { format_error_of([&] { return trace::read(bytes); }); });
    CHECK(asked < 400'000 + 16 * bytes.size());
  }
}
