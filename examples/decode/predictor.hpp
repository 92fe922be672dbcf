// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <warmset/predict/concept.hpp>

namespace warmset_decode {

/// A predictor that is chosen by name at run time.
class any_predictor {
 public:
  virtual ~any_predictor() = default;

  virtual void open(warmset::geometry const& model) = 0;
  virtual void learn(warmset::routing_snapshot const& seen) noexcept = 0;
  virtual warmset::u32 predict(warmset::routing_snapshot const& seen, warmset::u32 width,
                               warmset::array_view<warmset::hint> out) const noexcept = 0;

  std::string name;
  warmset::u32 horizon = 1;   ///< layers ahead
  bool reads_logits = false;  ///< whether it wants the next layer's router, run early
};

/// The library's predictor of that name; nullptr where there is none. Those that would have to know the future are left
/// out: nobody can tell them here.
std::unique_ptr<any_predictor> make_predictor(std::string const& name);

std::vector<std::string> predictor_names();

}  // namespace warmset_decode
