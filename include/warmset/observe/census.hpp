// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/array_view.hpp"
#include "../core/error.hpp"
#include "../core/fixed_array.hpp"
#include "../core/result.hpp"
#include "../gate/certificate.hpp"

namespace warmset::inline v0 {

/// What a graph has of a routing that somebody reads.
enum class routed_value : u8 { ids, weights };

/// A node of the graph that computes with the routed ids or weights. It must be known to take what the device
/// path hands it: a slot per id, decided within the graph.
struct routed_consumer {
  u32 group;
  routed_value reads;
  bool proven;  ///< known to allow the device path
};

/// A node that looks and changes nothing that is computed: statistics, a trace, a debugger. It has no say: the
/// type has nothing that a verdict could read.
struct routed_observer {
  u32 group;
  routed_value reads;
};

/// What is known of one group of layers when it is judged.
struct group_census {
  bool cached;       ///< its layers are in the cache
  bool routed_here;  ///< the ids are produced on the device that holds the slots
  u32 consumers;
  u32 unproven;  ///< of these, not known to allow the device path
  u32 observers;
  bool operator==(group_census const&) const = default;
};

/// Who serves a group's steps.
enum class serving_path : u8 { stock, host, device };

/// The one predicate: why a group's steps cannot be planned on the device; `none` = they can. What a
/// capability query answers and which path is taken both come from it, so they cannot differ.
///
/// `uncovered`: the group is not in the cache. `route`: its ids are produced on another device; the host
/// holder serves it. `unproven`: a consumer is not known to allow it, or nobody has named any consumer, which
/// proves nothing. Observers are not looked at.
constexpr reason device_path_refusal(group_census const& g) noexcept {
  return !g.cached                             ? reason::uncovered
         : !g.routed_here                      ? reason::route
         : g.unproven != 0 || g.consumers == 0 ? reason::unproven
                                               : reason::none;
}

/// The capability query: whether this group's graph may be left without a synchronisation.
constexpr bool allows_device_path(group_census const& g) noexcept {
  return device_path_refusal(g) == reason::none;
}

/// The execution path: an uncached group goes the engine's stock way.
constexpr serving_path path_of(group_census const& g) noexcept {
  reason const why = device_path_refusal(g);
  return why == reason::none        ? serving_path::device
         : why == reason::uncovered ? serving_path::stock
                                    : serving_path::host;
}

/// The census of a group as a certificate takes it, with the reason of its memory. Where that is `none`, the
/// certificate's holder is the one of path_of: device, host, or nobody for the stock path.
constexpr gate::group_evidence evidence_of(group_census const& g,
                                           reason memory = reason::none) noexcept {
  reason const why = device_path_refusal(g);
  return {why == reason::uncovered && memory == reason::none ? why : memory,
          why == reason::route ? why : reason::none, why == reason::unproven ? why : reason::none};
}

/// The readers of a graph's routed ids and router weights, and what follows for each group of layers. A
/// description: it knows no engine's nodes. Allocates in its constructor and in `evidence` only.
class census {
 public:
  /// How the groups were judged.
  struct counts {
    u32 groups;
    u32 device;              ///< groups that the device path serves
    u32 refused[n_reasons];  ///< the others, by reason
    u32 consumers;
    u32 unproven;  ///< consumers
    u32 observers;
  };

  /// `n_groups` groups that are cached and routed on their device, with no reader yet. Throws config_error for
  /// 0 groups, and bad_alloc.
  explicit census(u32 n_groups) : groups_(n_groups) {
    if (n_groups == 0) {
      throw config_error("a census of 0 groups judges nothing");
    }
    for (group_census& g : groups_) {
      g = {true, true, 0, 0, 0};
    }
  }

  // Each is refused with `out_of_range` where there is no such group; nothing is then noted.

  status add(routed_consumer const& c) noexcept {
    if (c.group >= groups_.size()) {
      return {reason::out_of_range};
    }
    ++groups_[c.group].consumers;
    groups_[c.group].unproven += c.proven ? 0 : 1;
    return done;
  }
  status add(routed_observer const& o) noexcept {
    if (o.group >= groups_.size()) {
      return {reason::out_of_range};
    }
    ++groups_[o.group].observers;
    return done;
  }
  /// The group's ids are produced on another device than its slots.
  status routed_elsewhere(u32 group) noexcept {
    if (group >= groups_.size()) {
      return {reason::out_of_range};
    }
    groups_[group].routed_here = false;
    return done;
  }
  /// The group's layers are not in the cache.
  status uncached(u32 group) noexcept {
    if (group >= groups_.size()) {
      return {reason::out_of_range};
    }
    groups_[group].cached = false;
    return done;
  }

  array_view<group_census const> groups() const noexcept { return groups_; }
  /// Of every group, for a certificate over groups that all have memory. Allocates.
  fixed_array<gate::group_evidence> evidence() const {
    fixed_array<gate::group_evidence> all(groups_.size());
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      all[g] = evidence_of(groups_[g]);
    }
    return all;
  }
  /// `none` = the device path may serve the group.
  status verdict(u32 group) const noexcept {
    return group < groups_.size() ? status{device_path_refusal(groups_[group])}
                                  : status{reason::out_of_range};
  }

  counts summary() const noexcept {
    counts all{};
    for (group_census const& g : groups_) {
      reason const why = device_path_refusal(g);
      ++all.groups;
      ++(why == reason::none ? all.device : all.refused[static_cast<u32>(why)]);
      all.consumers += g.consumers;
      all.unproven += g.unproven;
      all.observers += g.observers;
    }
    return all;
  }

 private:
  fixed_array<group_census> groups_;
};

}  // namespace warmset::inline v0
