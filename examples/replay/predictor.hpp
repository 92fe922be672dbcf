// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "warmset/predict/concept.hpp"

namespace warmset_tools {

/// A predictor that is chosen at run time.
class any_predictor {
 public:
  struct model {
    virtual ~model() = default;
    virtual warmset::u32 layers_ahead() const noexcept = 0;
    virtual void open(warmset::geometry const& g) = 0;
    virtual void tell(warmset::u32 row, warmset::array_view<warmset::u32 const> next) noexcept = 0;
    virtual void learn(warmset::routing_snapshot const& seen) noexcept = 0;
    virtual warmset::u32 predict(warmset::routing_snapshot const& seen, warmset::u32 width,
                                 warmset::array_view<warmset::hint> out) const noexcept = 0;
  };

  static constexpr bool speculates = true;
  static constexpr char const* name = "any";
  static constexpr warmset::u32 horizon = 1;  // layers_ahead() is what counts

  explicit any_predictor(std::unique_ptr<model> made) : model_(std::move(made)) {}

  warmset::u32 layers_ahead() const noexcept { return model_->layers_ahead(); }
  void open(warmset::geometry const& g) { model_->open(g); }
  void tell(warmset::u32 row, warmset::array_view<warmset::u32 const> next) noexcept {
    model_->tell(row, next);
  }
  void learn(warmset::routing_snapshot const& seen) noexcept { model_->learn(seen); }
  warmset::u32 predict(warmset::routing_snapshot const& seen, warmset::u32 width,
                       warmset::array_view<warmset::hint> out) const noexcept {
    return model_->predict(seen, width, out);
  }

 private:
  std::unique_ptr<model> model_;
};

/// A predictor of the library's table as the command line knows it.
struct known_predictor {
  std::string name;      ///< without its horizon
  warmset::u32 horizon;  ///< layers ahead
  any_predictor (*make)();
};

/// What `--predictor` names.
struct chosen_predictor {
  std::string name;  ///< as reports spell it, parameters included where they were given
  known_predictor const* kind = nullptr;
};

/// Every predictor of the library that a trace has the input of.
std::vector<known_predictor> const& predictors();

/// `none, previous_step, transition[:horizon=1|2], …`
std::string known_predictors();

/// What a trace has that only some predictors read.
struct predictor_inputs {
  bool lookahead = false;  ///< look-ahead ids, which an ascending order drops
  bool in_recorded_order = false;
  bool tokens = false;     ///< input tokens
};

/// Predictors by name, separated by commas, each with `:horizon=N`. Throws usage_error where a name, a parameter or a
/// number is not known or possible, or the trace has not what a predictor reads.
std::vector<chosen_predictor> choose_predictors(std::string_view text, predictor_inputs const& has);

}  // namespace warmset_tools
