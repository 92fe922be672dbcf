// SPDX-License-Identifier: Apache-2.0
//
// Rows are checked many at a time while they are loaded. Wherever a wrong id is, the error names it as a check of one id
// after the other would.
#include "support.hpp"

#include <algorithm>
#include <random>

#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

using namespace trace_test;

namespace {

/// The first id that is neither padding nor below the bound, or that its row has already; as a check of one at a time.
std::optional<u64> first_wrong(std::vector<u16> const& ids, u32 k, u32 n_experts) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    auto const row = ids.begin() + static_cast<std::ptrdiff_t>(i / k * k);
    auto const here = ids.begin() + static_cast<std::ptrdiff_t>(i);
    if (ids[i] != trace::padding && (ids[i] >= n_experts || std::find(row, here, ids[i]) != here)) {
      return i;
    }
  }
  return std::nullopt;
}

std::vector<u16> plain_rows(u64 n_rows, u32 k, u32 n_experts) {
  std::vector<u16> ids;
  for (u64 row = 0; row < n_rows; ++row) {
    for (u32 rank = 0; rank < k; ++rank) {
      ids.push_back(static_cast<u16>((row * 11 + rank) % n_experts));
    }
  }
  return ids;
}

template <class T>
void put(std::vector<std::byte>& to, T value) {
  to.resize(to.size() + sizeof(T));
  trace::detail::store_le(to.data() + to.size() - sizeof(T), value);
}

/// A file whose ids, and whatever else is to be wrong, are exchanged in place.
struct file {
  std::vector<std::byte> bytes;
  std::size_t ids_at = 0;
  bool summed = false;

  /// Where reading these ids fails, counted in ids; nothing where it does not, and then they are what is read.
  std::optional<u64> fails_at(std::vector<u16> const& ids, bool as_lookahead = false) {
    trace::detail::store_column<u16>(bytes.data() + ids_at, ids);
    if (summed) {
      u64 const sum = trace::checksum(std::span(bytes).first(bytes.size() - 8));
      trace::detail::store_le(bytes.data() + bytes.size() - 8, sum);
    }
    try {
      trace::recording const r = trace::read(bytes);
      std::span<u16 const> const read = as_lookahead ? r.lookahead() : r.ids();
      CHECK(std::equal(read.begin(), read.end(), ids.begin(), ids.end()));
      return std::nullopt;
    } catch (trace::format_error const& e) {
      return (e.at() - ids_at) / 2;
    }
  }
};

file rtb1_file(u32 n_rows, u32 k, u32 n_experts) {
  file f;
  for (u32 word : {0x3142'5452u, 1u, n_experts, k, 1u, n_rows, n_rows}) {
    put(f.bytes, word);
  }
  f.ids_at = f.bytes.size();
  f.bytes.resize(f.bytes.size() + std::size_t{n_rows} * k * 2);
  return f;
}

/// One layer and one token a step; the ids, or the look-ahead, are there to be exchanged. `shift` moves them by that many
/// words of 8 bytes.
file warmset_file(u32 n_rows, u32 k, u32 n_experts, u32 width, std::size_t shift) {
  trace::contents c;
  c.geometry = geometry::uniform(1, n_experts, k, 10);
  c.model.assign(8 * shift, 'x');
  trace::block b;
  b.n_rows = 1;
  b.n_steps = n_rows;
  b.k = k;
  c.blocks = {b};
  std::vector<u16> const ids = plain_rows(n_rows, k, n_experts);
  c.ids.assign(ids.begin(), ids.end());
  c.lookahead_width = width;
  c.lookahead.assign(std::size_t{n_rows} * width, trace::padding);
  file f;
  f.bytes = trace::write_warmset(trace::recording(std::move(c)));
  f.summed = true;
  std::size_t const n_ids = width == 0 ? ids.size() : std::size_t{n_rows} * width;
  f.ids_at = f.bytes.size() - 8 - trace::wst::aligned(n_ids * 2);
  return f;
}

/// Every kind of wrong id at every rank of rows at the start, at the end and at each border of what is checked together.
void try_all(file f, u32 n_rows, u32 k, u32 n_experts, bool as_lookahead = false) {
  std::vector<u16> const good = plain_rows(n_rows, k, n_experts);
  CHECK(f.fails_at(good, as_lookahead) == std::nullopt);
  auto refused = [&](std::vector<u16> const& ids) {
    std::optional<u64> const expected = first_wrong(ids, k, n_experts);
    std::optional<u64> const found = f.fails_at(ids, as_lookahead);
    if (found != expected) {  // a CHECK of each would take most of the time
      CHECK(found == expected);
    }
  };
  for (u32 row = 0; row < n_rows; ++row) {
    bool const border = row < 17 || row + 17 > n_rows || (row >= 254 && row < 258);
    for (u32 rank = 0; border && rank < k; ++rank) {
      std::size_t const at = std::size_t{row} * k + rank;
      for (u32 wrong : {n_experts, n_experts + 1, n_experts + 0xFF, good[at] + 0x100u, good[at] + 0x8000u, 0x7FFFu,
                        0x8000u, 0xFF00u, 0xFFFEu, 0xFFFFu}) {
        std::vector<u16> ids = good;
        ids[at] = static_cast<u16>(wrong);
        refused(ids);
      }
      for (u32 other = 0; other < rank; ++other) {
        std::vector<u16> ids = good;
        ids[at] = ids[at - rank + other];
        refused(ids);
        ids[ids.size() - at - 1] = trace::padding;  // as well
        refused(ids);
      }
    }
  }
}

}  // namespace

TEST_CASE("rows: a wrong id of an rtb1 file is found wherever it is") {
  u32 const k = GENERATE(range(1u, 18u));
  for (u32 n_experts : {k, 256u, 257u, 40000u}) {
    INFO("k " << k << " of " << n_experts);
    try_all(rtb1_file(19, k, n_experts), 19, k, n_experts);
  }
}

TEST_CASE("rows: a wrong id of a file of our own is found wherever it is, on whichever word of the sum it starts") {
  u32 const k = GENERATE(range(1u, 18u));
  u32 const n_experts = k % 2 == 0 ? 64 : 300;
  for (std::size_t shift : {0u, 1u, 2u, 3u}) {
    INFO("k " << k << ", " << shift);
    try_all(warmset_file(18 + k % 3, k, n_experts, 0, shift), 18 + k % 3, k, n_experts);
  }
}

TEST_CASE("rows: a wrong look-ahead is found wherever it is") {
  u32 const width = GENERATE(range(1u, 18u));
  for (u32 n_experts : {24u, 300u}) {
    INFO("width " << width << " of " << n_experts);
    try_all(warmset_file(18, 3, n_experts, width, width % 4), 18, width, n_experts, true);
  }
}

TEST_CASE("rows: a wrong id is found in a long column, whose rows are checked in several parts") {
  u32 const k = GENERATE(1u, 4u, 6u, 8u);
  try_all(rtb1_file(1000, k, 60), 1000, k, 60);
  try_all(warmset_file(1000, k, 60, 0, 1), 1000, k, 60);
}

TEST_CASE("rows: layers with different numbers of experts are told apart") {
  trace::contents c;
  c.geometry = geometry({{layer_id{0}, 250, 4, {10}}, {layer_id{1}, 200, 4, {10}}});
  trace::block b;
  b.n_rows = 2;
  b.n_steps = 50;
  b.k = 4;
  c.blocks = {b};
  std::vector<u16> ids = plain_rows(100, 4, 200);
  c.ids.assign(ids.begin(), ids.end());
  file f;
  f.bytes = trace::write_warmset(trace::recording(std::move(c)));
  f.summed = true;
  f.ids_at = f.bytes.size() - 8 - 800;
  for (std::size_t at = 0; at < ids.size(); ++at) {
    std::vector<u16> wrong = ids;
    wrong[at] = 249;
    CHECK(f.fails_at(wrong) == (at / 4 % 2 == 0 ? std::nullopt : std::optional<u64>(at)));
  }
}

TEST_CASE("checksum: parts of whole words make the sum of all bytes, and every 32 of a part are seen") {
  std::mt19937 random(3);
  std::vector<std::byte> bytes(1000);
  for (std::byte& b : bytes) {
    b = static_cast<std::byte>(random());
  }
  for (int round = 0; round < 500; ++round) {
    std::span<std::byte const> const all = std::span(bytes).first(random() % bytes.size());
    trace::checksummer parts;
    for (std::size_t at = 0; at < all.size();) {
      std::size_t const n = std::min<std::size_t>(all.size() - at, random() % 16 * 8);
      std::size_t seen = 0;
      parts.add(all.subspan(at, n), [&, at](std::byte const* p) {
        CHECK(p == all.data() + at + seen);
        seen += 32;
      });
      CHECK(seen == n / 32 * 32);
      at += n;
    }
    CHECK(parts.sum() == trace::checksum(all));
  }
}
