// SPDX-License-Identifier: Apache-2.0
#include "every_bundle.hpp"

#if defined(WARMSET_HAS_RAPIDCHECK)
#include <rapidcheck.h>
#endif

namespace {

using namespace warmset;

template <class Bundle>
void check_short(char const* name) {
  using under_test = kit::with_probe<Bundle>;
  for (kit::table_config const& config :
       model_test::configurations(Bundle::pool::spans_layers, speculates<Bundle>, keeps_reserve<Bundle>)) {
    if (config.capacity > 8) {
      continue;
    }
    auto const make = [&] { return std::make_unique<kit::table_under_test_of<under_test, false>>(config); };
#if defined(WARMSET_HAS_RAPIDCHECK)
    bool const holds = rc::check(name, [&] {
      auto const sequence = *kit::arbitrary_operations(config, speculates<Bundle>);
      std::string const wrong = kit::run_sequence(make, config, sequence);
      if (!wrong.empty()) {
        RC_LOG() << wrong << '\n' << kit::as_code(sequence);
        RC_FAIL("model and table differ");
      }
    });
    CHECK(holds);
#else
    for (u64 seed = 0; seed < 100; ++seed) {
      std::string const wrong = kit::run_and_shrink(
          make, config, kit::generator(config, speculates<Bundle>, seed).sequence(static_cast<u32>(seed)));
      INFO(name << ": " << wrong);
      CHECK(wrong.empty());
    }
#endif
  }
}

}  // namespace

TEST_CASE("model and table agree on short sequences from an empty table", "[model][short]") {
  using counted = bundles::of<score::decayed_count>;
  check_short<bundles::of<score::lru, select::lru_list>>("lru_list");
  check_short<bundles::guarded<counted, guard::spare_only>>("decayed_count, spare_only");
  check_short<bundles::shared<bundles::guarded<counted, guard::warm_then_challenger_must_win>>>(
      "shared decayed_count, warm_then_challenger_must_win");
}
