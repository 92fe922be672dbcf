// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/array_view.hpp"
#include "authority.hpp"
#include "fallback.hpp"

namespace warmset::inline v0::gate {

/// What is known of a group before anybody decides who plans for it. `none` everywhere = the device may: who has
/// taken a census has `evidence_of` (observe/census.hpp) say it.
struct group_evidence {
  reason memory = reason::none;  ///< of its reservation: `over_budget`, `no_memory`, `uncovered`, …
  reason route = reason::none;  ///< `route`: the routed ids are made on another device
  reason census = reason::
      none;  ///< `unproven`: a consumer of the routed ids or weights forbids the device path
};

/// Who will plan for a group, and why not the device.
struct group_verdict {
  holder who;  ///< nobody where it has no memory
  reason why;  ///< none = the device
  friend constexpr bool operator==(group_verdict, group_verdict) = default;
};

/// How much the caller insists on plans being made on the device.
enum class device_authority : u8 {
  preferred,  ///< groups that cannot have it are the host's
  required,   ///< one group that cannot have it is an error, once, here
};

/// Memory first, then the route, then the census. What is not in the cache is nobody's, whoever says so.
constexpr group_verdict verdict_of(group_evidence e) noexcept {
  if (e.memory != reason::none) {
    return {holder::nobody, e.memory};
  }
  if (e.route == reason::uncovered || e.census == reason::uncovered) {
    return {holder::nobody, reason::uncovered};
  }
  reason const why = e.route != reason::none ? e.route : e.census;
  return {why == reason::none ? holder::device : holder::host, why};
}

/// For each group, whether the device may have the authority or why not: computed once, before the first
/// step. Allocates in the constructor only.
class certificate {
 public:
  certificate(array_view<group_evidence const> evidence, device_authority wanted)
      : verdicts_(evidence.size()), wanted_(wanted) {
    for (std::size_t i = 0; i < evidence.size(); ++i) {
      verdicts_[i] = verdict_of(evidence[i]);
    }
  }

  u32 size() const noexcept { return static_cast<u32>(verdicts_.size()); }
  group_verdict of(u32 group) const noexcept { return verdicts_[group]; }

  /// ready: the device may have every group. partial: some are the host's or nobody's. refused: the device
  /// was required, and `group` is the first that it cannot have (`uncovered` where there is no group at
  /// all); what refuses here refuses once, and no step repeats it.
  result outcome() const noexcept {
    u32 ok = 0;
    for (u32 i = 0; i < size(); ++i) {
      group_verdict const v = verdicts_[i];
      if (v.why != reason::none && wanted_ == device_authority::required) {
        return refused{v.why, i, 0, false};
      }
      ok += v.why == reason::none ? 1 : 0;
    }
    if (size() == 0 && wanted_ == device_authority::required) {
      return refused{reason::uncovered, 0, 0, false};
    }
    return result::of(ok, size() - ok);
  }

  /// Gives each group of `groups` from first_group on to the holder of its verdict. A refused certificate
  /// gives nothing to anybody; nor does one that requires the device where a group cannot be published: what was
  /// given before it is withdrawn, which bumps the epoch. What the host holds for the device is a fallback, by
  /// reason.
  ///
  /// Where the authority, or who counts, has fewer groups than that, nothing is given: refused as `uncovered`.
  ///
  /// @return outcome(), where groups that could not be published count as failed. Where the device is required,
  ///         refused with what the first of them said; `group` is counted from first_group, as in outcome()
  result publish(authority& groups, references& memory, u32 first_group = 0,
                 fallback_counts* fallbacks = nullptr) const noexcept {
    result const decided = outcome();
    bool const is_refused =
        decided.match([](not_published) { return true; }, [](refused) { return true; },
                      [](partial) { return false; }, [](ready) { return false; });
    if (is_refused) {
      return decided;
    }
    u32 const there = fallbacks != nullptr ? min_of(groups.size(), fallbacks->size()) : groups.size();
    if (u64{first_group} + size() > there) {
      return refused{reason::uncovered, saturating_sub(there, first_group), 0, false};
    }
    u32 ok = 0;
    for (u32 i = 0; i < size(); ++i) {
      group_verdict const v = verdicts_[i];
      status const out = v.who == holder::nobody ? status{v.why}
                                                 : groups.publish(first_group + i, v.who, memory);
      bool const is_out{out};
      if (!is_out && wanted_ == device_authority::required) {
        u32 const epoch = groups.look(first_group + i).epoch;
        for (u32 given = i; given-- != 0;) {
          (void)groups.withdraw(first_group + given);
        }
        return refused{out.why, i, epoch, is_retryable(out.why)};
      }
      ok += is_out && v.why == reason::none ? 1 : 0;
      if (is_out && fallbacks != nullptr) {
        fallbacks->stand_in(first_group + i, v.why);
      }
    }
    return result::of(ok, size() - ok);
  }

 private:
  fixed_array<group_verdict> verdicts_;
  device_authority wanted_;
};

}  // namespace warmset::inline v0::gate
