// expect: (?s)\A(?:(?!error:).)*error: static[^\n]*the score lacks value\(
// SPDX-License-Identifier: Apache-2.0
#include "warmset/cuda.cuh"

using namespace warmset;

struct my_score {
  struct state {
    u32 count;
  };
  static constexpr char const* name = "my_score";
#ifdef WARMSET_TWIN_OK
  WARMSET_HD constexpr u64 value(state const& x, expert_facts, clocks) const noexcept { return x.count; }
#endif
  WARMSET_HD constexpr void on_demand(state& x, clocks) const noexcept { ++x.count; }
};

struct my_policy : default_policy {
  using score = my_score;
};

__global__ void kernel(components<my_policy> parts, void* block, table_shape shape, int const* ids,
                       u32 n_ids, workspace_of<my_policy>* w, plan_of<my_policy>* p) {
  require_device_callable<my_policy, one_lane>();
  table_reader<my_policy> const table{block, shape, &parts};
  plan_demand<my_policy>(one_lane{}, table, step_input{0, phase::decode, 0}, ids, n_ids, *w, *p);
}
