// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "../core/geometry.hpp"
#include "../table/bundle.hpp"
#include "capacity.hpp"

namespace warmset::inline v0 {
namespace trace {

/// What is wrong with a capacity.
enum class capacity_warning : u8 {
  /// A shared pool is smaller than the T experts that one token touches. Steps of k are judged as a whole: on a cyclic
  /// trace LRU in C slots hits nothing up to T - k of them, and then the share (C - (T - k)) / k.
  below_cycle,
  below_k,   ///< a pool holds fewer experts than a token needs in one layer: every step overflows
  below_3k,  ///< per-layer pools below 3 k, or a shared pool below three cycles
  below_demand,         ///< the capacity is a quarter of the working set or less
  guard_without_decay,  ///< the guard compares heat that never fades
  pins_leave_no_room,   ///< pins leave fewer than k slots
  segments_too_small    ///< fewer slots than the selector's segments need
};

/// The name that reports give a warning.
constexpr char const* name_of(capacity_warning w) noexcept {
  switch (w) {
  case capacity_warning::below_cycle:
    return "below-cycle";
  case capacity_warning::below_k:
    return "below-k";
  case capacity_warning::below_3k:
    return "below-3k";
  case capacity_warning::below_demand:
    return "below-demand";
  case capacity_warning::guard_without_decay:
    return "guard-without-decay";
  case capacity_warning::pins_leave_no_room:
    return "pins-leave-no-room";
  case capacity_warning::segments_too_small:
    return "segments-too-small";
  }
  return "unknown";
}

/// One warning: what there is, what would be needed, and one plain sentence with both.
struct advice {
  capacity_warning kind;
  u64 have;  ///< slots, or bytes of a pool of bytes; 0 where the warning is not about an amount
  u64 need;  ///< the least amount without this warning
  sentence text;
};

/// What of a bundle decides whether a capacity suits it. The default is a policy that suits any.
struct policy_traits {
  char const* selector = "";
  u32 least_slots = 0;  ///< what the selector's segments need
  char const* guard = "";
  bool guard_needs_heat = false;
  char const* score = "";
  bool score_decays = true;
};

/// The traits of a bundle. A selector that divides its slots into segments says `least_slots`.
template <checked_bundle Policy>
constexpr policy_traits traits_of() noexcept {
  using selector = typename Policy::selector;
  using score = typename Policy::score;
  policy_traits t;
  t.selector = selector::name;
  if constexpr (requires { selector::least_slots; }) {
    t.least_slots = selector::least_slots;
  }
  t.guard = Policy::guard::name;
  t.guard_needs_heat = Policy::guard::needs_heat;
  t.score = score::name;
  if constexpr (counting_score<score>) {
    t.score_decays = score::decays;
  }
  return t;
}

/// What a number of tokens demands of all layers together.
struct working_set {
  u32 tokens = 0;  ///< 0 = not known
  u64 experts = 0;
  u64 bytes = 0;
};

namespace detail {

/// Collects warnings, per-layer ones as one warning with the layer that lacks most.
class adviser {
 public:
  adviser(geometry const& model, capacity room, policy_traits const& policy,
          std::span<expert_key const> pins, working_set demand)
      : model_(model), room_(room), policy_(policy), pins_(pins), demand_(demand) {}

  std::vector<advice> advise() {
    bool const per_layer = room_.in == capacity::unit::slots_per_layer;
    per_layer ? check_layers() : check_shared();
    check_demand();
    check_policy();
    return static_cast<std::vector<advice>&&>(found_);
  }

 private:
  template <class... Parts>
  void add(capacity_warning kind, u64 have, u64 need, Parts const&... parts) {
    found_.push_back({kind, have, need, sentence{parts...}});
  }

  /// The layers that have less than they need, as the one that lacks most.
  struct lack {
    u32 layers = 0;
    u32 layer = 0;
    u64 have = 0;
    u64 need = 0;

    void note(layer_id in, u64 has, u64 needs) noexcept {
      if (has < needs && (layers++ == 0 || needs - has > need - have)) {
        layer = in.value;
        have = has;
        need = needs;
      }
    }
    char const* others() const noexcept { return layers > 1 ? " (and in others)" : ""; }
  };

  void check_layers() {
    lack k, thrice, pinned;
    for (layer_geometry const& layer : model_.layers()) {
      u64 const slots = min_of(room_.amount, u64{layer.n_experts});
      k.note(layer.layer, slots, layer.k);
      if (slots >= layer.k) {  // one cause, one warning
        thrice.note(layer.layer, slots, min_of(3 * layer.k, layer.n_experts));
        u64 pins = 0;
        for (expert_key const& key : pins_) {
          pins += key.layer == layer.layer ? 1 : 0;
        }
        pinned.note(layer.layer, saturating_sub(slots, pins), pins == 0 ? 0 : layer.k);
      }
    }
    if (k.layers != 0) {
      add(capacity_warning::below_k, k.have, k.need, k.have,
          " slots are less than the k = ", k.need, " experts of one token in layer ", k.layer,
          k.others(), ": every step overflows");
    }
    if (thrice.layers != 0) {
      add(capacity_warning::below_3k, thrice.have, thrice.need, thrice.have,
          " slots per layer are less than 3 k = ", thrice.need, "; a step takes most of the pool");
    }
    if (pinned.layers != 0) {
      add(capacity_warning::pins_leave_no_room, pinned.have, pinned.need, "pins leave ",
          pinned.have, " slots of layer ", pinned.layer, pinned.others(),
          ", fewer than k = ", pinned.need);
    }
  }

  void check_shared() {
    bool const bytes = room_.in == capacity::unit::shared_bytes;
    char const* const unit = bytes ? " bytes" : " slots";
    u64 cycle = 0, step = 0, all = 0, pinned = 0;
    for (layer_geometry const& layer : model_.layers()) {
      u64 const size = bytes ? layer.expert_bytes() : 1;
      cycle += layer.k * size;
      step = max_of(step, layer.k * size);
      all += layer.n_experts * size;
    }
    for (expert_key const& key : pins_) {
      layer_geometry const* const layer = model_.find(key.layer);
      pinned += layer == nullptr ? 0 : bytes ? layer->expert_bytes() : 1;
    }
    u64 const room = room_.amount;
    if (room < step) {
      add(capacity_warning::below_k, room, step, "a shared pool of ", room, unit,
          " is below the k experts of one step, ", step, unit, ": such steps overflow");
    }
    if (room < cycle) {
      add(capacity_warning::below_cycle, room, cycle, "a shared pool of ", room, unit,
          " is below one token's cycle of ", cycle, unit,
          ": where tokens repeat, a shared LRU hits nothing up to ", cycle - step, unit,
          " and not everything below the cycle");
    } else if (u64 const enough = min_of(3 * cycle, all); room < enough) {
      add(capacity_warning::below_3k, room, enough, "a shared pool of ", room, unit,
          " is less than three cycles of ", cycle, unit, "; policies differ by little there");
    }
    u64 const left = saturating_sub(room, pinned);
    if (pinned != 0 && room >= step && left < step) {
      add(capacity_warning::pins_leave_no_room, left, step, "pins leave ", left, unit,
          " of the shared pool, less than the k experts of one step, ", step, unit);
    }
  }

  /// A capacity of a quarter of what is demanded misses much under any policy. Source: colibri #223.
  void check_demand() {
    if (demand_.tokens == 0) {
      return;
    }
    bool const bytes = room_.in == capacity::unit::shared_bytes;
    u64 const need = bytes ? demand_.bytes : demand_.experts;
    u64 have = room_.amount;
    if (room_.in == capacity::unit::slots_per_layer) {
      have = 0;
      for (layer_geometry const& layer : model_.layers()) {
        have += min_of(room_.amount, u64{layer.n_experts});
      }
    }
    if (have <= need / 4) {
      add(capacity_warning::below_demand, have, need / 4 + 1, "a capacity of ", have,
          bytes ? " bytes" : " slots", " is ", have * 100 / need, " % of the ", need,
          bytes ? " bytes" : " experts", " that ", demand_.tokens,
          " tokens demand; much of it misses under any policy");
    }
  }

  void check_policy() {
    if (policy_.guard_needs_heat && !policy_.score_decays) {
      add(capacity_warning::guard_without_decay, 0, 0, "the guard ", policy_.guard,
          " compares heat, and that of ", policy_.score,
          " never fades: in the end it refuses every hint");
    }
    if (room_.in == capacity::unit::shared_bytes) {
      return;  // replay alone has such pools, with a slot for every expert
    }
    if (room_.amount < policy_.least_slots) {
      add(capacity_warning::segments_too_small, room_.amount, policy_.least_slots, room_.amount,
          " slots are less than the ", policy_.least_slots, " that the segments of ",
          policy_.selector, " need");
    }
  }

  geometry const& model_;
  capacity room_;
  policy_traits policy_;
  std::span<expert_key const> pins_;
  working_set demand_;
  std::vector<advice> found_;
};

}  // namespace detail

/// What a person should know of a capacity before using it: typed warnings, none where nothing is wrong. Pure; throws
/// bad_alloc only. O(layers * pins).
///
/// @param policy  of the bundle, from `traits_of`
/// @param pins    experts that will be pinned, each once
/// @param demand  what some number of tokens demands, where that is known
inline std::vector<advice> capacity_advice(geometry const& model, capacity room,
                                           policy_traits const& policy = {},
                                           std::span<expert_key const> pins = {},
                                           working_set demand = {}) {
  return detail::adviser(model, room, policy, pins, demand).advise();
}

}  // namespace trace
}  // namespace warmset::inline v0
