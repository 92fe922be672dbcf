// SPDX-License-Identifier: Apache-2.0
#include "predictor.hpp"

#include <concepts>
#include <string_view>

#include <warmset/predict/named.hpp>

namespace warmset_decode {

namespace {

using namespace warmset;

template <class P>
class predictor_of final : public any_predictor {
 public:
  predictor_of() {
    name = P::name;
    horizon = P::horizon;
    reads_logits = std::same_as<P, predict::router_lookahead<>>;
  }
  void open(geometry const& model) override { predictor_.open(model); }
  void learn(routing_snapshot const& seen) noexcept override { predictor_.learn(seen); }
  u32 predict(routing_snapshot const& seen, u32 width,
              array_view<hint> out) const noexcept override {
    return predictor_.predict(seen, width, out);
  }

 private:
  P predictor_;
};

/// Calls f.operator()<P>() for each predictor that can run in an engine.
template <class F>
void for_each_here(F&& f) {
  predict::for_each(predict::named{}, [&]<class P>() {
    if (!std::string_view(P::name).starts_with("oracle")) {
      f.template operator()<P>();
    }
  });
}

}  // namespace

std::unique_ptr<any_predictor> make_predictor(std::string const& name) {
  std::unique_ptr<any_predictor> made;
  for_each_here([&]<class P>() {
    if (name == P::name) {
      made = std::make_unique<predictor_of<P>>();
    }
  });
  return made;
}

std::vector<std::string> predictor_names() {
  std::vector<std::string> names;
  for_each_here([&]<class P>() { names.emplace_back(P::name); });
  return names;
}

}  // namespace warmset_decode
