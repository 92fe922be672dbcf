// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "copy_engine.hpp"
#include "runtime.hpp"

namespace warmset::inline v0 {
namespace cuda {

/// The copy engine of a CUDA device: what `cache<Policy, cuda::copy_engine>` and a worker over it move bytes with.
using copy_engine = basic_copy_engine<runtime>;

}  // namespace cuda

static_assert(move_backend<cuda::copy_engine>, "cuda::copy_engine must satisfy move_backend");

}  // namespace warmset::inline v0
