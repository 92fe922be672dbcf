// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "generate.hpp"

namespace warmset_decode {

/// One way to serve the experts.
struct arm_options {
  std::string name;
  device_options device;
  u32 batch = 1;  ///< prompt tokens per forward pass
  bool expects_hints = false;
  bool expects_failures = false;
  bool expects_hits = true;  ///< a token's experts fit
};

/// What came of it, as far as it must not depend on the way.
struct arm {
  std::string name;
  bool expects_hints = false;
  generation made;
  std::string text;
  device_report report;
  bool expects_failures = false;
  bool expects_hits = true;
};

/// All experts resident first; then fewer slots down to one, look-ahead of several widths, predictors that guess and
/// predictors that hurt, copies that fail, a slow link, prompts wider than a pool. A GPU has those that a graph of one token
/// can have.
std::vector<arm_options> ways_to_serve(model const& m, u64 seed = 1,
                                       std::string const& device = "cpu");

arm run_arm(model const& m, tokenizer const& words, arm_options const& how,
            generation_request request);
/// Several at a time on the CPU, on as many threads as there are processors.
std::vector<arm> run_arms(model const& m, tokenizer const& words, std::span<arm_options const> ways,
                          generation_request const& request);

/// Why the arms do not prove that the way of serving experts leaves the output alone; empty where they do. The first is
/// what the others are compared with. Equal hashes of nothing prove nothing: an arm without text, without a load that
/// arrived, without a resident expert that was read again where a token's fit, or, where it expects hints, without a call of the predictor or a
/// transfer that a hint started, is a failure; so is one that expects failures and had none, or none of a hint's transfers.
std::string compare(std::span<arm const> arms);

}  // namespace warmset_decode
