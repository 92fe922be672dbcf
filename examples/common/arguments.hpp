// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <warmset/core/integers.hpp>

namespace warmset_tools {

/// A decimal number of an option. Throws usage_error where the text is none or it is out of bounds.
double number_of(std::string_view text, char const* option, double least, double most);

/// A whole number of an option. Throws usage_error where the text is none or it is out of bounds.
warmset::u32 whole_of(std::string_view text, char const* option, warmset::u32 least,
                      warmset::u32 most);

/// A whole number from 0 to 2^64 - 1. Throws usage_error where the text is none.
warmset::u64 seed_of(std::string_view text, char const* option);

/// The slots of a layer that `--slots` says: N, or P% of a layer's experts, at least one. Throws usage_error.
warmset::u32 slots_of(std::string_view text, warmset::u32 experts);

}  // namespace warmset_tools
