// SPDX-License-Identifier: Apache-2.0
// Every kernel of the test, and nothing else: check_kernels.py looks at what nvcc makes of it.
#include "cuda/steps_kernel.cuh"

template <class... Bundles>
void const* kernel(steps::list<Bundles...>, unsigned i) {
  void const* const all[] = {reinterpret_cast<void const*>(&steps::run_kernel<Bundles>)...};
  return all[i];
}

void const* kernel(unsigned i) { return kernel(steps::all{}, i); }
