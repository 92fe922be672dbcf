// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "../core/ids.hpp"
#include "../core/result.hpp"
#include "bundle.hpp"

namespace warmset::inline v0 {

/// What a slot is doing.
enum class slot_state : u8 { free, reserved, resident, draining, retired };

/// Where an expert is: slot + 1 in the low bits (0 = nowhere), and marks.
namespace expert_word {
inline constexpr u32 slot_mask = 0x00FF'FFFF;
inline constexpr u32 pinned = 0x4000'0000;
inline constexpr u32 accessed = 0x8000'0000;
}  // namespace expert_word

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
/// The mark of a slot that gets the expert of this expert_word.
WARMSET_HD constexpr u32 pin_of(u32 where) noexcept {
  return (where & expert_word::pinned) / (expert_word::pinned / pinned);
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

inline constexpr u32 max_slots = expert_word::slot_mask - 1;

/// Sizes of one pool's block.
struct table_shape {
  u32 n_layers;   ///< rows: 1 in a per-layer pool
  u32 n_experts;  ///< experts per row, the largest of them
  u32 n_slots;    ///< slots reserved; the capacity may be lower
  u32 n_scratch;
  u64 context_bytes = 0;  ///< of a row: memory of a contextual score, a multiple of 16
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
  u64 context_bytes;

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
  u32 id;    ///< of the layer in the model
};

/// One expert: where it is (expert_word), and the pool tick of its last demand.
struct expert_record {
  u32 where;
  u32 last;
};

/// One slot. What a load writes lies together.
struct slot_record {
  u32 word;        ///< slot_word
  u32 owner;       ///< (row, expert), packed; 0 in a free slot
  u32 generation;  ///< counts its reservations
  u32 in_flight;   ///< not of this slot: entry of this index in the list of slots that are loading
};

static_assert(detail::has_no_padding<block_header>, "a block has no padding");
static_assert(detail::has_no_padding<layer_record>, "a block has no padding");
static_assert(detail::has_no_padding<expert_record>, "a block has no padding");
static_assert(detail::has_no_padding<slot_record>, "a block has no padding");

inline constexpr u32 block_magic = 0x42'53'4D'57;  // "WMSB"
inline constexpr u32 block_format = 2;

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
  u64 layers, experts, scores, slots, scratch, targets, selector_pool, selector_slots, selector_experts,
      contexts, expert_bytes, size;

  /// Offset of the only row of a pool that serves one layer, and of its experts: known without the shape.
  static constexpr u64 only_layer = detail::round_up_16(sizeof(block_header));
  static constexpr u64 only_experts = only_layer + detail::round_up_16(sizeof(layer_record));

  WARMSET_HD explicit constexpr block_layout(table_shape s) noexcept
      : layers{}, experts{}, scores{}, slots{}, scratch{}, targets{}, selector_pool{}, selector_slots{},
        selector_experts{}, contexts{}, expert_bytes{}, size{} {
    using score_state = typename Policy::score::state;
    using pool_state = typename Policy::selector::pool_state;
    using slot_state_type = typename Policy::selector::slot_state;
    using expert_state = typename Policy::selector::expert_state;
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
    slots = section(u64{s.n_slots} * sizeof(slot_record));
    scratch = section(u64{s.n_scratch} * sizeof(u32));
    targets = section(speculates<Policy> ? u64{s.n_slots} * sizeof(u32) : 0);
    selector_pool = section(detail::stored_size<pool_state>);
    selector_slots = section(u64{s.n_slots} * detail::stored_size<slot_state_type>);
    selector_experts = section(all_experts * detail::stored_size<expert_state>);
    contexts = section(u64{s.n_layers} * s.context_bytes);
    expert_bytes = section(keeps_bytes<Policy> ? u64{s.n_layers} * sizeof(u64) : 0);
    size = at;
  }
};

/// A table as a reader sees it: pointers into one block, and no way to write. Trivially copyable. Plan takes
/// nothing else. Slots and experts are plain indices here, ids at the rims.
template <checked_bundle Policy>
class table_reader {
 public:
  using policy = Policy;
  using score = typename Policy::score;
  using selector = typename Policy::selector;
  using score_state = typename score::state;
  using pool_state = typename selector::pool_state;
  using selector_slot_state = typename selector::slot_state;
  using selector_expert_state = typename selector::expert_state;

  table_reader() = default;

  /// @param block    formatted bytes, 16-byte aligned, block_layout::size long
  /// @param scratch  lease words of scratch slots that several pools share; null = the block's own
  WARMSET_HD table_reader(void const* block, table_shape shape, components<Policy> const* parts,
                          u32 const* scratch = nullptr) noexcept
      : parts_(parts) {
    block_layout<Policy> const at{shape};
    // only a writer, which was given a block to write, ever writes through these pointers
    auto* const bytes = static_cast<unsigned char*>(const_cast<void*>(block));
    header_ = reinterpret_cast<block_header*>(bytes);
    layers_ = reinterpret_cast<layer_record*>(bytes + at.layers);
    experts_ = reinterpret_cast<expert_record*>(bytes + at.experts);
    scores_ = reinterpret_cast<score_state*>(bytes + at.scores);
    slots_ = reinterpret_cast<slot_record*>(bytes + at.slots);
    scratch_ = scratch != nullptr ? const_cast<u32*>(scratch) : reinterpret_cast<u32*>(bytes + at.scratch);
    targets_ = reinterpret_cast<u32*>(bytes + at.targets);
    selector_pool_ = reinterpret_cast<pool_state*>(bytes + at.selector_pool);
    selector_slots_ = reinterpret_cast<selector_slot_state*>(bytes + at.selector_slots);
    selector_experts_ = reinterpret_cast<selector_expert_state*>(bytes + at.selector_experts);
    contexts_ = bytes + at.contexts;
  }

  WARMSET_HD block_header const& header() const noexcept { return *header_; }
  WARMSET_HD layer_record const& layer(u32 row) const noexcept { return layers()[of_pool(row)]; }
  WARMSET_HD expert_record const& expert(u32 index) const noexcept { return experts()[index]; }
  WARMSET_HD score_state const& score_of(u32 index) const noexcept {
    return scores_[std::is_empty_v<score_state> ? 0 : index];
  }
  WARMSET_HD u32 word(u32 slot) const noexcept { return slots_[slot].word; }
  /// Lease word of scratch slot n_slots + i.
  WARMSET_HD u32 scratch_word(u32 i) const noexcept { return scratch_[i]; }
  /// The records of all slots as words.
  WARMSET_HD u32 const* slot_words() const noexcept { return &slots_[0].word; }
  WARMSET_HD u32 owner(u32 slot) const noexcept { return slots_[slot].owner; }
  WARMSET_HD u32 generation(u32 slot) const noexcept { return slots_[slot].generation; }
  /// Step of the layer that a speculated slot is for.
  WARMSET_HD u32 target(u32 slot) const noexcept { return targets_[slot]; }
  WARMSET_HD u32 in_flight(u32 i) const noexcept { return slots_[i].in_flight; }
  WARMSET_HD pool_state const& selector_pool() const noexcept { return *selector_pool_; }
  WARMSET_HD selector_slot_state const& selector_slot(u32 slot) const noexcept {
    return selector_slots_[slot];
  }
  WARMSET_HD selector_expert_state const& selector_expert(u32 index) const noexcept {
    return selector_experts_[std::is_empty_v<selector_expert_state> ? 0 : index];
  }
  /// A row's memory of a contextual score.
  WARMSET_HD unsigned char const* context(u32 row) const noexcept {
    return contexts_ + row * header_->context_bytes;
  }

  /// With the selector's state, what its hooks see of the table; see policy/select/concept.hpp.
  WARMSET_HD u32 size() const noexcept { return header_->capacity; }
  WARMSET_HD bool evictable(u32 slot) const noexcept { return slot_word::evictable(slots_[slot].word); }
  WARMSET_HD u32 expert_index(u32 slot) const noexcept { return index_of_owner(slots_[slot].owner); }
  WARMSET_HD u32 expert_count() const noexcept { return header_->n_layers * header_->n_experts; }

  /// Bytes of one expert of the row; 0 where the admission does not count bytes.
  WARMSET_HD u64 expert_bytes(u32 row) const noexcept {
    if constexpr (keeps_bytes<Policy>) {
      return bytes_of_rows()[row];
    } else {
      (void)row;
      return 0;
    }
  }

  WARMSET_HD components<Policy> const& parts() const noexcept { return *parts_; }
  WARMSET_HD void const* block() const noexcept { return header_; }

  WARMSET_HD table_shape shape() const noexcept {
    return {header_->n_layers, header_->n_experts, header_->n_slots, header_->n_scratch,
            header_->context_bytes};
  }
  /// Index of (row, expert) in the expert sections.
  WARMSET_HD u32 index_of(u32 row, u32 expert) const noexcept {
    if constexpr (Policy::pool::spans_layers) {
      return row * header_->n_experts + expert;
    } else {
      return expert;
    }
  }
  /// The row, which in a pool of one layer is known to be the only one.
  WARMSET_HD static constexpr u32 of_pool(u32 row) noexcept { return Policy::pool::spans_layers ? row : 0; }

  /// (row, expert) packed as a slot stores it; meaningless in a free slot.
  WARMSET_HD static constexpr u32 pack_owner(u32 row, u32 expert) noexcept {
    return of_pool(row) << 16 | expert;
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
    layer_record const& record = layer(row);
    return {header_->tick, record.tick, model_tick, record.step};
  }
  WARMSET_HD static expert_facts facts(expert_record const& record) noexcept {
    return {record.last, record.where & expert_word::accessed, record.where & expert_word::slot_mask};
  }
  WARMSET_HD u64 value(u32 index, clocks c) const noexcept {
    return parts_->score.value(score_of(index), facts(expert(index)), c);
  }
  /// The order of victims by one of a contextual score's keys.
  WARMSET_HD static constexpr u64 rank_of_key(i32 key) noexcept {
    return static_cast<u64>(static_cast<i64>(key) + (i64{1} << 31));
  }
  WARMSET_HD u32 heat(u32 index, clocks c) const noexcept {
    if constexpr (counting_score<score>) {
      return parts_->score.heat(score_of(index), facts(expert(index)), c);
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
    u64 const most = min_of(u64{n_tokens} * k, u64{layer(row).n_experts});
    return most <= usable();
  }

 protected:
  using layout = block_layout<Policy>;

  // near the header: where the offset is known, one pointer less to keep in a register
  WARMSET_HD layer_record* layers() const noexcept { return section(layers_, layout::only_layer); }
  WARMSET_HD expert_record* experts() const noexcept { return section(experts_, layout::only_experts); }

  // asked once a step at most: not worth a pointer in every view
  WARMSET_HD u64* bytes_of_rows() const noexcept {
    return reinterpret_cast<u64*>(reinterpret_cast<unsigned char*>(header_) + layout{shape()}.expert_bytes);
  }

  block_header* header_ = nullptr;
  layer_record* layers_ = nullptr;
  expert_record* experts_ = nullptr;
  score_state* scores_ = nullptr;
  slot_record* slots_ = nullptr;
  u32* scratch_ = nullptr;
  u32* targets_ = nullptr;
  pool_state* selector_pool_ = nullptr;
  selector_slot_state* selector_slots_ = nullptr;
  selector_expert_state* selector_experts_ = nullptr;
  unsigned char* contexts_ = nullptr;
  components<Policy> const* parts_ = nullptr;

 private:
  template <class T>
  WARMSET_HD T* section(T* where, u64 offset) const noexcept {
    if constexpr (Policy::pool::spans_layers) {
      return where;
    } else {
      return reinterpret_cast<T*>(reinterpret_cast<unsigned char*>(header_) + offset);
    }
  }
};

/// The view of the holder of the execution authority: a reader that may write as well.
template <checked_bundle Policy>
class table_writer : public table_reader<Policy> {
  using reader = table_reader<Policy>;

 public:
  table_writer() = default;

  /// @param block    zeroed or formatted bytes, 16-byte aligned, block_layout::size long
  /// @param scratch  as for a reader
  WARMSET_HD table_writer(void* block, table_shape shape, components<Policy> const* parts,
                          u32* scratch = nullptr) noexcept
      : reader(block, shape, parts, scratch) {}

  WARMSET_HD block_header& header() const noexcept { return *this->header_; }
  WARMSET_HD layer_record& layer(u32 row) const noexcept { return this->layers()[reader::of_pool(row)]; }
  WARMSET_HD expert_record& expert(u32 index) const noexcept { return this->experts()[index]; }
  WARMSET_HD typename reader::score_state& score_of(u32 index) const noexcept {
    return this->scores_[std::is_empty_v<typename reader::score_state> ? 0 : index];
  }
  WARMSET_HD u32& word(u32 slot) const noexcept { return this->slots_[slot].word; }
  WARMSET_HD u32& scratch_word(u32 i) const noexcept { return this->scratch_[i]; }
  WARMSET_HD u32& owner(u32 slot) const noexcept { return this->slots_[slot].owner; }
  WARMSET_HD u32& generation(u32 slot) const noexcept { return this->slots_[slot].generation; }
  WARMSET_HD u32& target(u32 slot) const noexcept { return this->targets_[slot]; }
  WARMSET_HD u32& in_flight(u32 i) const noexcept { return this->slots_[i].in_flight; }
  WARMSET_HD typename reader::pool_state& selector_pool() const noexcept { return *this->selector_pool_; }
  WARMSET_HD typename reader::selector_slot_state& selector_slot(u32 slot) const noexcept {
    return this->selector_slots_[slot];
  }
  WARMSET_HD typename reader::selector_expert_state& selector_expert(u32 index) const noexcept {
    return this->selector_experts_[std::is_empty_v<typename reader::selector_expert_state> ? 0 : index];
  }
  WARMSET_HD unsigned char* context(u32 row) const noexcept {
    return this->contexts_ + row * this->header_->context_bytes;
  }
  WARMSET_HD u64& expert_bytes(u32 row) const noexcept
    requires keeps_bytes<Policy>
  {
    return this->bytes_of_rows()[row];
  }
  WARMSET_HD void* block() const noexcept { return this->header_; }
};

}  // namespace warmset::inline v0
