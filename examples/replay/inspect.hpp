// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "report.hpp"

namespace warmset_tools {

/// What `info` says of a trace: geometry, extent, and how much its experts are used again.
json inspect(loaded_trace const& trace, warmset::trace::selection const& which);

std::string inspection_text(json const& facts);

}  // namespace warmset_tools
