// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include <warmset/core/ids.hpp>

namespace warmset::kit {

/// class_lru in the words of the design page and nothing of the library: a list of slots, a history per expert,
/// and a search for the largest u64(age) << (7 - class) among those that the step does not demand.
///
/// Several layers may share the slots: each has a clock of steps of its own, and keeps `floor` slots against the others.
class naive_class_lru {
 public:
  naive_class_lru(u32 n_experts, u32 capacity, u32 n_layers = 1, u32 floor = 0)
      : n_experts_(n_experts), floor_(floor), experts_(n_experts * n_layers), steps_(n_layers),
        slots_(capacity, nobody) {
    for (u32 i = 0; i < half_life; ++i) {
      factor_[i] = static_cast<u64>(std::llround(65'536.0 * std::exp2(-static_cast<double>(i) / half_life)));
    }
  }

  /// The slots of hits and no_slot for each miss, for distinct ids of which there are no more than slots.
  std::vector<u32> step(std::span<u32 const> ids, u32 layer = 0) {
    std::vector<u32> keys;
    std::vector<u32> answer;
    std::vector<u32> misses;
    for (u32 const id : ids) {
      keys.push_back(layer * n_experts_ + id);
      auto const at = std::find(slots_.begin(), slots_.end(), keys.back());
      answer.push_back(at == slots_.end() ? no_slot.value : static_cast<u32>(at - slots_.begin()));
      if (at == slots_.end()) {
        misses.push_back(keys.back());
      }
    }
    std::vector<u32> places;
    for (u32 s = 0; s < slots_.size() && places.size() < misses.size(); ++s) {
      if (slots_[s] == nobody) {
        places.push_back(s);
      }
    }
    while (places.size() < misses.size()) {
      places.push_back(coldest(keys, places, layer));
    }
    std::sort(misses.begin(), misses.end());
    for (std::size_t i = 0; i < misses.size(); ++i) {
      slots_[places[i]] = misses[i];
    }
    ++steps_[layer];
    for (u32 const key : keys) {
      past& x = experts_[key];
      x = {count(x, steps_[layer]) + 256, steps_[layer], ++ticks_};
    }
    return answer;
  }

  /// Whether a step of so many distinct experts finds room, whatever the other layers hold.
  bool fits(std::size_t n) const { return n + (steps_.size() - 1) * floor_ <= slots_.size(); }
  u32 class_of(u32 key) const {
    u64 const whole = std::max<u64>(1, count(experts_[key], steps_[key / n_experts_]) / 256);
    return static_cast<u32>(std::min(7.0, std::floor(std::log2(static_cast<double>(whole)))));
  }
  /// Who is in a slot: layer * n_experts + expert, or `nobody`.
  u32 owner(u32 slot) const { return slots_[slot]; }

  static constexpr u32 nobody = 0xFFFF'FFFF;
  std::vector<u64> victims_of_class = std::vector<u64>(8);

 private:
  static constexpr u32 half_life = 128;
  struct past {
    u64 count;  ///< in 1/256 of a demand
    u64 step;   ///< of its layer
    u64 tick;
  };

  u64 count(past const& x, u64 now) const {
    u64 const steps = now - x.step;
    return steps / half_life >= 32 ? 0 : (x.count * factor_[steps % half_life] >> 16) >> steps / half_life;
  }

  u32 coldest(std::vector<u32> const& demanded, std::vector<u32> const& taken, u32 layer) {
    u32 best = nobody;
    u64 largest = 0;
    std::vector<u32> held(steps_.size());  // by layer, less what has been taken
    for (u32 const owner : slots_) {
      if (owner != nobody) {
        ++held[owner / n_experts_];
      }
    }
    for (u32 const s : taken) {
      if (slots_[s] != nobody) {
        --held[slots_[s] / n_experts_];
      }
    }
    for (u32 s = 0; s < slots_.size(); ++s) {
      bool const free_to_go = std::find(demanded.begin(), demanded.end(), slots_[s]) == demanded.end() &&
                              std::find(taken.begin(), taken.end(), s) == taken.end();
      if (!free_to_go || (slots_[s] / n_experts_ != layer && held[slots_[s] / n_experts_] <= floor_)) {
        continue;
      }
      u64 const age = ticks_ - experts_[slots_[s]].tick;
      u64 const weighted = age << (7 - class_of(slots_[s]));
      if (best == nobody || weighted > largest ||
          (weighted == largest && age > ticks_ - experts_[slots_[best]].tick)) {
        best = s;
        largest = weighted;
      }
    }
    ++victims_of_class[class_of(slots_[best])];
    return best;
  }

  u32 n_experts_;
  u32 floor_;
  std::vector<past> experts_;  // by layer * n_experts + expert
  std::vector<u64> steps_;     // by layer
  std::vector<u32> slots_;
  u64 factor_[half_life]{};
  u64 ticks_ = 0;
};

}  // namespace warmset::kit
