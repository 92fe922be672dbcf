// SPDX-License-Identifier: Apache-2.0
#include "predictor.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "../common/usage_error.hpp"
#include "warmset/predict/named.hpp"

namespace warmset_tools {

namespace {

using warmset::u32;

template <class P>
class model_of final : public any_predictor::model {
 public:
  u32 layers_ahead() const noexcept override { return P::horizon; }
  void open(warmset::geometry const& g) override { predictor_.open(g); }
  void tell([[maybe_unused]] u32 row,
            [[maybe_unused]] warmset::array_view<u32 const> next) noexcept override {
    if constexpr (warmset::predict::is_told<P>) {
      predictor_.tell(row, next);
    }
  }
  void learn(warmset::routing_snapshot const& seen) noexcept override { predictor_.learn(seen); }
  u32 predict(warmset::routing_snapshot const& seen, u32 width,
              warmset::array_view<warmset::hint> out) const noexcept override {
    return predictor_.predict(seen, width, out);
  }

 private:
  P predictor_;
};

/// The library's name without the number of layers that it ends in.
std::string name_without(u32 horizon, std::string name) {
  std::string const end = "_" + std::to_string(horizon);
  return horizon != 1 && name.ends_with(end) ? name.substr(0, name.size() - end.size()) : name;
}

/// The horizons of a name, as `1|2`.
std::string horizons_of(std::string_view name) {
  std::string text;
  for (known_predictor const& p : predictors()) {
    if (p.name == name) {
      text += (text.empty() ? "" : "|") + std::to_string(p.horizon);
    }
  }
  return text;
}

chosen_predictor choose(std::string_view text, predictor_inputs const& has) {
  std::size_t const colon = text.find(':');
  std::string_view const name = text.substr(0, colon);
  std::string const horizons = horizons_of(name);
  if (horizons.empty()) {
    throw usage_error(
        name == "activation_match"
            ? std::string("predictor activation_match reads hidden states, which no trace has")
            : fmt::format("unknown predictor '{}'; there are {}", name, known_predictors()));
  }
  auto const usual = std::find_if(predictors().begin(), predictors().end(),
                                  [name](known_predictor const& p) { return p.name == name; });
  u32 horizon = usual->horizon;
  std::string_view digits;
  if (colon != std::string_view::npos) {
    std::string_view const given = text.substr(colon + 1);
    if (horizon == 0) {
      throw usage_error(
          fmt::format("predictor {} has no parameter, and '{}' is given", name, given));
    }
    constexpr std::string_view key = "horizon=";
    if (!given.starts_with(key)) {
      throw usage_error(fmt::format("predictor {} has no parameter '{}'; it has horizon", name,
                                    given.substr(0, given.find('='))));
    }
    digits = given.substr(key.size());
    auto const [stop, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), horizon);
    if (error == std::errc::invalid_argument || stop != digits.data() + digits.size()) {
      throw usage_error(
          fmt::format("predictor {}: horizon is '{}', not a whole number", name, digits));
    }
    horizon = error != std::errc{} ? warmset::u32_max : horizon;  // farther than any
  }
  if (name == "router_lookahead" && !has.lookahead) {
    throw usage_error("predictor router_lookahead reads look-ahead ids, and the trace has none; "
                      "info says which have them");
  }
  if (name == "router_lookahead" && !has.in_recorded_order) {
    throw usage_error("predictor router_lookahead reads look-ahead ids, and an ascending order "
                      "drops those of the trace: --order recorded");
  }
  if (name == "token_table" && !has.tokens) {
    throw usage_error(
        "predictor token_table reads input tokens, and the trace has none; info says which have "
        "them, and convert --tokens adds them");
  }
  for (known_predictor const& p : predictors()) {
    if (p.name == name && p.horizon == horizon) {
      return {std::string(text), &p};
    }
  }
  throw usage_error(
      fmt::format("predictor {}: horizon is {}; there is {}", name, digits, horizons));
}

}  // namespace

std::vector<known_predictor> const& predictors() {
  static std::vector<known_predictor> const all = [] {
    std::vector<known_predictor> found;
    warmset::predict::for_each(warmset::predict::named{}, [&]<class P>() {
      std::string name = name_without(P::horizon, P::name);
      if (name != "activation_match") {
        found.push_back({std::move(name), P::horizon,
                         [] { return any_predictor(std::make_unique<model_of<P>>()); }});
      }
    });
    return found;
  }();
  return all;
}

std::string known_predictors() {
  std::vector<std::string> names;
  for (known_predictor const& p : predictors()) {
    std::string const horizons = horizons_of(p.name);
    std::string const name =
        horizons.size() == 1 ? p.name : fmt::format("{}[:horizon={}]", p.name, horizons);
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(name);
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<chosen_predictor> choose_predictors(std::string_view text,
                                                predictor_inputs const& has) {
  std::vector<chosen_predictor> result;
  for (std::size_t from = 0; from <= text.size();) {
    std::size_t const comma = std::min(text.find(',', from), text.size());
    chosen_predictor p = choose(text.substr(from, comma - from), has);
    if (std::none_of(result.begin(), result.end(),
                     [&](chosen_predictor const& other) { return other.kind == p.kind; })) {
      result.push_back(std::move(p));
    }
    from = comma + 1;
  }
  return result;
}

}  // namespace warmset_tools
