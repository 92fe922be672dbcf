// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_template_test_macros.hpp>

#include <warmset/table/bundles.hpp>

using namespace warmset;

namespace device_steps {
template <class Policy>
void check_graph();  // graph.cu
template <class Policy>
void check_hints();
template <class Policy>
void check_reads_host();
}

TEMPLATE_TEST_CASE("one captured graph decides and fetches 1,000 steps of changing routes", "[cuda][short]",
                   bundles::of<score::lru>, bundles::of<score::decayed_count>, bundles::of<score::successor<>>,
                   (bundles::of<score::lru, select::clock<1>>),
                   (bundles::admitted<bundles::of<score::lru>, admit::second_touch<8>>),
                   (bundles::admitted<bundles::of<score::successor<>>, admit::colder_than_victim<20>>)) {
  device_steps::check_graph<TestType>();
}

TEMPLATE_TEST_CASE("readers of a graph take from the source what admission declines, without scratch", "[cuda][short]",
                   (bundles::admitted<bundles::of<score::lru>, admit::second_touch<8>>),
                   (bundles::admitted<bundles::of<score::successor<>>, admit::colder_than_victim<20>>)) {
  device_steps::check_reads_host<TestType>();
}

TEMPLATE_TEST_CASE("branches of a graph fetch hints, and readers find every byte where transfers fail", "[cuda][short]",
                   (bundles::guarded<bundles::of<score::successor<>>, guard::none>),
                   (bundles::guarded<bundles::of<score::decayed_count>, guard::spare_only>)) {
  device_steps::check_hints<TestType>();
}
