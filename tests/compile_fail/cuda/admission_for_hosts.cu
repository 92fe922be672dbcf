// expect: error: calling a (constexpr )?__host__ function\("admits"\) from a __device__ function
// SPDX-License-Identifier: Apache-2.0
// Headers come as system headers, so that nvcc's warning is silent and only the probe speaks.
#include "warmset/cuda.cuh"

using namespace warmset;

#ifdef WARMSET_TWIN_OK
#define ON_BOTH WARMSET_HD
#else
#define ON_BOTH
#endif

struct my_admission {
  static constexpr bool may_decline = true;
  static constexpr char const* name = "my_admission";
  ON_BOTH constexpr bool admits(admission_question const& q) const noexcept { return q.accessed; }
};

struct my_policy : default_policy {
  using admission = my_admission;
};

__global__ void kernel(components<my_policy> parts, void* block, table_shape shape, int const* ids,
                       u32 n_ids, workspace_of<my_policy>* w, plan_of<my_policy>* p) {
  require_device_callable<my_policy, one_lane>();
  table_reader<my_policy> const table{block, shape, &parts};
  plan_demand<my_policy>(one_lane{}, table, step_input{0, phase::decode, 0}, ids, n_ids, *w, *p);
}
