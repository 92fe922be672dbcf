// expect: (?s)\A(?:(?!error:).)*error: static[^\n]*the predictor lacks a horizon, in layers
// SPDX-License-Identifier: Apache-2.0
#include "warmset/predict/named.hpp"
#include "warmset/predict/supplied.hpp"

using namespace warmset;

#ifdef WARMSET_TWIN_OK
using mine = predict::list<predict::none>;
#else
using mine = predict::list<predict::supplied>;  // the engine's own hints: there is no predictor to call
#endif

unsigned size() { return mine::size; }
