// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "device.hpp"
#include "forward.hpp"

namespace warmset_decode {

/// Makes an engine for steps of this shape.
using make_engine = std::unique_ptr<step_engine>(model const& m, device_options const& options,
                                                 step_shape const& shape);

/// A device whose steps are replayed graphs: the host says the token and reads what the step tells. Between two steps it
/// asks the governor and chooses the graph that looks ahead or the one that does not; nothing of a step waits for it.
///
/// The model and the instruments must outlive it; throws warmset::config_error where the options cannot work.
std::unique_ptr<device> make_graph_device(model const& m, device_options const& options,
                                          instruments* tools, make_engine* make);

}  // namespace warmset_decode
