// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <warmset/core/integers.hpp>

namespace warmset_tools {

/// The token ids of one text.
struct token_list {
  std::string label;
  std::vector<warmset::u32> tokens;
};

/// Reads JSON lines with `tokens`, and `d` as a label.
///
/// @param lines       of the file, from 0: all, A or A-B
/// @param vocabulary  bound of a token id
/// @param context     most tokens of a list
///
/// Throws file_error, with file and line, and usage_error where `lines` selects nothing.
std::vector<token_list> read_token_lists(std::string const& path, std::string const& lines,
                                         warmset::u32 vocabulary, warmset::u32 context);

}  // namespace warmset_tools
