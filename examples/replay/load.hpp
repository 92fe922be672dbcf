// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "warmset/trace/read.hpp"

namespace warmset_tools {

/// A trace and where it is from.
struct loaded_trace {
  std::string path;
  warmset::trace::layout layout;
  warmset::trace::recording recording;
};

/// Reads a trace of any known layout, zstd or not. Throws file_error as `FILE:position: what`.
loaded_trace load_trace(std::string const& path);

/// The same events with the ids of each token in ascending order, for questions about sets: a trace has its ids in
/// the order of the router's ranks, and within a step that is the order of recency. Columns beside the ids are
/// dropped.
warmset::trace::recording in_ascending_order(warmset::trace::recording const& r);

}  // namespace warmset_tools
