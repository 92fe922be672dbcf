// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../policy/guard/all_of.hpp"
#include "../policy/guard/challenger_must_win.hpp"
#include "../policy/guard/none.hpp"
#include "../policy/guard/victim_must_be_hotter.hpp"
#include "../policy/guard/warm_then_challenger_must_win.hpp"
#include "../policy/score/class_lru.hpp"
#include "../policy/score/epoch_count.hpp"
#include "../policy/score/fifo.hpp"
#include "../policy/score/lfru.hpp"
#include "../policy/score/lfu.hpp"
#include "../policy/score/lru.hpp"
#include "../policy/select/first_permitted.hpp"
#include "../policy/select/lru_list.hpp"
#include "../predict/supplied.hpp"
#include "bundle.hpp"

namespace warmset::inline v0 {

/// The named bundles: tests, benchmarks and the replay tool iterate over this table. One more policy is one
/// file and one line here. A bundle's name is the type name of what makes it different.
namespace bundles {

/// default_policy with another score and selector.
template <class Score, class Selector = select::coldest>
struct of : default_policy {
  using score = Score;
  using selector = Selector;
  static constexpr char const* name =
      std::same_as<Selector, select::coldest> ? Score::name : Selector::name;
};

/// A list of bundles.
template <class... Bundles>
struct list {};

using all = list<of<score::lru>,
                 of<score::lru, select::lru_list>,
                 of<score::fifo>,
                 of<score::lfu>,
                 of<score::lfu_forget>,
                 of<score::lfru>,
                 of<score::lfru_model>,
                 of<score::decayed_count>,
                 of<score::epoch_count>,
                 of<score::class_lru>>;

/// Calls f.operator()<Bundle>() for every bundle of the list, in its order.
template <class... Bundles, class F>
constexpr void for_each(list<Bundles...>, F&& f) {
  (f.template operator()<Bundles>(), ...);
}

/// The same bundle with hints, under another guard.
template <class Bundle, class Guard>
struct guarded : Bundle {
  using guard = Guard;
  using predictor = predict::supplied;
  using decay = no_decay;
};

/// The same bundle over one pool of all layers.
template <class Bundle>
struct shared : Bundle {
  using pool = pooling::shared;
};

}  // namespace bundles
}  // namespace warmset::inline v0
