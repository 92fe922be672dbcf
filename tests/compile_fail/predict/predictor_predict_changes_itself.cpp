// expect: (?s)\A(?:(?!error:).)*error: static[^\n]*the predictor lacks predict\(routing_snapshot, width, hints\) that is const noexcept and returns a 32-bit count
// SPDX-License-Identifier: Apache-2.0
#include "warmset/predict/named.hpp"

using namespace warmset;

struct my_predictor {
  static constexpr bool speculates = true;
  static constexpr char const* name = "my_predictor";
  static constexpr u32 horizon = 1;
  void open(geometry const&) {}
  void learn(routing_snapshot const&) noexcept {}
#ifdef WARMSET_TWIN_OK
  u32 predict(routing_snapshot const&, u32, array_view<hint>) const noexcept { return 0; }
#else
  u32 predict(routing_snapshot const&, u32, array_view<hint>) noexcept { return 0; }
#endif
};

using mine = predict::list<my_predictor>;

unsigned size() { return mine::size; }
