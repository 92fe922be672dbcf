// expect: error: calling a (constexpr )?__host__ function\("permits"\) from a __device__ function
// SPDX-License-Identifier: Apache-2.0
// Headers come as system headers, so that nvcc's warning is silent and only the probe speaks.
#include "warmset/cuda.cuh"

using namespace warmset;

#ifdef WARMSET_TWIN_OK
#define ON_BOTH WARMSET_HD
#else
#define ON_BOTH
#endif

struct my_guard {
  static constexpr bool needs_heat = false;
  static constexpr bool keeps_reserve = false;
  static constexpr char const* name = "my_guard";
  ON_BOTH constexpr bool permits(duel const& d) const noexcept { return d.victim_spare; }
};

struct my_policy : default_policy {
  using guard = warmset::guard::all_of<warmset::guard::spare_only, my_guard>;
};

__global__ void kernel(components<my_policy> parts, void* block, table_shape shape, int const* ids,
                       u32 n_ids, workspace_of<my_policy>* w, plan_of<my_policy>* p) {
  require_device_callable<my_policy, one_lane>();
  table_reader<my_policy> const table{block, shape, &parts};
  plan_demand<my_policy>(one_lane{}, table, step_input{0, phase::decode, 0}, ids, n_ids, *w, *p);
}
