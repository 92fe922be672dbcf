// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>

#include <kit/lockstep.hpp>
#include <kit/table_builder.hpp>
#include <warmset/table/bundles.hpp>

using namespace warmset;
using op = kit::operation;

namespace {

using policy = bundles::guarded<bundles::of<score::decayed_count>, guard::warm_then_challenger_must_win>;
using watched = kit::with_probe<policy>;

}  // namespace

TEST_CASE("probe: records what the guard is asked and what it answers", "[kit]") {
  using probed = kit::probed<guard::spare_only>;
  static_assert(guard_policy<probed>);
  static_assert(probed::keeps_reserve && !probed::needs_heat);
  kit::recorder outer;
  {
    kit::recorder inner;
    CHECK(probed{}.permits({1, 2, 3, 4, true}));
    CHECK_FALSE(probed{}.permits({1, 2, 3, 4, false}));
    REQUIRE(inner.consultations.size() == 2);
    CHECK(inner.consultations[0] == kit::consultation{{1, 2, 3, 4, true}, true});
    CHECK(inner.consultations[1] == kit::consultation{{1, 2, 3, 4, false}, false});
  }
  CHECK(outer.consultations.empty());
}

TEST_CASE("builder: heat, age and order are what was asked for, under every score of single touches", "[kit]") {
  auto const check = []<class Bundle>() {
    INFO(Bundle::name);
    auto made = kit::table_builder<Bundle>({.n_experts = 8, .reserved = 3, .capacity = 3})
                    .place({.slot = 2, .expert = 5, .heat = 7, .age = 1})
                    .place({.slot = 0, .expert = 6, .heat = 1, .age = 30})
                    .place({.expert = 1, .heat = 4, .age = 2})
                    .build();
    auto const& t = made.view();
    CHECK(audit(t));
    clocks const now = t.now(0, t.header().model_tick);
    CHECK(t.header().tick - t.expert(5).last == 1);
    CHECK(t.header().tick - t.expert(6).last == 30);
    if constexpr (counting_score<typename Bundle::score>) {
      CHECK(t.heat(5, now) == 7);
      CHECK(t.heat(6, now) == 1);
    }
    CHECK(t.value(5, now) > t.value(6, now));
  };
  bundles::for_each(bundles::all{}, [&]<class Bundle>() {
    if constexpr (!contextual_score<typename Bundle::score>) {
      check.template operator()<Bundle>();
    }
  });
}

TEST_CASE("builder: an unsound table is refused", "[kit]") {
  kit::table_builder<policy> twice({.n_experts = 8, .reserved = 3, .capacity = 3});
  twice.place({.slot = 0, .expert = 5}).place({.slot = 1, .expert = 5});
  CHECK_THROWS_AS(twice.build(), std::logic_error);
  kit::table_builder<policy> outside({.n_experts = 8, .reserved = 3, .capacity = 3});
  outside.place({.slot = 3, .expert = 5});
  CHECK_THROWS_AS(outside.build(), std::logic_error);
}

TEST_CASE("shrink: finds the shortest failing sequence and prints it as code", "[kit]") {
  kit::table_config config;
  auto sequence = kit::generator(config, true, 1).sequence(400);
  // fails where expert 3 is demanded before a resize
  auto const fails = [](kit::operations const& s) {
    bool seen = false;
    for (auto const& o : s) {
      for (i64 const x : o.ids) {
        seen = seen || (o.what == op::kind::demand && x == 3);
      }
      if (seen && o.what == op::kind::resize) {
        return true;
      }
    }
    return false;
  };
  REQUIRE(fails(sequence));
  auto const shortest = kit::shrink(sequence, fails);
  REQUIRE(shortest.size() == 2);
  CHECK(shortest[0].ids == std::vector<i64>{3});
  CHECK(kit::as_code(shortest).find("op::kind::demand") != std::string::npos);
}

TEST_CASE("lockstep: a planted difference is found", "[kit]") {
  kit::table_config config;
  config.capacity = config.reserved = 3;
  config.numbers.speculative_slots = 1;
  auto const make = [&] { return std::make_unique<kit::table_under_test_of<watched>>(config); };
  auto const sequence = kit::generator(config, true, 5).sequence(300);
  CHECK(kit::run_sequence(make, config, sequence).empty());
  kit::lockstep both(make, config);
  for (auto const& o : sequence) {
    REQUIRE(both.apply(o).empty());
  }
  outcome ignored{};
  (void)both.table().resize(1, ignored);  // behind the model's back
  CHECK_FALSE(both.apply({op::kind::pass, 1, 0, 0, op::fate::commit, false, kit::id_type::i32, {}}).empty());
}

TEST_CASE("generator: the same seed is the same sequence", "[kit]") {
  kit::table_config config;
  auto const code = [&](u64 seed) { return kit::as_code(kit::generator(config, true, seed).sequence(50)); };
  CHECK(code(9) == code(9));
  CHECK(code(9) != code(10));
}
