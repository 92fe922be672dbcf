// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "table.hpp"

namespace warmset::inline v0 {

/// What a loaded image does with residency: the bytes may still be in the slots (same process, same
/// storage), or they are gone.
enum class residency : u8 { keep, drop };

/// First record of a saved table.
struct image_header {
  u32 magic;
  u32 format;
  u64 geometry;  ///< geometry::fingerprint of the model
  u64 size;      ///< bytes of the block that follows
  u64 checksum;  ///< of those bytes
};

static_assert(detail::has_no_padding<image_header>, "an image has no padding");

inline constexpr u32 image_magic = 0x49'53'4D'57;  // "WMSI"
inline constexpr u32 image_format = 1;

namespace detail {
inline u64 checksum(unsigned char const* bytes, u64 n) noexcept {
  u64 hash = 0xCBF2'9CE4'8422'2325ull ^ n;
  for (u64 i = 0; i < n; i += 8) {
    u64 word = 0;
    std::memcpy(&word, bytes + i, static_cast<std::size_t>(min_of(n - i, u64{8})));
    hash = hash_word(hash, word);
    hash ^= hash >> 29;
  }
  return hash;
}
}  // namespace detail

/// The table as bytes: an image_header and the block. Allocates; O(block).
template <class Policy, class Byte = unsigned char>  // so that only those who save compile the vector
std::vector<Byte> save(table<Policy> const& t, u64 geometry_fingerprint) {
  u64 const size = t.block_bytes();
  auto const* const block = static_cast<unsigned char const*>(t.block());
  image_header const header{image_magic, image_format, geometry_fingerprint, size,
                            detail::checksum(block, size)};
  std::vector<Byte> image(sizeof header + static_cast<std::size_t>(size));
  std::memcpy(image.data(), &header, sizeof header);
  std::memcpy(image.data() + sizeof header, block, static_cast<std::size_t>(size));
  return image;
}

/// Replaces the table by a saved one of the same geometry, composition and sizes. With `residency::drop`
/// every look-up misses until it is loaded again, while scores and clocks go on.
///
/// Refused, and the table left identical, with `wrong_magic`, `wrong_version`, `wrong_geometry`,
/// `wrong_policy`, `wrong_size` or `corrupt`; with `busy` while this table has leases (scratch included) or
/// transfers. An image's own leases and transfers belong to another process and are dropped with the slots
/// they held. What this table is given now stays: its capacity, speculative slots and floor; slots of the
/// image beyond the capacity are dropped. Generations never go back, so that no word of an earlier transfer
/// can speak for a later one. O(block).
template <class Policy>
status load(table<Policy>& t, std::span<unsigned char const> image, u64 geometry_fingerprint,
            residency keep = residency::drop) {
  block_header const& now = t.view().header();
  if (now.leases != 0 || now.in_flight != 0) {
    return {reason::busy};
  }
  for (u32 i = 0; i < now.n_scratch; ++i) {
    if (t.view().scratch_word(i) != 0) {
      return {reason::busy};
    }
  }
  image_header header{};
  if (image.size() < sizeof header) {
    return {reason::wrong_size};
  }
  std::memcpy(&header, image.data(), sizeof header);
  if (header.magic != image_magic) {
    return {reason::wrong_magic};
  }
  if (header.format != image_format) {
    return {reason::wrong_version};
  }
  if (header.geometry != geometry_fingerprint) {
    return {reason::wrong_geometry};
  }
  if (header.size != t.block_bytes() || image.size() - sizeof header != header.size) {
    return {reason::wrong_size};
  }
  unsigned char const* const block = image.data() + sizeof header;
  if (detail::checksum(block, header.size) != header.checksum) {
    return {reason::corrupt};
  }
  block_header saved{};
  std::memcpy(&saved, block, sizeof saved);
  if (saved.policy != now.policy) {
    return {reason::wrong_policy};
  }
  table_shape const shape = t.view().shape();
  if (!(table_shape{saved.n_layers, saved.n_experts, saved.n_slots, saved.n_scratch, saved.context_bytes} == shape)) {
    return {reason::wrong_size};
  }
  // audited as a whole before the first byte of the table changes
  std::vector<u64> aligned((static_cast<std::size_t>(header.size) + 15) / 8 + 1);
  auto* const copy = reinterpret_cast<unsigned char*>(
      (reinterpret_cast<std::uintptr_t>(aligned.data()) + 15) / 16 * 16);
  std::memcpy(copy, block, static_cast<std::size_t>(header.size));
  table_writer<Policy> const candidate{copy, shape, &t.parts()};
  if (!audit(candidate)) {
    return {reason::corrupt};
  }
  for (u32 row = 0; row < shape.n_layers; ++row) {
    if (candidate.layer(row).n_experts != t.view().layer(row).n_experts) {
      return {reason::wrong_geometry};
    }
  }
  if (keep == residency::keep && saved.unused > now.speculative_slots) {
    return {reason::wrong_size};
  }
  outcome ignored{};
  for (u32 s = 0; s < shape.n_slots; ++s) {
    slot_state const state = slot_word::state(candidate.word(s));
    if (slot_word::leases(candidate.word(s)) != 0) {
      candidate.header().leases -= slot_word::leases(candidate.word(s));
      candidate.word(s) &= slot_word::one_lease - 1;
    }
    if (state == slot_state::reserved ||
        (state == slot_state::resident && keep == residency::drop)) {
      detail::start_draining<Policy>(candidate, s, true, ignored);
    }
    candidate.word(s) &= ~(slot_word::loading | slot_word::from_hint);
    detail::end_draining_if_idle<Policy>(candidate, s, ignored);
  }
  for (u32 j = 0; j < shape.n_slots; ++j) {
    candidate.in_flight(j) = 0;
  }
  for (u32 i = 0; i < shape.n_scratch; ++i) {
    candidate.scratch_word(i) = 0;
  }
  candidate.header().in_flight = 0;
  for (u32 s = 0; s < shape.n_slots; ++s) {
    u32 const mine = t.view().generation(s);
    if (candidate.generation(s) - mine > u32_max / 2) {  // this table's is the later one
      candidate.generation(s) = mine;
    }
  }
  candidate.header().speculative_slots = now.speculative_slots;
  candidate.header().floor = now.floor;
  (void)resize<Policy>(candidate, now.capacity, ignored);
  candidate.header().version = now.version + 1;
  candidate.header().epoch = now.epoch;
  candidate.header().storage_generation = now.storage_generation + (keep == residency::drop ? 1 : 0);
  std::memcpy(const_cast<void*>(t.block()), copy, static_cast<std::size_t>(header.size));
  return done;
}

}  // namespace warmset::inline v0
