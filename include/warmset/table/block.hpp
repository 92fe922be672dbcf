// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "../core/ids.hpp"
#include "../core/result.hpp"
#include "bundle.hpp"

namespace warmset::inline v0 {

/// What a slot is doing.
enum class slot_state : u8 { free, reserved, resident, draining, retired };

/// A slot's state word: state, marks and lease count in 32 bits, so that one comparison tells a candidate
/// for eviction. All-zero = free.
namespace slot_word {
inline constexpr u32 state_mask = 0x07;
inline constexpr u32 unused = 0x08;     ///< speculated and not demanded since
inline constexpr u32 from_hint = 0x10;  ///< the transfer was started by speculation; until it ends
inline constexpr u32 pinned = 0x20;
inline constexpr u32 loading = 0x40;  ///< draining while its transfer runs
inline constexpr u32 returns = 0x80;  ///< draining, and free afterwards instead of retired
inline constexpr u32 one_lease = 0x100;

WARMSET_HD constexpr u32 of(slot_state s) noexcept {
  return static_cast<u32>(s);
}
WARMSET_HD constexpr slot_state state(u32 word) noexcept {
  return static_cast<slot_state>(word & state_mask);
}
WARMSET_HD constexpr u32 leases(u32 word) noexcept {
  return word / one_lease;
}
/// A candidate: resident, demanded, not leased, not pinned.
WARMSET_HD constexpr bool evictable(u32 word) noexcept {
  return word == of(slot_state::resident);
}
/// A speculated, never demanded resident that nothing holds.
WARMSET_HD constexpr bool spare(u32 word) noexcept {
  return word == (of(slot_state::resident) | unused);
}
}  // namespace slot_word

/// Where an expert is: slot + 1 in the low bits (0 = nowhere), and marks.
namespace expert_word {
inline constexpr u32 slot_mask = 0x00FF'FFFF;
inline constexpr u32 pinned = 0x4000'0000;
inline constexpr u32 accessed = 0x8000'0000;
}  // namespace expert_word

inline constexpr u32 max_slots = expert_word::slot_mask - 1;

/// Sizes of one pool's block.
struct table_shape {
  u32 n_layers;   ///< rows: 1 in a per-layer pool
  u32 n_experts;  ///< experts per row, the largest of them
  u32 n_slots;    ///< slots reserved; the capacity may be lower
  u32 n_scratch;
  bool operator==(table_shape const&) const = default;
};

/// First record of a block. What every step reads fills the first cache line.
struct block_header {
  u64 version;  ///< counts changes; a plan is committed to the version it was made from
  u32 n_layers;
  u32 n_slots;
  u32 capacity;   ///< slots that may be used now
  u32 pinned;     ///< pinned experts
  u32 floor;      ///< slots that each row of a shared pool keeps
  u32 tick;
  u32 model_tick;
  u32 free_hint;  ///< no slot below it is free
  u32 reserved;   ///< slots by state
  u32 resident;
  u32 draining;
  u32 retired;
  u32 unused;     ///< speculated, never demanded: reserved or resident
  u32 in_flight;  ///< length of the in-flight list
  u32 n_experts;
  u32 n_scratch;
  u32 speculative_slots;  ///< bound of `unused`
  u32 leases;     ///< lease counts of the pool's slots; scratch may be shared with other pools
  u32 epoch;      ///< of the execution authority
  u32 storage_generation;
  u32 magic;
  u32 format;
  u64 policy;  ///< fingerprint of the bundle's names and numbers

  WARMSET_HD constexpr u32 free() const noexcept {
    return n_slots - reserved - resident - draining - retired;
  }
};

/// One row of a pool.
struct layer_record {
  u32 n_experts;
  u32 step;
  u32 tick;
  u32 held;  ///< slots reserved or resident for this row
};

/// One expert: where it is (expert_word), and the pool tick of its last demand.
struct expert_record {
  u32 where;
  u32 last;
};

static_assert(std::has_unique_object_representations_v<block_header>, "a block has no padding");
static_assert(std::has_unique_object_representations_v<layer_record>, "a block has no padding");
static_assert(std::has_unique_object_representations_v<expert_record>, "a block has no padding");

inline constexpr u32 block_magic = 0x42'53'4D'57;  // "WMSB"
inline constexpr u32 block_format = 1;

namespace detail {
/// Size of a state in the block; none for an empty one.
template <class State>
inline constexpr u64 stored_size = std::is_empty_v<State> ? 0 : sizeof(State);

WARMSET_HD constexpr u64 round_up_16(u64 bytes) noexcept {
  return (bytes + 15) / 16 * 16;
}
}  // namespace detail

/// Byte offsets of the sections of a block. Sections start at multiples of 16; the bytes between them are
/// zero for ever, so that equal tables are equal bytes.
template <checked_bundle Policy>
struct block_layout {
  u64 layers, experts, scores, words, scratch, owners, generations, targets, in_flight,
      selector_pool, selector_slots, size;

  WARMSET_HD explicit constexpr block_layout(table_shape s) noexcept
      : layers{}, experts{}, scores{}, words{}, scratch{}, owners{}, generations{}, targets{},
        in_flight{}, selector_pool{}, selector_slots{}, size{} {
    using score_state = typename Policy::score::state;
    using pool_state = typename Policy::selector::pool_state;
    using slot_state_type = typename Policy::selector::slot_state;
    u64 const all_experts = u64{s.n_layers} * s.n_experts;
    u64 at = detail::round_up_16(sizeof(block_header));
    auto section = [&at](u64 bytes) {
      u64 const begin = at;
      at += detail::round_up_16(bytes);
      return begin;
    };
    layers = section(u64{s.n_layers} * sizeof(layer_record));
    experts = section(all_experts * sizeof(expert_record));
    scores = section(all_experts * detail::stored_size<score_state>);
    words = section(u64{s.n_slots} * sizeof(u32));
    scratch = section(u64{s.n_scratch} * sizeof(u32));
    owners = section(u64{s.n_slots} * sizeof(u32));
    generations = section(u64{s.n_slots} * sizeof(u32));
    targets = section(speculates<Policy> ? u64{s.n_slots} * sizeof(u32) : 0);
    in_flight = section(u64{s.n_slots} * sizeof(u32));
    selector_pool = section(detail::stored_size<pool_state>);
    selector_slots = section(u64{s.n_slots} * detail::stored_size<slot_state_type>);
    size = at;
  }
};

/// A table as a function sees it: pointers into one block. Trivially copyable; `Writable` says what it may
/// do. Slots and experts are plain indices here, ids at the rims.
template <checked_bundle Policy, bool Writable>
class basic_table_view {
  template <class T>
  using maybe_const = std::conditional_t<Writable, T, T const>;

 public:
  using policy = Policy;
  using score = typename Policy::score;
  using selector = typename Policy::selector;
  using score_state = typename score::state;
  using pool_state = typename selector::pool_state;
  using selector_slot_state = typename selector::slot_state;

  basic_table_view() = default;

  /// @param block    zeroed or formatted bytes, 16-byte aligned, block_layout::size long
  /// @param scratch  lease words of scratch slots that several pools share; null = the block's own
  WARMSET_HD basic_table_view(maybe_const<void>* block, table_shape shape,
                              components<Policy> const* parts,
                              maybe_const<u32>* scratch = nullptr) noexcept
      : parts_(parts) {
    block_layout<Policy> const at{shape};
    auto* const bytes = static_cast<maybe_const<unsigned char>*>(block);
    header_ = reinterpret_cast<maybe_const<block_header>*>(bytes);
    layers_ = reinterpret_cast<maybe_const<layer_record>*>(bytes + at.layers);
    experts_ = reinterpret_cast<maybe_const<expert_record>*>(bytes + at.experts);
    scores_ = reinterpret_cast<maybe_const<score_state>*>(bytes + at.scores);
    words_ = reinterpret_cast<maybe_const<u32>*>(bytes + at.words);
    scratch_ = scratch != nullptr ? scratch : reinterpret_cast<maybe_const<u32>*>(bytes + at.scratch);
    owners_ = reinterpret_cast<maybe_const<u32>*>(bytes + at.owners);
    generations_ = reinterpret_cast<maybe_const<u32>*>(bytes + at.generations);
    targets_ = reinterpret_cast<maybe_const<u32>*>(bytes + at.targets);
    in_flight_ = reinterpret_cast<maybe_const<u32>*>(bytes + at.in_flight);
    selector_pool_ = reinterpret_cast<maybe_const<pool_state>*>(bytes + at.selector_pool);
    selector_slots_ = reinterpret_cast<maybe_const<selector_slot_state>*>(bytes + at.selector_slots);
  }

  /// A reading view of the same table. A constructor: nvcc warns of a conversion function to the own type.
  template <bool OtherWritable>
    requires(OtherWritable && !Writable)
  WARMSET_HD basic_table_view(basic_table_view<Policy, OtherWritable> const& other) noexcept
      : header_(other.header_),
        layers_(other.layers_),
        experts_(other.experts_),
        scores_(other.scores_),
        words_(other.words_),
        scratch_(other.scratch_),
        owners_(other.owners_),
        generations_(other.generations_),
        targets_(other.targets_),
        in_flight_(other.in_flight_),
        selector_pool_(other.selector_pool_),
        selector_slots_(other.selector_slots_),
        parts_(other.parts_) {}

  WARMSET_HD maybe_const<block_header>& header() const noexcept { return *header_; }
  WARMSET_HD maybe_const<layer_record>& layer(u32 row) const noexcept { return layers_[row]; }
  WARMSET_HD maybe_const<expert_record>& expert(u32 index) const noexcept { return experts_[index]; }
  WARMSET_HD maybe_const<score_state>& score_of(u32 index) const noexcept {
    return scores_[std::is_empty_v<score_state> ? 0 : index];
  }
  WARMSET_HD maybe_const<u32>& word(u32 slot) const noexcept { return words_[slot]; }
  /// Lease word of scratch slot n_slots + i.
  WARMSET_HD maybe_const<u32>& scratch_word(u32 i) const noexcept { return scratch_[i]; }
  WARMSET_HD maybe_const<u32>& owner(u32 slot) const noexcept { return owners_[slot]; }
  WARMSET_HD maybe_const<u32>& generation(u32 slot) const noexcept { return generations_[slot]; }
  /// Step of the layer that a speculated slot is for.
  WARMSET_HD maybe_const<u32>& target(u32 slot) const noexcept { return targets_[slot]; }
  WARMSET_HD maybe_const<u32>& in_flight(u32 i) const noexcept { return in_flight_[i]; }
  WARMSET_HD maybe_const<pool_state>& selector_pool() const noexcept { return *selector_pool_; }
  WARMSET_HD maybe_const<selector_slot_state>& selector_slot(u32 slot) const noexcept {
    return selector_slots_[slot];
  }

  WARMSET_HD components<Policy> const& parts() const noexcept { return *parts_; }
  WARMSET_HD maybe_const<void>* block() const noexcept { return header_; }

  WARMSET_HD table_shape shape() const noexcept {
    return {header_->n_layers, header_->n_experts, header_->n_slots, header_->n_scratch};
  }
  /// Index of (row, expert) in the expert sections.
  WARMSET_HD u32 index_of(u32 row, u32 expert) const noexcept {
    if constexpr (Policy::pool::spans_layers) {
      return row * header_->n_experts + expert;
    } else {
      return expert;
    }
  }
  /// (row, expert) packed as a slot stores it; meaningless in a free slot.
  WARMSET_HD static constexpr u32 pack_owner(u32 row, u32 expert) noexcept {
    return row << 16 | expert;
  }
  WARMSET_HD static constexpr u32 row_of(u32 owner) noexcept {
    return Policy::pool::spans_layers ? owner >> 16 : 0;
  }
  WARMSET_HD static constexpr u32 expert_of(u32 owner) noexcept { return owner & 0xFFFF; }
  WARMSET_HD u32 index_of_owner(u32 owner) const noexcept {
    return index_of(row_of(owner), expert_of(owner));
  }

  /// The clocks that a read at this moment sees.
  WARMSET_HD clocks now(u32 row, u32 model_tick) const noexcept {
    layer_record const& record = layers_[row];
    return {header_->tick, record.tick, model_tick, record.step};
  }
  WARMSET_HD static expert_facts facts(expert_record const& record) noexcept {
    return {record.last, record.where & expert_word::accessed, record.where & expert_word::slot_mask};
  }
  WARMSET_HD u64 value(u32 index, clocks c) const noexcept {
    return parts_->score.value(score_of(index), facts(experts_[index]), c);
  }
  WARMSET_HD u32 heat(u32 index, clocks c) const noexcept {
    if constexpr (counting_score<score>) {
      return parts_->score.heat(score_of(index), facts(experts_[index]), c);
    } else {
      return 0;
    }
  }

  /// Slots that one step of a row can rely on: the capacity less the pins and the floors of other rows.
  WARMSET_HD u32 usable() const noexcept {
    u32 const floors = Policy::pool::spans_layers ? (header_->n_layers - 1) * header_->floor : 0;
    return saturating_sub(header_->capacity, floors + header_->pinned);
  }
  /// Whether a step of `n_tokens` tokens is certain not to overflow: min(n k, n_experts) <= usable().
  WARMSET_HD bool fits(u32 row, u32 n_tokens, u32 k) const noexcept {
    u64 const most = min_of(u64{n_tokens} * k, u64{layers_[row].n_experts});
    return most <= usable();
  }

 private:
  template <checked_bundle, bool>
  friend class basic_table_view;

  maybe_const<block_header>* header_ = nullptr;
  maybe_const<layer_record>* layers_ = nullptr;
  maybe_const<expert_record>* experts_ = nullptr;
  maybe_const<score_state>* scores_ = nullptr;
  maybe_const<u32>* words_ = nullptr;
  maybe_const<u32>* scratch_ = nullptr;
  maybe_const<u32>* owners_ = nullptr;
  maybe_const<u32>* generations_ = nullptr;
  maybe_const<u32>* targets_ = nullptr;
  maybe_const<u32>* in_flight_ = nullptr;
  maybe_const<pool_state>* selector_pool_ = nullptr;
  maybe_const<selector_slot_state>* selector_slots_ = nullptr;
  components<Policy> const* parts_ = nullptr;
};

/// The only view that plan takes: it cannot write.
template <checked_bundle Policy>
using table_reader = basic_table_view<Policy, false>;

/// The view of the holder of the execution authority.
template <checked_bundle Policy>
using table_writer = basic_table_view<Policy, true>;

}  // namespace warmset::inline v0
