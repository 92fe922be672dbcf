// SPDX-License-Identifier: Apache-2.0
#include "every_bundle.hpp"

namespace {

using namespace warmset;

/// Admits what has been demanded before, and two misses of a step at most.
struct seen_before_two_a_step {
  static constexpr bool may_decline = true;
  static constexpr char const* name = "seen_before_two_a_step";
  bool admits(admission_question const& q) const noexcept {
    return q.installs < 2 && (q.accessed || q.free_slots != 0 || q.in_phase == phase::prefill);
  }
};

template <class Bundle>
struct choosy : Bundle {
  using admission = seen_before_two_a_step;
};

}  // namespace

TEST_CASE("model and table agree where admission declines", "[model]") {
  using counted = bundles::of<score::decayed_count>;
  model_test::check_table<choosy<counted>>("choosy");
  u64 const fewer = model_test::operations_of_a_variant();
  model_test::check_table<choosy<bundles::guarded<counted, guard::spare_only>>>("choosy, spare_only", false, {},
                                                                                fewer);
  model_test::check_table<choosy<bundles::shared<bundles::guarded<counted, guard::none>>>>("choosy, shared", true,
                                                                                          {}, fewer);
}
