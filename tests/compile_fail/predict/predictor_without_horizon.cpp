// expect: (?s)\A(?:(?!error:).)*error: static[^\n]*the predictor lacks a horizon, in layers
// SPDX-License-Identifier: Apache-2.0
#include "warmset/predict/named.hpp"

using namespace warmset;

struct my_predictor {
  static constexpr bool speculates = true;
  static constexpr char const* name = "my_predictor";
#ifdef WARMSET_TWIN_OK
  static constexpr u32 horizon = 1;
#endif
  void open(geometry const&) {}
  void learn(routing_snapshot const&) noexcept {}
  u32 predict(routing_snapshot const&, u32, array_view<hint>) const noexcept { return 0; }
};

using mine = predict::list<my_predictor>;

unsigned size() { return mine::size; }
