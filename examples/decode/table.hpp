// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "generate.hpp"

namespace warmset_decode {

/// What a table of look-ahead goes over: every link with every number of slots and every width. Width 0, which the
/// others are compared with, is always there.
struct table_request {
  std::vector<u64> links_bytes_per_us;
  std::vector<u32> slots;
  std::vector<u32> widths;
  device_options device;  ///< the rest
  generation_request run;
};

/// Generates the same text in every cell, on and off in one run, and prints what waiting and copying it cost on the
/// virtual clock. Throws std::runtime_error where a cell's logits are others.
std::string lookahead_table(model const& m, tokenizer const& words, table_request const& request);

}  // namespace warmset_decode
