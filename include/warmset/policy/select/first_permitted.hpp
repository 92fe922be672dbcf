// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coldest.hpp"

namespace warmset::inline v0::select {

/// The order of `coldest`, but a candidate that the guard refuses makes way for the next one: a protected
/// resident at the head of the order does not block speculation. Up to one pass per resident. Source: the
/// head-of-line fix of the colibri engine.
struct first_permitted : coldest {
  static constexpr bool asks_again = true;
  static constexpr char const* name = "first_permitted";
};

static_assert(selector_policy<first_permitted>, "select::first_permitted must satisfy selector_policy");

}  // namespace warmset::inline v0::select
