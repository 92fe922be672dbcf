// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <numeric>

#include <kit/operations.hpp>
#include <kit/successor_reference.hpp>

/// Steps and figures that the tests of the successor score and of its reference share.
namespace successor_test {

using namespace warmset;

inline constexpr kit::successor_form all_forms[] = {{1, 16}, {1, 8}, {2, 16}, {2, 8}, {3, 16}, {3, 8}};

/// The steps of the test vectors: two distinct experts of eight.
class vector_steps {
 public:
  std::array<u32, 2> next() noexcept {
    advance();
    a_ = (r_ >> 16 & 1) != 0 ? (a_ + 3) & 7 : r_ >> 24 & 7;
    advance();
    u32 const b = r_ >> 24 & 7;
    return {a_, b == a_ ? (a_ + 1) & 7 : b};
  }

 private:
  void advance() noexcept { r_ = r_ * 1'664'525u + 1'013'904'223u; }
  u32 r_ = 1;
  u32 a_ = 0;
};

struct fnv_1a {
  u32 sum = 2'166'136'261u;
  void add(i32 value) noexcept {
    for (u32 byte = 0; byte < 4; ++byte) {
      sum = (sum ^ (static_cast<u32>(value) >> (8 * byte) & 255)) * 16'777'619u;
    }
  }
};

inline kit::id_list random_set(kit::integers& random, u32 n_experts, u32 n) {
  kit::id_list set;
  while (set.size() < n) {
    u32 const x = random.below(n_experts);
    if (!kit::contains(set, x)) {
      set.push_back(x);
    }
  }
  return set;
}

inline kit::id_list first_ids(u32 from, u32 n) {
  kit::id_list ids(n);
  std::iota(ids.begin(), ids.end(), from);
  return ids;
}

/// What a form must say of the first 1,000 steps, with 4 slots for 8 experts.
struct test_vector {
  kit::successor_form form;
  std::array<i32, 8> keys_at_3;
  u32 fnv;  ///< over the keys of every step
  u64 hits;
};
inline constexpr test_vector test_vectors[] = {
    {{1, 16}, {0, 3249, 0, 0, 5619, 0, 3682, 1278}, 0x126c'c963, 988},
    {{1, 8}, {0, 3249, 0, 0, 5651, 0, 3682, 1278}, 0xc06c'e1a6, 989},
    {{2, 16}, {0, 4369, 0, 0, 8603, 0, 5698, 1278}, 0x6909'a5b2, 1000},
    {{2, 8}, {0, 4337, 0, 0, 8595, 0, 5730, 1278}, 0x7064'781e, 997},
};

}  // namespace successor_test
