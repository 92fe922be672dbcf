// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "persist.hpp"

namespace warmset::inline v0 {

/// First record of a saved heat_profile. The records of all experts follow, layers in ascending order.
struct profile_header {
  u32 magic;
  u32 format;
  u64 geometry;   ///< geometry::fingerprint of the model
  u64 n_experts;  ///< of all layers: records that follow
  u64 checksum;   ///< of those records
};

/// What a heat_profile knows of one expert.
struct expert_heat {
  u32 counts_256;  ///< demands after decay, in 1/256 counts; saturating
  u32 age;         ///< pool ticks since the last demand; heat_profile::never

  /// Whole counts.
  constexpr u32 counts() const noexcept { return counts_256 >> 8; }
  bool operator==(expert_heat const&) const = default;
};

static_assert(std::has_unique_object_representations_v<profile_header>, "a profile has no padding");
static_assert(std::has_unique_object_representations_v<expert_heat>, "a profile has no padding");

inline constexpr u32 profile_magic = 0x50'53'4D'57;  // "WMSP"
inline constexpr u32 profile_format = 1;

/// How often each expert of a model is demanded, by (layer, expert), at one moment: what a cache has learned,
/// without its residency. It outlives the process as bytes, several may be merged, and a cache of the same
/// geometry starts warm from it or pins its hottest experts. Independent of pools, capacities and, as far as
/// scores count, of the policy; the ages are in the ticks of the pools that it was taken from, and break ties.
///
/// Not for decision paths: it allocates.
class heat_profile {
 public:
  static constexpr u32 never = u32_max;  ///< age of an expert that was never demanded

  heat_profile() = default;

  /// A profile of this model in which nothing was demanded.
  explicit heat_profile(geometry const& model) : geometry_(model.fingerprint()) {
    std::size_t n = 0;
    for (layer_geometry const& layer : model.layers()) {
      layers_.push_back({layer.layer, layer.n_experts, n});
      n += layer.n_experts;
    }
    experts_.assign(n, expert_heat{0, never});
  }

  /// geometry::fingerprint of the model.
  u64 geometry_fingerprint() const noexcept { return geometry_; }

  /// The expert's heat, or nullptr where the model has no such expert. O(log layers).
  expert_heat const* find(expert_key key) const noexcept { return at(*this, key); }
  expert_heat* find(expert_key key) noexcept { return at(*this, key); }

  /// Adds what another profile of the same model has counted: counts add, saturating; of two ages the smaller
  /// stays. Refused with `wrong_geometry`. O(experts).
  status merge(heat_profile const& other) noexcept {
    if (other.geometry_ != geometry_ || other.experts_.size() != experts_.size()) {
      return {reason::wrong_geometry};
    }
    for (std::size_t i = 0; i < experts_.size(); ++i) {
      experts_[i] = {saturating_add(experts_[i].counts_256, other.experts_[i].counts_256),
                     min_of(experts_[i].age, other.experts_[i].age)};
    }
    return done;
  }

  /// The profile as bytes: a profile_header and one expert_heat for each expert, words in the byte order of the
  /// machine. O(experts).
  std::vector<unsigned char> save() const {
    std::size_t const size = experts_.size() * sizeof(expert_heat);
    auto const* const records = reinterpret_cast<unsigned char const*>(experts_.data());
    profile_header const header{profile_magic, profile_format, geometry_, experts_.size(),
                                detail::checksum(records, size)};
    std::vector<unsigned char> bytes(sizeof header + size);
    std::memcpy(bytes.data(), &header, sizeof header);
    if (size != 0) {
      std::memcpy(bytes.data() + sizeof header, records, size);
    }
    return bytes;
  }

  /// Replaces the profile by a saved one of the same model. Refused, and the profile left as it was, with
  /// `wrong_size` (also of a truncated or extended image), `wrong_magic` (also in another byte order),
  /// `wrong_version`, `wrong_geometry` or `corrupt`. O(experts).
  status load(std::span<unsigned char const> image) {
    profile_header header{};
    if (image.size() < sizeof header) {
      return {reason::wrong_size};
    }
    std::memcpy(&header, image.data(), sizeof header);
    if (header.magic != profile_magic) {
      return {reason::wrong_magic};
    }
    if (header.format != profile_format) {
      return {reason::wrong_version};
    }
    if (header.geometry != geometry_) {
      return {reason::wrong_geometry};
    }
    std::size_t const size = experts_.size() * sizeof(expert_heat);
    if (header.n_experts != experts_.size() || image.size() - sizeof header != size) {
      return {reason::wrong_size};
    }
    if (detail::checksum(image.data() + sizeof header, size) != header.checksum) {
      return {reason::corrupt};
    }
    if (size != 0) {
      std::memcpy(experts_.data(), image.data() + sizeof header, size);
    }
    return done;
  }

  bool operator==(heat_profile const& other) const noexcept {
    return geometry_ == other.geometry_ && experts_ == other.experts_;
  }

 private:
  struct line {
    layer_id layer;
    u32 n_experts;
    std::size_t first;
  };

  template <class Self>
  static auto at(Self& self, expert_key key) noexcept -> decltype(self.experts_.data()) {
    auto const found = std::lower_bound(self.layers_.begin(), self.layers_.end(), key.layer,
                                        [](line const& l, layer_id id) { return l.layer.value < id.value; });
    if (found == self.layers_.end() || found->layer != key.layer || key.expert.value >= found->n_experts) {
      return nullptr;
    }
    return self.experts_.data() + found->first + key.expert.value;
  }

  u64 geometry_ = 0;
  std::vector<line> layers_;
  std::vector<expert_heat> experts_;  // layer after layer
};

namespace detail {

/// Calls f(key, view, row, index) for every expert of a cache.
template <class Cache, class F>
void for_each_expert(Cache& c, F&& f) {
  for (layer_geometry const& layer : c.model().layers()) {
    u32 pool = 0;
    u32 row = 0;
    if (!c.find(layer.layer, pool, row)) {
      continue;
    }
    auto const& view = c.pools()[pool].view();
    for (u32 x = 0; x < layer.n_experts; ++x) {
      f(expert_key{layer.layer, expert_id{x}}, view, row, view.index_of(row, x));
    }
  }
}

}  // namespace detail

/// What a cache has counted so far, as of the last committed steps. Needs a counting score: one that keeps finer
/// counts than whole ones says so by `heat_256`. O(experts).
template <class Cache>
heat_profile profile_of(Cache const& c) {
  using score = typename Cache::policy::score;
  static_assert(counting_score<score>, "a heat profile needs a score that counts");
  heat_profile result(c.model());
  detail::for_each_expert(c, [&](expert_key key, auto const& view, u32 row, u32 index) {
    auto const& record = view.expert(index);
    if ((record.where & expert_word::accessed) == 0) {
      return;
    }
    clocks const now = view.now(row, view.header().model_tick);
    expert_heat& heat = *result.find(key);
    if constexpr (score_detail::has_fine_heat<score>) {
      heat.counts_256 = view.parts().score.heat_256(view.score_of(index), now);
    } else {
      heat.counts_256 = static_cast<u32>(min_of(u64{view.heat(index, now)} << 8, u64{u32_max}));
    }
    heat.age = min_of(age_of(now.tick, record.last), heat_profile::never - 1);
  });
  return result;
}

/// Gives the experts of a cache that holds none the history of the profile, as if the clocks had been rebased at
/// this moment: counts are stamped with the layer's present step, last demands with the pool's tick less the age.
/// Decisions then go on as they would have in the cache that the profile was taken from after a rebase there.
/// Experts without a demand in the profile become ones that were never demanded.
///
/// Refused, and the cache left as it was, with `wrong_geometry`, or with `resident` where a slot holds or awaits
/// an expert. Needs a score with a `seed` hook. O(experts).
template <class Cache>
status seed(Cache& c, heat_profile const& profile) {
  using score = typename Cache::policy::score;
  static_assert(score_detail::has_seed_hook<score>, "the score cannot be seeded: it has no seed(state, counts, clocks)");
  if (profile.geometry_fingerprint() != c.model().fingerprint()) {
    return {reason::wrong_geometry};
  }
  for (auto const& pool : c.pools()) {
    block_header const& h = pool.view().header();
    if (h.reserved + h.resident != 0) {
      return {reason::resident};
    }
  }
  detail::for_each_expert(c, [&](expert_key key, auto const& view, u32 row, u32 index) {
    expert_heat const heat = *profile.find(key);
    auto& record = view.expert(index);
    auto& state = view.score_of(index);
    state = {};
    record.last = 0;
    record.where &= ~expert_word::accessed;
    if (heat.age != heat_profile::never) {
      clocks const now = view.now(row, view.header().model_tick);
      record.where |= expert_word::accessed;
      record.last = now.tick - min_of(heat.age, u32_max / 2);  // as old as a rebase leaves it
      view.parts().score.seed(state, heat.counts_256, now);
    }
  });
  for (auto& pool : c.pools()) {
    ++pool.view().header().version;
  }
  return done;
}

/// Pins the `per_layer` hottest experts of every layer: most counts, then smallest age, then lowest index. An
/// expert that was never demanded is not pinned; one that is pinned already counts. Moves no bytes: a pinned
/// expert is loaded by its first demand and then stays.
///
/// Refused as a whole, and nothing pinned, with `wrong_geometry`, or with `limited` where a pool would keep
/// fewer than k slots that its steps can rely on (see table_reader::usable): asking for less is the caller's.
/// O(experts log experts).
template <class Cache>
status pin_hottest(Cache& c, heat_profile const& profile, u32 per_layer) {
  if (profile.geometry_fingerprint() != c.model().fingerprint()) {
    return {reason::wrong_geometry};
  }
  std::vector<expert_key> chosen;
  std::vector<u32> more(c.pools().size());   // pins, by pool
  std::vector<u32> max_k(c.pools().size());
  for (layer_geometry const& layer : c.model().layers()) {
    u32 pool = 0;
    u32 row = 0;
    if (!c.find(layer.layer, pool, row)) {
      continue;
    }
    std::vector<expert_key> hottest;
    for (u32 x = 0; x < layer.n_experts; ++x) {
      expert_key const key{layer.layer, expert_id{x}};
      if (profile.find(key)->age != heat_profile::never) {
        hottest.push_back(key);
      }
    }
    std::size_t const n = min_of(hottest.size(), std::size_t{per_layer});
    std::sort(hottest.begin(), hottest.end(), [&](expert_key a, expert_key b) {
      expert_heat const& x = *profile.find(a);
      expert_heat const& y = *profile.find(b);
      return x.counts_256 != y.counts_256 ? x.counts_256 > y.counts_256
             : x.age != y.age             ? x.age < y.age
                                          : a < b;
    });
    auto const& view = c.pools()[pool].view();
    for (std::size_t i = 0; i < n; ++i) {
      u32 const index = view.index_of(row, hottest[i].expert.value);
      more[pool] += (view.expert(index).where & expert_word::pinned) == 0 ? 1 : 0;
      chosen.push_back(hottest[i]);
    }
    max_k[pool] = max_of(max_k[pool], layer.k);
  }
  for (u32 pool = 0; pool < more.size(); ++pool) {
    if (more[pool] != 0 && u64{c.pools()[pool].view().usable()} < u64{more[pool]} + max_k[pool]) {
      return {reason::limited};
    }
  }
  for (expert_key const key : chosen) {
    if (status const pinned = c.pin(key); !pinned) {
      return pinned;  // not reached: usable() is never more than what pin asks for
    }
  }
  return done;
}

}  // namespace warmset::inline v0
