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
/// and every width, one after the other, `n_rounds` times in another order each, so that what disturbs the machine disturbs
/// all of them. Devices are made anew every ten rounds, in another order, since where their memory lies moves their times.
/// Each round gives a ratio of times to that without look-ahead; that of the second of the two is the noise.
/// Throws std::runtime_error where a cell's logits are others.
pairs_report measure_pairs(model const& m, tokenizer const& words, table_request const& request,
                           u32 n_rounds);

}  // namespace warmset_decode
