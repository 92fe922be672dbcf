// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <warmset/table/bundles.hpp>

namespace warmset_decode {

/// The policy: the score that learns which experts follow which, the keys of a retention head added to it where there is
/// one, and hints that evict what a demand would evict. Whether hints pay is the governor's affair.
struct decode_policy : warmset::default_policy {
  using score = warmset::score::supplied_with<warmset::score::successor<>>;
  using guard = warmset::guard::none;
  using predictor = warmset::predict::supplied;
};

}  // namespace warmset_decode
