// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../policy/admit/colder_than_victim.hpp"
#include "../policy/admit/fetch_share.hpp"
#include "../policy/admit/frequency_gate.hpp"
#include "../policy/admit/insert_budget.hpp"
#include "../policy/admit/second_touch.hpp"
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
#include "../policy/score/successor.hpp"
#include "../policy/score/supplied.hpp"
#include "../policy/score/supplied_with.hpp"
#include "../policy/select/clock.hpp"
#include "../policy/select/fifo_list.hpp"
#include "../policy/select/first_permitted.hpp"
#include "../policy/select/hot_protected.hpp"
#include "../policy/select/lru_list.hpp"
#include "../policy/select/s3_fifo.hpp"
#include "../policy/select/sieve.hpp"
#include "../policy/select/slru.hpp"
#include "../predict/supplied.hpp"
#include "bundle.hpp"

namespace warmset::inline v0 {

/// The named bundles: tests, benchmarks and the replay tool iterate over this table. One more policy is one
/// file and one line here. A bundle's name is the type name of what makes it different. Selectors with an order
/// of their own stand over `lru`: it has no state, and a guard that asks compares recency.
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
                 of<score::fifo, select::fifo_list>,
                 of<score::lfu>,
                 of<score::lfu_forget>,
                 of<score::lfru>,
                 of<score::lfru_model>,
                 of<score::decayed_count>,
                 of<score::epoch_count>,
                 of<score::class_lru>,
                 of<score::lru, select::clock<1>>,
                 of<score::lru, select::sieve>,
                 of<score::lru, select::s3_fifo>,
                 of<score::lru, select::slru<>>,
                 of<score::lru, select::hot_protected<>>,
                 of<score::successor<>>,
                 of<score::successor<1>>,
                 of<score::successor<3>>,
                 of<score::successor<3, i16, 1024>>,
                 of<score::successor<2, i8>>,
                 of<score::supplied>,
                 of<score::supplied_with<score::decayed_count>>>;

/// The same bundle behind an admission; its name is `bundle+admission`.
template <class Bundle, class Admission>
struct admitted : Bundle {
  using admission = Admission;
  static constexpr joined_spelling spelled{Bundle::name, Admission::name};
  static constexpr char const* name = spelled.text;
};

/// Each admission over `lru` and over `decayed_count`, where the score has what it asks for, and the bypass of
/// `successor`.
using admitting = list<admitted<of<score::lru>, admit::second_touch<>>,
                       admitted<of<score::lru>, admit::insert_budget>,
                       admitted<of<score::lru>, admit::fetch_share>,
                       admitted<of<score::lru>, admit::colder_than_victim<>>,
                       admitted<of<score::decayed_count>, admit::second_touch<>>,
                       admitted<of<score::decayed_count>, admit::insert_budget>,
                       admitted<of<score::decayed_count>, admit::fetch_share>,
                       admitted<of<score::decayed_count>, admit::frequency_gate>,
                       admitted<of<score::decayed_count>, admit::colder_than_victim<>>,
                       admitted<of<score::successor<>>, admit::colder_than_victim<>>>;

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
