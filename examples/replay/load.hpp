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

/// Adds the input token ids of a list, zstd or not. Throws file_error as `FILE:line: what`.
void add_tokens(loaded_trace& trace, std::string const& path);

/// The same events with the ids of each token in ascending order, for questions about sets: a trace has its ids in
/// the order of the router's ranks, and within a step that is the order of recency. Of the columns beside the ids,
/// input tokens are kept.
warmset::trace::recording in_ascending_order(warmset::trace::recording const& r);

/// The selected ids, one a step, in the order in which they are recorded: what a simulator of key-value caches is
/// given. Padding is dropped, ids that a step has twice are not; of the columns beside the ids, input tokens are kept.
/// A token is then an id, and k is 1.
warmset::trace::recording one_id_per_step(warmset::trace::recording const& r,
                                          warmset::trace::selection const& which);

}  // namespace warmset_tools
