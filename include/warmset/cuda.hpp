// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a host compiler reads of the CUDA part: the copy engine, channels in mapped memory, words that streams wait for,
/// and the instruments. Needs the headers of the CUDA toolkit (12.0 or later) and its runtime library.
#include "cuda/backend.hpp"
#include "cuda/mapped_memory.hpp"
#include "cuda/nvtx.hpp"
#include "cuda/phase_probe.hpp"
#include "cuda/stream_words.hpp"
#include "observe/phase_table.hpp"
#include "observe/record_totals.hpp"

namespace warmset::inline v0::cuda {

static_assert(timing_runtime<runtime>, "cuda::runtime must satisfy timing_runtime");

/// The phase probe of a CUDA device, for a warmset::phase_table.
using phase_probe = basic_phase_probe<runtime, time_span>;

}  // namespace warmset::inline v0::cuda
