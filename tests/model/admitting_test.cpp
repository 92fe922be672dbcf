// SPDX-License-Identifier: Apache-2.0
#include "every_bundle.hpp"

/// Every bundle with an admission against the model's own words for its rule.
namespace {

using namespace warmset;

/// Two experts of 5 bytes fit into a budget of 11; shares are of every size.
template <class Bundle>
void check(std::string const& name) {
  auto const adapt = [](kit::table_config& c) {
    c.bank_bytes = {2, 3};
    c.numbers.insert_bytes = 11;
    constexpr u32 shares[] = {0, 11'207, 32'768, 50'000, whole_fetch_share};
    c.numbers.fetch_share = shares[c.capacity % 5];
  };
  model_test::check_table<Bundle>(name, std::same_as<typename Bundle::guard, guard::none>, adapt,
                                  model_test::operations_of_a_variant());
}

template <class Admission>
using counted = bundles::admitted<bundles::of<score::decayed_count>, Admission>;

template <class Admission>
void check_with_hints(std::string const& name) {
  check<bundles::guarded<counted<Admission>, guard::spare_only>>(name + " guarded by spare_only");
  check<bundles::shared<bundles::guarded<counted<Admission>, guard::none>>>("shared " + name + " without a guard");
}

}  // namespace

TEST_CASE("model and table agree behind every admission", "[model][admit]") {
  bundles::for_each(bundles::admitting{}, []<class Bundle>() {
    check<Bundle>(Bundle::name);
    check<bundles::shared<Bundle>>(std::string("shared ") + Bundle::name);
  });
}

TEST_CASE("model and table agree where a selector's walk meets a refusal", "[model][admit]") {
  using clock = bundles::of<score::decayed_count, select::clock<1>>;
  using s3_fifo = bundles::of<score::decayed_count, select::s3_fifo>;
  check<bundles::admitted<clock, admit::frequency_gate>>("clock");
  check<bundles::admitted<s3_fifo, admit::colder_than_victim<20>>>("s3_fifo");
  check<bundles::guarded<bundles::admitted<clock, admit::colder_than_victim<20>>, guard::spare_only>>("clock, hints");
}

TEST_CASE("model and table agree behind every admission, with hints", "[model][admit]") {
  check_with_hints<admit::second_touch<5>>("second_touch_5");
  check_with_hints<admit::insert_budget>("insert_budget");
  check_with_hints<admit::fetch_share>("fetch_share");
  check_with_hints<admit::frequency_gate>("frequency_gate");
  check_with_hints<admit::colder_than_victim<20>>("colder_than_victim_20");
}
