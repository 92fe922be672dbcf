// expect: error: static[^\n]*the selector is host_only: no kernel can run the bundle
// SPDX-License-Identifier: Apache-2.0
#include "warmset/cuda.cuh"
#include "warmset/policy/select/lru_list.hpp"

using namespace warmset;

struct my_policy : default_policy {
#ifdef WARMSET_TWIN_OK
  using selector = warmset::select::coldest;
#else
  using selector = warmset::select::lru_list;
#endif
};

__global__ void kernel(components<my_policy> parts, void* block, table_shape shape, int const* ids,
                       u32 n_ids, workspace_of<my_policy>* w, plan_of<my_policy>* p) {
  require_device_callable<my_policy, one_lane>();
  table_reader<my_policy> const table{block, shape, &parts};
  plan_demand<my_policy>(one_lane{}, table, step_input{0, phase::decode, 0}, ids, n_ids, *w, *p);
}
