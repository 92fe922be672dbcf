// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "table.hpp"

namespace warmset_decode {

/// What came of a measurement, for a person and for a program.
struct pairs_report {
  std::string table;
  std::string json;
};

/// Generates the same text in every cell by the clock: for each link and number of slots no look-ahead, the same once more,
/// and every width, one after the other, `n_rounds` times, so that what disturbs the machine disturbs all of them. Each
/// round gives a ratio of times to the round's first; that of the second of the two without look-ahead is the noise.
/// Throws std::runtime_error where a cell's logits are others.
pairs_report measure_pairs(model const& m, tokenizer const& words, table_request const& request,
                           u32 n_rounds);

}  // namespace warmset_decode
