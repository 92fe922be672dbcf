// expect: error: calling a (constexpr )?__host__ function\(".*next.*"\) from a __device__ function
// SPDX-License-Identifier: Apache-2.0
// Headers come as system headers, so that nvcc's warning is silent and only the probe speaks.
#include "warmset/cuda.cuh"

using namespace warmset;

#ifdef WARMSET_TWIN_OK
#define ON_BOTH WARMSET_HD
#else
#define ON_BOTH
#endif

struct my_selector {
  using pool_state = no_state;
  using slot_state = no_state;
  using expert_state = no_state;
  struct walk_state {
    u32 cursor;
  };
  static constexpr bool asks_again = false;
  static constexpr bool host_only = false;
  static constexpr char const* name = "my_selector";
  template <lane_group Group, class Slots>
  ON_BOTH constexpr slot_id next(Group const&, Slots const& slots, walk_state& walk) const {
    while (walk.cursor < slots.size()) {
      u32 const s = walk.cursor++;
      if (slots.evictable(s)) {
        return {s};
      }
    }
    return no_slot;
  }
  template <class Slots>
  WARMSET_HD constexpr void apply(Slots const&, walk_state const&) const noexcept {}
  template <class Slots>
  WARMSET_HD constexpr void on_touch(Slots const&, u32) const noexcept {}
  template <class Slots>
  WARMSET_HD constexpr void on_remove(Slots const&, u32) const noexcept {}
};

struct my_policy : default_policy {
  using selector = my_selector;
};

__global__ void kernel(components<my_policy> parts, void* block, table_shape shape, int const* ids,
                       u32 n_ids, workspace_of<my_policy>* w, plan_of<my_policy>* p) {
  require_device_callable<my_policy, one_lane>();
  table_reader<my_policy> const table{block, shape, &parts};
  plan_demand<my_policy>(one_lane{}, table, step_input{0, phase::decode, 0}, ids, n_ids, *w, *p);
}
