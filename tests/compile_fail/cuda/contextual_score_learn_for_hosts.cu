// expect: error: calling a (constexpr )?__host__ function\("learn"\) from a __device__ function
// SPDX-License-Identifier: Apache-2.0
// Headers come as system headers, so that nvcc's warning is silent and only the probe speaks.
#include "warmset/cuda.cuh"

using namespace warmset;

#ifdef WARMSET_TWIN_OK
#define ON_BOTH WARMSET_HD
#else
#define ON_BOTH
#endif

struct my_score {
  struct state {
    i32 key;
  };
  static constexpr char const* name = "my_score";
  static constexpr u32 columns = 8;
  static constexpr bool uses_previous_layer = false;
  static constexpr bool uses_supplied = false;
  WARMSET_HD constexpr u64 context_bytes(u32) const noexcept { return 0; }
  template <class Experts>
  WARMSET_HD constexpr u32 list_contexts(unsigned char const*, Experts const&, step_context const&, u32*) const noexcept {
    return 0;
  }
  template <class Experts>
  WARMSET_HD constexpr void keys(unsigned char const*, state const* states, Experts const&, step_context const&, u32 first,
                                 u32 end, i32* out) const noexcept {
    for (u32 x = first; x < end; ++x) {
      out[x] = states[x].key;
    }
  }
  WARMSET_HD constexpr i32 key_of(state const& x) const noexcept { return x.key; }
  WARMSET_HD constexpr i32 aged(i32 key) const noexcept { return key; }
  template <class Experts>
  ON_BOTH constexpr void learn(unsigned char*, state* states, Experts const& experts, step_context const&, i32 const*,
                                  u32 first, u32 end) const noexcept {
    for (u32 x = first; x < end; ++x) {
      states[x].key += experts.demanded(x) ? 1 : 0;
    }
  }
  WARMSET_HD constexpr void end_step(unsigned char*, step_context const&) const noexcept {}
  WARMSET_HD constexpr u64 value(state const& x, expert_facts, clocks) const noexcept {
    return x.key > 0 ? static_cast<u64>(x.key) : 0;
  }
  WARMSET_HD constexpr void on_demand(state&, clocks) const noexcept {}
};

struct my_policy : default_policy {
  using score = my_score;
};

__global__ void kernel(components<my_policy> parts, void* block, table_shape shape, plan_of<my_policy>* p, outcome* out) {
  require_device_callable<my_policy, one_lane>();
  table_writer<my_policy> const table{block, shape, &parts};
  (void)commit<my_policy>(one_lane{}, table, *p, *out);
}
