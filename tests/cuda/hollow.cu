// SPDX-License-Identifier: Apache-2.0
// A kernel whose score lacks WARMSET_HD and which asks no probe: check_kernels.py has to find the hole. The headers come
// as system headers here, so that nvcc says nothing.
#include "warmset/table/plan_demand.hpp"

struct host_score {
  struct state {
    warmset::u32 count;
  };
  static constexpr char const* name = "host_score";
  constexpr warmset::u64 value(state const& x, warmset::expert_facts, warmset::clocks) const noexcept {
    return x.count;
  }
  constexpr void on_demand(state& x, warmset::clocks) const noexcept { ++x.count; }
};

struct bundle : warmset::default_policy {
  using score = host_score;
};

__global__ void kernel(warmset::components<bundle> parts, void* block, warmset::table_shape shape,
                       int const* ids, warmset::u32 n, warmset::workspace_of<bundle>* w,
                       warmset::plan_of<bundle>* p) {
  warmset::table_reader<bundle> const table{block, shape, &parts};
  warmset::plan_demand<bundle>(warmset::one_lane{}, table, {0, warmset::phase::decode, 0}, ids, n, *w, *p);
}
