// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

#include "../core/array_view.hpp"
#include "../core/intent.hpp"

namespace warmset::inline v0 {

class geometry;

/// What a bundle says of its hints: `speculates` tells whether any can come. A bundle needs to know no more; the
/// predictor itself, where it is one of this library's, lives beside the cache.
template <class P>
concept predictor_kind = requires {
  { P::speculates } -> std::convertible_to<bool>;
  { P::name } -> std::convertible_to<char const*>;
};

/// What a predictor may look at: one step of one layer that has just been routed. The views live during the call.
struct routing_snapshot {
  static constexpr u32 no_token = u32_max;

  layer_id layer{};
  u32 row = 0;  ///< index of the layer in geometry::layers()
  phase in_phase = phase::decode;
  u32 sequence = 0;                    ///< whose turn it is, where sequences take turns
  u32 token = no_token;                ///< input token, or a hash of the micro-batch's tokens
  array_view<u32 const> experts;       ///< distinct, in order of last occurrence
  array_view<float const> activation;  ///< hidden state of the token at this layer; may be empty
  array_view<float const>
      logits;  ///< the engine's side branch: router logits of the layer ahead; may be empty
  array_view<routed_id const>
      lookahead;  ///< the same as ids, surest first, padding allowed; may be empty
};

namespace predict_detail {

template <class P>
concept says_its_horizon = requires {
  { P::horizon } -> std::convertible_to<u32>;
};

template <class P>
concept opens_for_a_model = requires(P& p, geometry const& model) {
  { p.open(model) } -> std::same_as<void>;
};

template <class P>
concept learns_without_throwing = requires(P& p, routing_snapshot const& routed) {
  { p.learn(routed) }
  noexcept->std::same_as<void>;
};

template <class P>
concept predicts_without_change = requires(P const& p, routing_snapshot const& routed,
                                           array_view<hint> out) {
  { p.predict(routed, u32{1}, out) }
  noexcept->std::same_as<u32>;
};

}  // namespace predict_detail

/// What makes hints out of routed steps. It sees snapshots and never a table; what it says changes cost, never bytes.
///
/// | member | meaning |
/// |---|---|
/// | `speculates`, `name` | as a bundle needs them (predictor_kind) |
/// | `horizon` | how many layers ahead its hints are; past the last layer the layers of the next token begin |
/// | `open(geometry)` | allocates all that it will ever need and forgets what it knew; throws config_error or bad_alloc |
/// | `learn(snapshot) noexcept` | takes in a routed step; called for every step, in order. Allocates nothing |
/// | `predict(snapshot, width, out) const noexcept -> u32` | writes at most min(width, out.size()) hints and returns how many. Changes and allocates nothing |
///
/// Hints of one call: distinct experts that the layer they name has, never padding; surest first, `rank` counts from 0,
/// `confidence` does not rise. A predictor knows the routed steps alone: neither its own hints nor what became of them.
/// `predict` after `learn` of the same snapshot is the usual order, and not required. One thread.
template <class P>
concept predictor = predictor_kind<P> && predict_detail::says_its_horizon<P> &&
    predict_detail::opens_for_a_model<P> && predict_detail::learns_without_throwing<P> &&
    predict_detail::predicts_without_change<P>;

/// A predictor whose refusal is one sentence: what names a predictor as a template parameter takes one.
template <class P>
consteval bool check_predictor() {
  static_assert(predictor_kind<P>, "the predictor lacks speculates or a name");
  static_assert(predict_detail::says_its_horizon<P>, "the predictor lacks a horizon, in layers");
  static_assert(predict_detail::opens_for_a_model<P>,
                "the predictor lacks open(geometry) that returns nothing");
  static_assert(predict_detail::learns_without_throwing<P>,
                "the predictor lacks learn(routing_snapshot) that is noexcept and returns nothing");
  static_assert(predict_detail::predicts_without_change<P>,
                "the predictor lacks predict(routing_snapshot, width, hints) that is const "
                "noexcept and returns a 32-bit count");
  return true;
}

namespace detail {
template <class P>
struct predictor_check {
  static_assert(check_predictor<P>());
  static constexpr bool passed = predictor<P>;
};
}  // namespace detail

template <class P>
concept checked_predictor = detail::predictor_check<P>::passed;

}  // namespace warmset::inline v0
