// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config.hpp"

namespace warmset::inline v0::detail {

/// std::is_trivially_copyable_v and std::has_unique_object_representations_v of complete types, asked of the
/// compiler itself: libstdc++'s prove anew for each type that it is complete, at a third of a millisecond each.
template <class T>
inline constexpr bool is_bytes = __is_trivially_copyable(T);
template <class T>
inline constexpr bool has_no_padding = __has_unique_object_representations(T);

/// What the block keeps of a policy: equal states are equal bytes.
template <class T>
concept plain_state = is_bytes<T> && (__is_empty(T) || has_no_padding<T>);

}  // namespace warmset::inline v0::detail
