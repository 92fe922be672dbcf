// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

#include "pass.hpp"

namespace warmset::inline v0 {

/// Whether speculation may be issued now: `may(group)`, with the loads that it may start. `speculates` says
/// in the type that it never may. Refusals have reasons for which a hint is dropped, such as `governed`,
/// `in_prefill`, `worker_down`.
template <class P>
concept speculation_permit = requires(P const& p, u32 group) {
  { P::speculates } -> std::convertible_to<bool>;
  { p.may(group) }
  noexcept->std::same_as<gate::pass>;
};

namespace gate {

/// Speculation whenever the holder may plan.
struct free_permit {
  static constexpr bool speculates = true;
  constexpr pass may(u32) const noexcept { return {}; }
};

/// What somebody who judges, such as a governor, has said last. Belongs to the cache's owner thread.
class told_permit {
 public:
  static constexpr bool speculates = true;

  /// Until told otherwise: at most so many loads per batch of hints.
  constexpr void allow(u32 max_loads) noexcept { now_ = {reason::none, max_loads}; }
  /// Until told otherwise: nothing.
  constexpr void deny(reason why) noexcept { now_ = {why, 0}; }
  constexpr pass may(u32) const noexcept { return now_; }

 private:
  pass now_{};
};

/// A holder that cannot speculate.
struct no_permit {
  static constexpr bool speculates = false;
  constexpr pass may(u32) const noexcept { return {reason::limited, 0}; }
};

}  // namespace gate

static_assert(speculation_permit<gate::free_permit>, "free_permit must satisfy speculation_permit");
static_assert(speculation_permit<gate::told_permit>, "told_permit must satisfy speculation_permit");
static_assert(speculation_permit<gate::no_permit>, "no_permit must satisfy speculation_permit");

}  // namespace warmset::inline v0
