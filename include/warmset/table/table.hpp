// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <new>
#include <vector>

#include "../core/fixed_array.hpp"
#include "../core/geometry.hpp"
#include "audit.hpp"
#include "lease.hpp"
#include "plan_demand.hpp"
#include "plan_speculative.hpp"
#include "resize.hpp"

namespace warmset::inline v0 {

namespace detail {

constexpr u64 hash_bytes(u64 hash, char const* text) noexcept {
  for (; *text != '\0'; ++text) {
    hash = (hash ^ static_cast<unsigned char>(*text)) * 0x0000'0100'0000'01B3ull;
  }
  return hash * 0x0000'0100'0000'01B3ull;
}

constexpr u64 hash_word(u64 hash, u64 word) noexcept {
  return (hash ^ word) * 0x9E37'79B9'7F4A'7C15ull;
}

}  // namespace detail

/// Fingerprint of a composition: the names of its parts and the numbers that decisions depend on. A block
/// is loaded only into a table of the same one.
template <checked_bundle Policy>
constexpr u64 policy_fingerprint(tuning const& numbers) noexcept {
  u64 hash = 0xCBF2'9CE4'8422'2325ull;
  hash = detail::hash_bytes(hash, Policy::score::name);
  hash = detail::hash_bytes(hash, Policy::selector::name);
  hash = detail::hash_bytes(hash, Policy::guard::name);
  hash = detail::hash_bytes(hash, Policy::admission::name);
  hash = detail::hash_bytes(hash, Policy::predictor::name);
  hash = detail::hash_bytes(hash, Policy::pool::name);
  hash = detail::hash_word(hash, numbers.half_life);
  hash = detail::hash_word(hash, numbers.epoch);
  hash = detail::hash_word(hash, numbers.sequences);
  hash = detail::hash_word(hash, numbers.insert_bytes);
  hash = detail::hash_word(hash, numbers.fetch_share);
  return hash;
}

/// Throws config_error where a number is outside its range.
inline void check_numbers(tuning const& numbers) {
  if (numbers.half_life < decay_table::min_half_life || numbers.half_life > decay_table::max_half_life) {
    throw config_error("half_life = ", numbers.half_life, " steps; between 4 and 256 are possible");
  }
  if (numbers.epoch == 0 || numbers.epoch > 32'768 || (numbers.epoch & (numbers.epoch - 1)) != 0) {
    throw config_error("epoch = ", numbers.epoch, " steps; a power of two between 1 and 32768 is possible");
  }
  if (numbers.sequences == 0 || numbers.sequences > 64) {
    throw config_error("sequences = ", numbers.sequences, "; between 1 and 64 are possible");
  }
  if (numbers.fetch_share > whole_fetch_share) {
    throw config_error("fetch_share = ", numbers.fetch_share, "; at most ", whole_fetch_share, ", all misses, is possible");
  }
}

/// How large a pool is made.
struct pool_size {
  u32 reserved;  ///< slots for which there is room
  u32 capacity;  ///< slots to use now; <= reserved
};

/// One pool on the host: owns the flat block and the policy objects. Movable, not copyable. One owner
/// thread.
///
/// Throws config_error where a row has more experts than `Policy::max_experts`, where a bundle that
/// speculates has no slot for it, where the capacity cannot hold the floors, or where a number is out of
/// range. Allocates in the constructor only.
template <checked_bundle Policy>
class table {
 public:
  using writer = table_writer<Policy>;
  using reader = table_reader<Policy>;

  /// @param rows     the layers of this pool: one in a per-layer pool
  /// @param shared_scratch  lease words of scratch slots that this pool shares with others; null = its own
  table(std::vector<layer_geometry> const& rows, pool_size size, tuning numbers = Policy::numbers,
        u32* shared_scratch = nullptr)
      : parts_(fixed_array<components<Policy>>::of_one(components<Policy>(numbers))) {
    check_numbers(numbers);
    if (rows.empty() || (!Policy::pool::spans_layers && rows.size() != 1)) {
      throw config_error("a ", Policy::pool::name, " pool of ", rows.size(), " layers is not possible");
    }
    u32 max_experts = 0;
    u32 max_k = 0;
    for (layer_geometry const& row : rows) {
      max_experts = max_of(max_experts, row.n_experts);
      max_k = max_of(max_k, row.k);
      if (row.n_experts > Policy::max_experts) {
        throw config_error("layer ", row.layer.value, " has ", row.n_experts, " experts; the bundle's max_experts is ", Policy::max_experts);
      }
    }
    if (size.capacity > size.reserved || size.reserved > max_slots) {
      throw config_error("a capacity of ", size.capacity, " in ", size.reserved, " reserved slots is not possible");
    }
    u32 const scratch = numbers.scratch_slots != 0 ? numbers.scratch_slots : max_k;
    u32 const floor = Policy::pool::spans_layers ? (numbers.floor != 0 ? numbers.floor : max_k) : 0;
    u32 const kept_for_hints =
        speculates<Policy> ? (numbers.speculative_slots != 0 ? numbers.speculative_slots : 1) : 0;
    if (!speculates<Policy> && numbers.speculative_slots != 0) {
      throw config_error("speculative_slots = ", numbers.speculative_slots, " in a bundle whose predictor is none");
    }
    if constexpr (speculates<Policy>) {
      if (size.capacity != 0 && kept_for_hints + (keeps_reserve<Policy> ? 1 : 0) > size.capacity) {
        throw config_error("speculative_slots = ", kept_for_hints, " of a capacity of ", size.capacity, " leave nothing for demand");
      }
    }
    if (size.capacity != 0 && u64{floor} * rows.size() > size.capacity) {
      throw config_error("a floor of ", floor, " slots for each of ", rows.size(), " layers exceeds the capacity of ", size.capacity);
    }

    u64 context_bytes = 0;
    if constexpr (contextual_score<typename Policy::score>) {
      context_bytes = detail::round_up_16(parts_[0].score.context_bytes(max_experts));
    }
    shape_ = {static_cast<u32>(rows.size()), max_experts, size.reserved, scratch, context_bytes};
    bytes_ = block_layout<Policy>{shape_}.size;
    block_ = fixed_array<line>(static_cast<std::size_t>(bytes_ + sizeof(line) - 1) / sizeof(line));

    auto* const h = new (block_.data()) block_header{};
    h->magic = block_magic;
    h->format = block_format;
    h->policy = policy_fingerprint<Policy>(numbers);
    h->n_layers = shape_.n_layers;
    h->n_experts = shape_.n_experts;
    h->n_slots = shape_.n_slots;
    h->n_scratch = shape_.n_scratch;
    h->context_bytes = shape_.context_bytes;
    h->capacity = size.capacity;
    h->speculative_slots = kept_for_hints;
    h->floor = floor;
    h->retired = size.reserved - size.capacity;
    view_ = writer{block_.data(), shape_, parts_.data(), shared_scratch};
    for (u32 row = 0; row < shape_.n_layers; ++row) {
      view_.layer(row).n_experts = rows[row].n_experts;
      view_.layer(row).id = rows[row].layer.value;
      if constexpr (keeps_bytes<Policy>) {
        view_.expert_bytes(row) = rows[row].expert_bytes();
      }
    }
    for (u32 s = size.capacity; s < size.reserved; ++s) {
      view_.word(s) = slot_word::of(slot_state::retired);
    }
  }

  writer const& view() noexcept { return view_; }
  reader const& view() const noexcept { return view_; }

  table(table&&) noexcept = default;
  table& operator=(table&&) noexcept = default;

  void const* block() const noexcept { return block_.data(); }
  u64 block_bytes() const noexcept { return bytes_; }
  components<Policy> const& parts() const noexcept { return parts_[0]; }

 private:
  /// The block is made of cache lines: zeroed, aligned, and at a stable address when the table is moved.
  struct alignas(64) line {
    unsigned char bytes[64];
  };

  writer view_{};  // first: every step reads it
  fixed_array<components<Policy>> parts_;  // of one: an address that survives a move
  fixed_array<line> block_;
  u64 bytes_ = 0;
  table_shape shape_{};
};

}  // namespace warmset::inline v0
