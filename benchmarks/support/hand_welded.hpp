// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <warmset/core/ids.hpp>

namespace bench {

/// What every engine writes for itself: an expert cache with its policy welded in. Same service as the
/// library's (event-atomic, a slot per id, a list of loads, counters per layer), same decisions, nothing else:
/// no transfers in flight, no speculation, no leases, no audit. The baseline of the speed figures.
class hand_welded_base {
 public:
  struct load {
    warmset::u32 expert;
    warmset::u32 slot;
  };

  std::vector<warmset::u32> slots;  ///< of the last step, one per id
  std::vector<load> loads;          ///< of the last step

 protected:
  static constexpr warmset::u32 none = 0xFFFF'FFFFu;
  struct expert {
    warmset::u32 slot = none;
    warmset::u32 seen = 0;  ///< step that demanded it last
    warmset::u32 last = 0;  ///< recency stamp
  };

  /// Begins a step of a layer: counts its hits and collects its distinct missing experts; returns how many.
  template <class Layer>
  warmset::u32 look_up(Layer& l, warmset::routed_id const* ids, warmset::u32 n) {
    ++l.step;
    warmset::u32 n_missing = 0;
    for (warmset::u32 i = 0; i < n; ++i) {
      auto const id = static_cast<warmset::u32>(ids[i]);
      if (id >= l.experts.size() || l.experts[id].seen == l.step) {
        continue;
      }
      l.experts[id].seen = l.step;
      if (l.experts[id].slot == none) {
        missing_[n_missing++] = id;
      } else {
        ++l.hits;
      }
    }
    return n_missing;
  }

  template <class Layer>
  static warmset::u64 sum_of_hits(std::vector<Layer> const& layers) {
    warmset::u64 sum = 0;
    for (Layer const& l : layers) {
      sum += l.hits;
    }
    return sum;
  }

  std::vector<warmset::u32> missing_;  ///< of the last step
};

/// LRU over a doubly linked list.
class hand_welded_lru : public hand_welded_base {
 public:
  hand_welded_lru(warmset::u32 n_layers, warmset::u32 n_experts, warmset::u32 n_slots)
      : n_slots_(n_slots), layers_(n_layers) {
    for (layer& l : layers_) {
      l.experts.resize(n_experts);
      l.nodes.resize(n_slots);
    }
    slots.resize(n_experts);
    loads.resize(n_experts);
    missing_.resize(n_experts);
  }

  void step(warmset::u32 layer_index, warmset::routed_id const* ids, warmset::u32 n) {
    layer& l = layers_[layer_index];
    warmset::u32 const n_missing = look_up(l, ids, n);
    for (warmset::u32 i = 0; i < n_missing; ++i) {
      warmset::u32 slot = l.used;
      if (l.used < n_slots_) {
        ++l.used;
      } else {
        slot = l.oldest;
        while (l.experts[l.nodes[slot].owner].seen == l.step) {
          slot = l.nodes[slot].newer;
        }
        unlink(l, slot);
        l.experts[l.nodes[slot].owner].slot = none;
      }
      l.nodes[slot].owner = missing_[i];
      l.nodes[slot].linked = false;
      l.experts[missing_[i]].slot = slot;
      loads[i] = {missing_[i], slot};
    }
    for (warmset::u32 i = 0; i < n; ++i) {
      auto const id = static_cast<warmset::u32>(ids[i]);
      if (id < l.experts.size()) {
        warmset::u32 const slot = l.experts[id].slot;
        slots[i] = slot;
        if (slot != l.newest || !l.nodes[slot].linked) {
          if (l.nodes[slot].linked) {
            unlink(l, slot);
          }
          append(l, slot);
        }
      }
    }
    l.loads += n_missing;
  }

  warmset::u64 total_hits() const { return sum_of_hits(layers_); }

 private:
  struct node {
    warmset::u32 owner = none;
    warmset::u32 older = none;
    warmset::u32 newer = none;
    bool linked = false;
  };
  struct layer {
    std::vector<expert> experts;
    std::vector<node> nodes;
    warmset::u32 oldest = none;
    warmset::u32 newest = none;
    warmset::u32 used = 0;
    warmset::u32 step = 0;
    warmset::u64 hits = 0;
    warmset::u64 loads = 0;
  };

  static void unlink(layer& l, warmset::u32 slot) {
    node const& n = l.nodes[slot];
    (n.older != none ? l.nodes[n.older].newer : l.oldest) = n.newer;
    (n.newer != none ? l.nodes[n.newer].older : l.newest) = n.older;
  }
  static void append(layer& l, warmset::u32 slot) {
    node& n = l.nodes[slot];
    n.older = l.newest;
    n.newer = none;
    n.linked = true;
    (l.newest != none ? l.nodes[l.newest].newer : l.oldest) = slot;
    l.newest = slot;
  }

  warmset::u32 n_slots_;
  std::vector<layer> layers_;
};

/// LRU by a scan over the slots for the smallest stamp.
class hand_welded_scan : public hand_welded_base {
 public:
  hand_welded_scan(warmset::u32 n_layers, warmset::u32 n_experts, warmset::u32 n_slots)
      : n_slots_(n_slots), layers_(n_layers) {
    for (layer& l : layers_) {
      l.experts.resize(n_experts);
      l.owner.assign(n_slots, none);
    }
    slots.resize(n_experts);
    loads.resize(n_experts);
    missing_.resize(n_experts);
  }

  void step(warmset::u32 layer_index, warmset::routed_id const* ids, warmset::u32 n) {
    layer& l = layers_[layer_index];
    warmset::u32 const n_missing = look_up(l, ids, n);
    for (warmset::u32 i = 0; i < n_missing; ++i) {
      warmset::u32 slot = l.used;
      if (l.used < n_slots_) {
        ++l.used;
      } else {
        warmset::u32 best = none;
        for (warmset::u32 s = 0; s < n_slots_; ++s) {
          expert const& e = l.experts[l.owner[s]];
          if (e.seen != l.step && e.last < best) {
            best = e.last;
            slot = s;
          }
        }
        l.experts[l.owner[slot]].slot = none;
      }
      l.owner[slot] = missing_[i];
      l.experts[missing_[i]].slot = slot;
      loads[i] = {missing_[i], slot};
    }
    for (warmset::u32 i = 0; i < n; ++i) {
      auto const id = static_cast<warmset::u32>(ids[i]);
      if (id < l.experts.size()) {
        l.experts[id].last = ++l.tick;
        slots[i] = l.experts[id].slot;
      }
    }
    l.loads += n_missing;
  }

  warmset::u64 total_hits() const { return sum_of_hits(layers_); }

 private:
  struct layer {
    std::vector<expert> experts;
    std::vector<warmset::u32> owner;
    warmset::u32 used = 0;
    warmset::u32 step = 0;
    warmset::u32 tick = 0;
    warmset::u64 hits = 0;
    warmset::u64 loads = 0;
  };

  warmset::u32 n_slots_;
  std::vector<layer> layers_;
};

}  // namespace bench
