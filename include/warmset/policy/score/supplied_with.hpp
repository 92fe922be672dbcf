// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../../core/spelling.hpp"
#include "concept.hpp"

namespace warmset::inline v0::score {

namespace supplied_detail {

WARMSET_HD constexpr i32 saturated(i64 x) noexcept {
  constexpr i64 most = 0x7FFF'FFFF;
  return static_cast<i32>(min_of(max_of(x, -most), most));
}

}  // namespace supplied_detail

/// A score, and the engine's own keys added to it: see supplied. The sum saturates at 32 bits. Unit: the base
/// score's, which the engine's keys must be in. A step without keys is the base score alone.
template <score_policy Base>
class supplied_with {
  static_assert(!std::is_empty_v<typename Base::state>, "score::supplied_with needs a score with a state of its own");

 public:
  struct state {
    typename Base::state base;
    i32 key;  ///< the sum, at the layer's last step
  };
  static constexpr joined_spelling spelled{"supplied_with", Base::name, '_'};
  static constexpr char const* name = spelled.text;
  static constexpr u32 columns = 16;
  static constexpr bool uses_previous_layer = false;
  static constexpr bool uses_supplied = true;

  explicit constexpr supplied_with(tuning const& numbers) noexcept
      : base_(detail::make_part<Base>(numbers)) {}

  WARMSET_HD constexpr u64 value(state const& x, expert_facts, clocks) const noexcept {
    return x.key > 0 ? static_cast<u64>(x.key) : 0;
  }
  WARMSET_HD constexpr void on_demand(state& x, clocks c) const noexcept { base_.on_demand(x.base, c); }
  WARMSET_HD constexpr void on_install(state& x, clocks c) const noexcept
    requires score_detail::has_install_hook<Base>
  {
    base_.on_install(x.base, c);
  }
  WARMSET_HD constexpr void on_evict(state& x, clocks c) const noexcept
    requires score_detail::has_evict_hook<Base>
  {
    base_.on_evict(x.base, c);
  }
  WARMSET_HD constexpr void rebase(state& x, clocks c) const noexcept
    requires score_detail::has_rebase_hook<Base>
  {
    base_.rebase(x.base, c);
  }
  WARMSET_HD constexpr i32 key_of(state const& x) const noexcept { return x.key; }
  WARMSET_HD constexpr i32 aged(i32 key) const noexcept { return key; }
  WARMSET_HD constexpr u64 context_bytes(u32) const noexcept { return 0; }

  template <class Experts>
  WARMSET_HD constexpr u32 list_contexts(unsigned char const*, Experts const&, step_context const&,
                                         u32*) const noexcept {
    return 0;
  }
  /// The base score is read as it stood before the step.
  template <class Experts>
  WARMSET_HD constexpr void keys(unsigned char const*, state const* states, Experts const& experts,
                                 step_context const& step, u32 first, u32 end, i32* out) const noexcept {
    clocks const now = experts.now();
    for (u32 x = first; x < end; ++x) {
      u64 const own = min_of(base_.value(states[x].base, experts.facts(x), now), u64{0x7FFF'FFFF});
      i64 const added = step.supplied != nullptr ? step.supplied[x] : 0;
      out[x] = supplied_detail::saturated(static_cast<i64>(own) + added);
    }
  }
  template <class Experts>
  WARMSET_HD constexpr void learn(unsigned char*, state* states, Experts const&, step_context const&,
                                  i32 const* keys, u32 first, u32 end) const noexcept {
    for (u32 x = first; x < end; ++x) {
      states[x].key = keys[x];
    }
  }
  WARMSET_HD constexpr void end_step(unsigned char*, step_context const&) const noexcept {}

 private:
  Base base_;
};

/// Over a contextual score, which learns from its own part of the sum.
template <contextual_score Base>
class supplied_with<Base> : public Base {
 public:
  using state = typename Base::state;
  static constexpr joined_spelling spelled{"supplied_with", Base::name, '_'};
  static constexpr char const* name = spelled.text;
  static constexpr bool uses_supplied = true;

  explicit constexpr supplied_with(tuning const& numbers) noexcept
      : Base(detail::make_part<Base>(numbers)) {}

  template <u32 N = Base::columns, class Experts>
    requires(N == Base::columns || score_detail::takes_blocks<Base, N>)
  WARMSET_HD constexpr void keys(unsigned char const* context, state const* states, Experts const& experts,
                                 step_context const& step, u32 first, u32 end, i32* out) const noexcept {
    score_detail::keys_of<N>(static_cast<Base const&>(*this), context, states, experts, step, first, end, out);
    for (u32 x = first; step.supplied != nullptr && x < end; ++x) {
      out[x] = supplied_detail::saturated(i64{out[x]} + step.supplied[x]);
    }
  }
  template <u32 N = Base::columns, class Experts>
    requires(N == Base::columns || score_detail::takes_blocks<Base, N>)
  WARMSET_HD constexpr void learn(unsigned char* context, state* states, Experts const& experts,
                                  step_context const& step, i32 const* keys, u32 first, u32 end) const noexcept {
    score_detail::learn_of<N>(static_cast<Base const&>(*this), context, states, experts, step,
                              own_keys{keys, step.supplied}, first, end);
    for (u32 x = first; x < end; ++x) {
      states[x].key = keys[x];
    }
  }

 private:
  /// The base score's part of the sums; where a sum saturated, what is left of it.
  struct own_keys {
    i32 const* sums;
    i32 const* supplied;
    WARMSET_HD constexpr i32 operator[](u32 x) const noexcept {
      return supplied_detail::saturated(i64{sums[x]} - (supplied != nullptr ? supplied[x] : 0));
    }
  };
};

}  // namespace warmset::inline v0::score
