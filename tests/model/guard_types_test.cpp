// SPDX-License-Identifier: Apache-2.0
#include "every_bundle.hpp"

/// The shares choose guards at run time, to be compiled once. Here the shipped types stand in the bundle.
namespace {

using namespace warmset;

template <class Guard>
void check_type(std::string const& name) {
  using per_layer = bundles::guarded<bundles::of<score::decayed_count>, Guard>;
  constexpr bool none = std::same_as<Guard, guard::none>;
  model_test::check_table<per_layer, true>("decayed_count guarded by " + name, none, {},
                                           model_test::operations_of_a_variant());
}

}  // namespace

TEST_CASE("model and table agree under every shipped guard as a type", "[model]") {
  check_type<guard::none>("none");
  check_type<guard::spare_only>("spare_only");
  check_type<guard::challenger_must_win>("challenger_must_win");
  check_type<guard::warm_then_challenger_must_win>("warm_then_challenger_must_win");
  check_type<guard::victim_must_be_hotter>("victim_must_be_hotter");
}

TEST_CASE("model and table agree where asking again meets a guard", "[model]") {
  struct again : bundles::guarded<bundles::of<score::decayed_count, select::first_permitted>,
                                  guard::challenger_must_win> {};
  struct again_shared : bundles::shared<bundles::guarded<bundles::of<score::lfru, select::first_permitted>,
                                                         guard::warm_then_challenger_must_win>> {};
  model_test::check_table<again>("first_permitted");
  model_test::check_table<again_shared>("shared first_permitted");
}
