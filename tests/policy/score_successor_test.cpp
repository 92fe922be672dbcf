// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include <kit/under_test.hpp>
#include <warmset/cache.hpp>
#include <warmset/table/bundles.hpp>
#include <warmset/table/persist.hpp>

#include "successor_steps.hpp"
#include "support/rounds.hpp"

// The library's successor score against its reference: keys of every expert at every step, and what is learned.

using namespace warmset;
using namespace successor_test;
using kit::id_list;
using kit::successor_form;
using kit::successor_reference;

static_assert(std::string_view(score::successor<>::name) == "successor");
static_assert(std::string_view(score::successor<1>::name) == "successor_1");
static_assert(std::string_view(score::successor<3, i8>::name) == "successor_3_int8");
static_assert(std::string_view(score::successor<2, i16, 64>::name) == "successor_token");
static_assert(std::string_view(score::successor<2, i8, 64>::name) == "successor_int8_token");

namespace {

template <class Score>
inline constexpr successor_form form_of{};
template <u32 Order, class Cell, u32 TokenRows>
inline constexpr successor_form form_of<score::successor<Order, Cell, TokenRows>>{Order, 8 * sizeof(Cell), TokenRows};

template <class Score>
struct of_2048_experts : bundles::of<Score> {
  static constexpr u32 max_experts = 2048;
};

/// One layer whose loads arrive at once, and the reference beside it.
template <class Score>
class layer_pair {
 public:
  using bundle = bundles::of<Score>;
  static constexpr u32 layer = 7;

  layer_pair(u32 n_experts, u32 capacity, u32 sequences)
      : table_({{layer_id{layer}, n_experts, 1, {1}}}, {capacity, capacity}, {.sequences = sequences}),
        arrivals_(capacity), n_(n_experts), sequences_(sequences), reference_(n_experts, layer, form_of<Score>) {}

  /// Plans the step and says whether it fits; the block must stay as it is.
  bool plan(id_list const& ids, kit::step_said const& said) {
    std::vector<unsigned char> const before = bytes();
    warmset::plan_demand<bundle>(one_lane{}, table_.view(),
                                 {0, phase::decode, table_.view().header().model_tick, said.sequence, said.token,
                                  said.previous.data(), static_cast<u32>(said.previous.size())},
                                 ids.data(), static_cast<u32>(ids.size()), *work_, *plan_);
    REQUIRE(bytes() == before);
    return plan_->kind == plan_kind::step;
  }
  /// Commits what was planned; the hits.
  u32 commit() {
    outcome out{};
    REQUIRE(warmset::commit<bundle>(one_lane{}, table_.view(), *plan_, out));
    for (u32 j = 0; j < plan_->n_loads; ++j) {
      u32 const slot = plan_->loads[j].slot;
      arrivals_[slot] = arrival::word(table_.view().generation(slot), transfer::arrived);
    }
    warmset::settle<bundle>(one_lane{}, table_.view(), arrivals_.data(), out);
    return out[access_kind::hit];
  }

  /// A step of both. Every key is the reference's, before and after, and so is what the layer remembers.
  void step(id_list const& ids, kit::step_said const& said) {
    REQUIRE(plan(ids, said));
    id_list distinct;
    for (u32 const x : ids) {
      if (x < n_ && !kit::contains(distinct, x)) {
        distinct.push_back(x);
      }
    }
    id_list before;
    std::copy_if(said.previous.begin(), said.previous.end(), std::back_inserter(before), [&](u32 x) { return x < n_; });
    std::vector<i32> const& keys = reference_.step(distinct, before, said.sequence % sequences_, said.token);
    REQUIRE(std::equal(keys.begin(), keys.end(), plan_->key));
    (void)commit();
    table_reader<bundle> const t = table_.view();
    for (u32 x = 0; x < n_; ++x) {
      REQUIRE(t.parts().score.key_of(t.score_of(x)) == keys[x]);
      REQUIRE(t.score_of(x).count == reference_.count(x));
      REQUIRE(t.score_of(x).predicted == reference_.predicted(x));
      REQUIRE(t.value(x, t.now(0, 0)) == static_cast<u64>(std::max(keys[x], 0)));
    }
    REQUIRE(t.parts().score.steps(t.context(0)) == reference_.steps());
  }

  void end_sequence(u32 sequence) {
    table_.view().parts().score.end_sequence(table_.view().context(0), n_, sequence);
    reference_.end_sequence(sequence);
  }

  std::vector<unsigned char> bytes() const {
    auto const* const first = static_cast<unsigned char const*>(table_.block());
    return {first, first + table_.block_bytes()};
  }
  table<bundle>& tested() { return table_; }
  plan_of<bundle> const& planned() const { return *plan_; }
  successor_reference const& reference() const { return reference_; }
  /// The same reference beside another table, which was loaded from this one's image.
  void continue_from(layer_pair const& other) { reference_ = other.reference_; }

 private:
  table<bundle> table_;
  std::vector<u32> arrivals_;
  u32 n_;
  u32 sequences_;
  successor_reference reference_;
  std::unique_ptr<plan_of<bundle>> plan_ = std::make_unique<plan_of<bundle>>();
  std::unique_ptr<workspace_of<bundle>> work_ = std::make_unique<workspace_of<bundle>>();
};

/// Random steps of 1 to `most` experts, skewed to low ids so that sets recur; with what is said of them.
struct random_steps {
  kit::integers random;
  u32 n_experts;

  id_list ids(u32 n) {
    id_list set;
    while (set.size() < n) {
      u32 const x = random.below(1 + random.below(n_experts));
      if (!kit::contains(set, x)) {
        set.push_back(x);
      }
    }
    return set;
  }
  kit::step_said said() {
    kit::step_said s;
    s.sequence = random.below(7);
    s.token = random.one_in(4) ? step_context::no_token : static_cast<u32>(random.next());
    s.token = random.one_in(2) ? random.below(9) : s.token;
    // the layer before has more experts, or was not seen
    s.previous = random.one_in(5) ? id_list{} : random_set(random, n_experts + 6, 1 + random.below(5));
    return s;
  }
};

template <class Score>
void check_stream(u32 n_experts, u32 capacity, u32 sequences, u32 n_steps, u64 seed) {
  INFO(Score::name << ", " << n_experts << " experts, " << capacity << " slots, " << sequences << " sequences");
  layer_pair<Score> both(n_experts, capacity, sequences);
  random_steps steps{kit::integers(seed), n_experts};
  kit::integers& random = steps.random;
  u32 overflows = 0;
  u32 dropped = 0;
  for (u32 t = 0; t < n_steps; ++t) {
    u32 const n = random.one_in(6) ? 1 + random.below(capacity) : 1 + random.below(std::min(capacity, 4u));
    id_list ids = steps.ids(n);
    kit::step_said const said = steps.said();
    if (random.one_in(5)) {  // another step is planned and dropped, and leaves no trace
      (void)both.plan(steps.ids(1 + random.below(capacity)), steps.said());
      ++dropped;
    }
    if (capacity < n_experts && random.one_in(8)) {  // nothing is learned from it, and the next step knows nothing of it
      id_list const wide = steps.ids(capacity + 1 + random.below(n_experts - capacity));
      REQUIRE_FALSE(both.plan(wide, steps.said()));
      outcome out{};
      REQUIRE_FALSE(warmset::commit<typename layer_pair<Score>::bundle>(one_lane{}, both.tested().view(),
                                                                        both.planned(), out));
      ++overflows;
    }
    if (random.one_in(4)) {  // padding, duplicates and ids of no expert
      ids.push_back(u32_max);
      ids.push_back(ids[0]);
      ids.push_back(n_experts);
    }
    both.step(ids, said);
    if (random.one_in(40)) {
      both.end_sequence(random.below(sequences));
    }
  }
  CHECK(audit(both.tested().view()));
  CHECK(dropped != 0);
  CHECK((overflows != 0) == (capacity < n_experts));
}

template <class Score>
void check_streams() {
  for (u32 const n_experts : {5u, 8u, 17u, 32u, 64u, 128u}) {
    for (u32 const sequences : {1u, 2u, 3u, 5u}) {
      check_stream<Score>(n_experts, n_experts < 8 ? 3 : n_experts / 2, sequences, 80 + rounds(70), n_experts + sequences);
    }
    check_stream<Score>(n_experts, n_experts, 1, 60, n_experts);
  }
}

}  // namespace

TEST_CASE("successor: test vectors", "[policy][successor]") {
  auto const check = []<class Score>(test_vector const& e) {
    INFO(Score::name);
    cache<bundles::of<Score>, move::immediate> tested(geometry::uniform(1, 8, 2, 1), budget::of_slots(4));
    vector_steps steps;
    fnv_1a all;
    u64 hits = 0;
    for (u32 t = 0; t < 1000; ++t) {
      step_view const seen = tested.step(layer_id{0}, steps.next());
      hits += static_cast<u64>(std::count(seen.how.begin(), seen.how.end(), access_kind::hit));
      auto const& view = tested.pools()[0].view();
      for (u32 x = 0; x < 8; ++x) {
        i32 const key = view.parts().score.key_of(view.score_of(x));
        REQUIRE(key == tested.last_plan().key[x]);
        all.add(key);
        if (t == 3) {
          CHECK(key == e.keys_at_3[x]);
        }
      }
    }
    CHECK(all.sum == e.fnv);
    CHECK(hits == e.hits);
    CHECK(tested.audit());
  };
  check.operator()<score::successor<1>>(test_vectors[0]);
  check.operator()<score::successor<1, i8>>(test_vectors[1]);
  check.operator()<score::successor<2>>(test_vectors[2]);
  check.operator()<score::successor<2, i8>>(test_vectors[3]);
}

TEST_CASE("successor: every form is its reference on random steps", "[policy][successor]") {
  check_streams<score::successor<1>>();
  check_streams<score::successor<1, i8>>();
  check_streams<score::successor<2>>();
  check_streams<score::successor<2, i8>>();
  check_streams<score::successor<3>>();
  check_streams<score::successor<3, i8>>();
}

TEST_CASE("successor: token rows are their reference on random steps", "[policy][successor]") {
  check_streams<score::successor<2, i16, 16>>();
  check_streams<score::successor<3, i8, 1>>();
  check_streams<score::successor<1, i16, 256>>();
}

TEST_CASE("successor: the token before teaches its own row, and a step without one none", "[policy][successor]") {
  using score_type = score::successor<1, i16, 256>;
  layer_pair<score_type> both(8, 4, 1);
  auto const at = [&](u32 token) {
    (void)both.plan({7}, {.sequence = 0, .token = token, .previous = {}, .supplied = {}});
    return both.planned().key[2];
  };
  auto const step = [&](u32 x, u32 token) { both.step({x}, {0, token, {}, {}}); };
  step(1, 40);
  step(2, 41);  // follows token 40: the row learns an eighth of the error
  i32 const without = at(step_context::no_token);
  CHECK(at(40) - without == 16 * 4096 / 8);
  CHECK(at(41) == without);
  step(3, step_context::no_token);
  i32 const row_of_40 = at(40) - at(step_context::no_token);
  step(2, 40);  // follows no token
  CHECK(at(40) - at(step_context::no_token) == row_of_40);
}

TEST_CASE("successor: the cache hands on what the layer before demanded", "[policy][successor]") {
  // Three layers of different sizes with gaps between their ids. The set before is that of the layer before in
  // the same token: not of another one, and that of an overflowing step as well.
  std::vector<layer_geometry> const layers{{layer_id{3}, 16, 2, {1}}, {layer_id{4}, 24, 2, {1}}, {layer_id{9}, 8, 2, {1}}};
  cache<bundles::of<score::successor<3>>, move::immediate> tested(geometry(layers), budget::of_slots(4));
  std::vector<successor_reference> references;
  for (layer_geometry const& l : layers) {
    references.emplace_back(l.n_experts, l.layer.value, successor_form{3, 16});
  }
  kit::integers random(8);
  u32 overflows = 0;
  for (u32 token = 0; token < 400; ++token) {
    id_list before;
    for (u32 l = 0; l < 3; ++l) {
      if (random.one_in(10)) {
        before.clear();  // the next layer follows none
        continue;
      }
      id_list const ids = random_set(random, layers[l].n_experts, random.one_in(9) ? 6 : 1 + random.below(3));
      id_list known;
      std::copy_if(before.begin(), before.end(), std::back_inserter(known),
                   [&](u32 x) { return x < layers[l].n_experts; });
      step_view const seen = tested.step(layers[l].layer, ids);
      if (ids.size() > 4) {
        REQUIRE(seen.kind == plan_kind::overflow);
        ++overflows;
      } else {
        std::vector<i32> const& keys = references[l].step(ids, known);
        REQUIRE(std::equal(keys.begin(), keys.end(), tested.last_plan().key));
      }
      before = ids;
    }
  }
  CHECK(overflows > 50);
  CHECK(tested.audit());
}

TEST_CASE("successor: hints change no byte of what it has learned", "[policy][successor][I3]") {
  using bundle = bundles::guarded<bundles::of<score::successor<3>>, guard::none>;
  kit::table_config config{.n_experts = 17, .k = 2, .reserved = 6, .capacity = 6};
  config.numbers.speculative_slots = 2;
  kit::table_under_test_of<bundle, false> tested(config);
  random_steps steps{kit::integers(4), 17};
  std::vector<u32> arrivals(config.reserved);
  outcome out{};
  u32 tick = 0;
  u32 n_hinted = 0;
  for (u32 t = 0; t < 300; ++t) {
    id_list const set = steps.ids(1 + steps.random.below(3));
    std::vector<i64> const ids(set.begin(), set.end());
    auto const planned = tested.plan_demand(0, ids, kit::id_type::i32, phase::decode, tick, steps.said());
    REQUIRE(tested.commit(false, out));
    tick += static_cast<u32>(planned.entries.size());
    auto const arrive = [&](kit::plan_record const& p) {
      kit::table_state const state = tested.state();
      for (auto const& l : p.loads) {
        arrivals[l.slot] = arrival::word(state.slots[l.slot].generation, transfer::arrived);
      }
      tested.settle(arrivals.data(), out);
    };
    arrive(planned);
    auto const history = tested.history();
    std::vector<i64> const hints{steps.random.below(17), steps.random.below(17)};
    auto const hinted = tested.plan_hints(0, hints, t + 2, 2, tick);
    REQUIRE(tested.commit(false, out));
    arrive(hinted);
    n_hinted += static_cast<u32>(hinted.loads.size());
    REQUIRE(tested.history() == history);
    REQUIRE(tested.audit());
  }
  CHECK(n_hinted > 100);
}

TEST_CASE("successor: the bytes that hints must leave alone include the context", "[policy][successor][I3]") {
  layer_pair<score::successor<>> both(8, 4, 1);
  using bundle = layer_pair<score::successor<>>::bundle;
  both.step({1, 2}, {});
  auto const& view = both.tested().view();
  auto const history = kit::history_bytes<bundle>(view);
  for (u64 at = 0; at < view.header().context_bytes; ++at) {
    view.context(0)[at] ^= 1;
    REQUIRE(kit::history_bytes<bundle>(view) != history);
    view.context(0)[at] ^= 1;
  }
  CHECK(kit::history_bytes<bundle>(view) == history);
}

TEST_CASE("successor: a saved table goes on as if it had not been interrupted", "[policy][successor][persist]") {
  auto const check = []<class Score>() {
    INFO(Score::name);
    for (u32 const sequences : {1u, 3u}) {
      layer_pair<Score> whole(17, 6, sequences);
      layer_pair<Score> resumed(17, 6, sequences);
      random_steps steps{kit::integers(12), 17};
      for (u32 t = 0; t < 200; ++t) {
        whole.step(steps.ids(1 + steps.random.below(6)), steps.said());
      }
      auto const image = save(whole.tested(), 99);
      REQUIRE(load(resumed.tested(), image, 99, residency::keep));
      resumed.continue_from(whole);
      for (u32 t = 0; t < 200; ++t) {
        id_list const ids = steps.ids(1 + steps.random.below(6));
        kit::step_said const said = steps.said();
        whole.step(ids, said);
        resumed.step(ids, said);
        REQUIRE(std::equal(whole.planned().loads, whole.planned().loads + whole.planned().n_loads,
                           resumed.planned().loads, resumed.planned().loads + resumed.planned().n_loads,
                           [](planned_load a, planned_load b) { return a.expert == b.expert && a.slot == b.slot; }));
      }
      using bundle = typename layer_pair<Score>::bundle;
      CHECK(kit::history_bytes<bundle>(whole.tested().view()) == kit::history_bytes<bundle>(resumed.tested().view()));

      layer_pair<Score> other(17, 6, sequences + 1);
      CHECK(load(other.tested(), image, 99).why != reason::none);
    }
  };
  check.operator()<score::successor<1>>();
  check.operator()<score::successor<3, i8>>();
  check.operator()<score::successor<2, i16, 16>>();

  layer_pair<score::successor<>> words(16, 4, 1);
  layer_pair<score::successor<2, i8>> bytes(16, 4, 1);
  CHECK_FALSE(load(bytes.tested(), save(words.tested(), 1), 1));
}

TEST_CASE("successor: the count ends below 16 bits, and saturated cells do not overflow a key",
          "[policy][successor]") {
  // Cells lie at the end of the context: all at their limit, more than any step could make of them.
  auto const check = []<class Score, class Cell>(Cell limit, i64 unit) {
    using wide = of_2048_experts<Score>;
    constexpr u32 n = 2048;
    table<wide> made({{layer_id{0}, n, 1, {1}}}, {n, n});
    auto const& t = made.view();
    u64 const n_cells = (form_of<Score>.order == 3 ? 2 : 1) * u64{n} * n;
    auto* const cells = reinterpret_cast<Cell*>(t.context(0) + t.header().context_bytes) - n_cells;
    id_list const all = first_ids(0, n);
    auto const plan = std::make_unique<plan_of<wide>>();
    auto const work = std::make_unique<workspace_of<wide>>();
    for (Cell const cell : {limit, static_cast<Cell>(-limit)}) {
      std::fill(cells, cells + n_cells, cell);
      plan_demand<wide>(one_lane{}, t, {0, phase::decode, 0, 0, step_context::no_token, all.data(), n}, all.data(), n,
                        *work, *plan);
      REQUIRE(plan->kind == plan_kind::step);
      i64 const of_count = (2047 >> 1) + (2047 >> 3);
      for (u32 x = 0; x < n; ++x) {
        REQUIRE(plan->key[x] == of_count + i64{n} * cell * unit * (form_of<Score>.order == 3 ? 2 : 1));
      }
    }
  };
  check.operator()<score::successor<3>, i16>(32'767, 16);
  check.operator()<score::successor<3, i8>, i8>(127, 128);
  check.operator()<score::successor<2>, i16>(32'767, 16);

  layer_pair<score::successor<>> both(5, 2, 1);
  for (u32 t = 0; t < 3000; ++t) {
    both.step({1}, {});  // the reference's count is checked, as 16 bits
  }
  CHECK(both.reference().count(1) >= 65'504);
}

TEST_CASE("successor: heat is whole uses after decay", "[policy][successor]") {
  layer_pair<score::successor<>> both(8, 4, 1);
  auto const heat = [&](u32 x) {
    auto const& t = both.tested().view();
    return t.heat(x, t.now(0, 0));
  };
  CHECK(heat(1) == 0);
  both.step({1}, {});
  CHECK(heat(1) == 0);  // 2,047 of 2,048: a use begins to fade at once
  both.step({1}, {});
  CHECK(heat(1) == 1);
  for (u32 t = 0; t < 200; ++t) {
    both.step({2}, {});
  }
  CHECK(heat(1) == 0);
  CHECK(heat(2) > 25);
}

TEST_CASE("successor: a key of a passed layer is worth 27/32 where it is positive", "[policy][successor]") {
  score::successor<> const rule{tuning{}};
  CHECK(rule.aged(32) == 27);
  CHECK(rule.aged(33) == 27);
  CHECK(rule.aged(1) == 0);
  CHECK(rule.aged(0) == 0);
  CHECK(rule.aged(-1) == -1);
  CHECK(rule.aged(-4096) == -4096);
  CHECK(rule.aged(0x7FFF'FFFF) == static_cast<i32>(i64{0x7FFF'FFFF} * 27 / 32));
}

TEST_CASE("successor: a shared pool holds what the reference's holds", "[policy][successor]") {
  auto const check = []<class Score>() {
    INFO(Score::name);
    constexpr u32 n_layers = 4;
    constexpr u32 n_experts = 16;
    for (u32 const floor : {1u, 2u, 3u}) {
      using bundle = bundles::shared<bundles::of<Score>>;
      cache<bundle, move::immediate> tested(geometry::uniform(n_layers, n_experts, 2, 1), budget::of_slots(4),
                                            {.floor = floor});
      kit::reference_cache reference(
          n_layers, n_experts, form_of<Score>,
          {{.slots_per_layer = 4, .shared = true, .floor = floor, .demand_order = true}});
      kit::integers random(5);
      u64 hits = 0;
      u32 least = 4;
      u32 most = 4;
      for (u32 token = 0; token < 300 + rounds(1200); ++token) {
        for (u32 l = 0; l < n_layers; ++l) {
          // layers differ in how many experts they use, and so in the slots that they should have
          u32 const used = l == 0 ? 3 : l == 3 ? 6 : n_experts;
          id_list const ids = random_set(random, used, 1 + random.below(2));
          step_view const seen = tested.step(layer_id{l}, ids);
          hits += static_cast<u64>(std::count(seen.how.begin(), seen.how.end(), access_kind::hit));
          reference.demand(l, ids);
          REQUIRE(hits == reference.pool(0).hits());
          tested.settle();
          for (u32 r = 0; r < n_layers; ++r) {
            for (u32 x = 0; x < n_experts; ++x) {
              REQUIRE(tested.is_resident({layer_id{r}, expert_id{x}}) == reference.pool(0).resident(r, x));
            }
          }
        }
        for (u32 r = 0; token > 20 && r < n_layers; ++r) {
          u32 const held = tested.pools()[0].view().layer(r).held;
          least = std::min(least, held);
          most = std::max(most, held);
        }
      }
      CHECK(least == floor);
      CHECK(most > 4);
      CHECK(tested.audit());
    }
  };
  check.operator()<score::successor<>>();
  check.operator()<score::successor<3, i8>>();
}
