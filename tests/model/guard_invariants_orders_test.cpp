// SPDX-License-Identifier: Apache-2.0
#include "guard_invariants.hpp"

/// The named bundles have selectors with an order of their own over `lru`, which no guard that compares heat takes.
/// Here each stands over a score that counts. first_permitted is in no named bundle.
TEST_CASE("guard invariants hold under guards that compare heat where the order is not the score's", "[model][guard]") {
  using namespace warmset;
  using counted = score::decayed_count;
  model_test::check_speculation_of<bundles::of<counted, select::first_permitted>>("first_permitted");
  model_test::check_heat_guards_of<bundles::of<counted, select::lru_list>>("lru_list");
  model_test::check_heat_guards_of<bundles::of<counted, select::clock<1>>>("clock");
  model_test::check_heat_guards_of<bundles::of<counted, select::sieve>>("sieve");
  model_test::check_heat_guards_of<bundles::of<counted, select::s3_fifo>>("s3_fifo");
  model_test::check_heat_guards_of<bundles::of<counted, select::slru<>>>("slru");
  model_test::check_heat_guards_of<bundles::of<counted, select::hot_protected<>>>("hot_protected");
}
