// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "use_rates.hpp"

namespace warmset::inline v0::predict {

/// A token uses the experts that it used before: counts them per input token and layer, and falls back to the layer's
/// use rates where it does not know the token. Hints past the last layer are of the next token, which nobody knows
/// yet: there the use rates speak alone.
///
/// worth(x) = (uses by the token + 2 b(x)) / (its steps + 2), with b the share of the layer's steps that used x, which
/// is the confidence as well. Ties: the lower expert.
///
/// Memory: as many places for tokens as fit into the bytes that the constructor is given, a power of two; a place takes
/// 1 byte per expert and layer, 1 per layer, and 8. Tokens share places by a hash: one that comes back holds its place
/// against others, each of which takes one count of that away. Use rates take 8 bytes per expert. predict is O(E), learn
/// O(n + E). Source: token-keyed tables as in prompt-lookup prefetchers; measured in docs/predict.md.
template <u32 Horizon = 1>
class token_table {
  static_assert(Horizon >= 1 && Horizon < 100, "predict::token_table looks 1 to 99 layers ahead");

 public:
  static constexpr bool speculates = true;
  static constexpr detail::spelling<Horizon> spelled{"token_table"};
  static constexpr char const* name = spelled.text;
  static constexpr u32 horizon = Horizon;

  /// @param bytes  for the places of tokens; open throws config_error where not one fits
  explicit token_table(u64 bytes = u64{16} << 20) : bytes_(bytes) {}

  void open(geometry const& model) {
    model_ = detail::rows(model);
    rates_ = detail::use_rates(model_);
    u64 const place_bytes = u64{model_.total()} + model_.size() + sizeof(place);
    if (bytes_ < place_bytes) {
      throw config_error("token_table: ", bytes_, " bytes are less than the ", place_bytes,
                         " that one token of this model takes");
    }
    u32 const n = u32{1} << min_of(floor_log2(bytes_ / place_bytes), 24u);
    places_ = fixed_array<place>(n);
    steps_ = fixed_array<u8>(u64{n} * model_.size());
    uses_ = fixed_array<u8>(u64{n} * model_.total());
  }

  /// Places for tokens.
  u32 n_places() const noexcept { return static_cast<u32>(places_.size()); }

  void learn(routing_snapshot const& step) noexcept {
    if (!model_.teaches(step)) {
      return;
    }
    if (step.token != routing_snapshot::no_token && claim(step)) {
      u64 const at = place_of(step.token);
      u8& steps = steps_[at * model_.size() + step.row];
      u8* const uses = uses_.data() + at * model_.total() + model_[step.row].first;
      if (steps == 0xFF) {  // old news fades
        steps /= 2;
        for (u32 x = 0; x < model_[step.row].n_experts; ++x) {
          uses[x] = static_cast<u8>(uses[x] / 2);
        }
      }
      ++steps;
      for (u32 x : step.experts) {
        if (x < model_[step.row].n_experts && uses[x] < steps) {
          ++uses[x];
        }
      }
    }
    rates_.touch(model_, step);
  }

  u32 predict(routing_snapshot const& step, u32 width, array_view<hint> out) const noexcept {
    detail::ranking best(width, out);
    if (step.row >= model_.size()) {
      return 0;
    }
    u32 const there = model_.ahead(step.row, Horizon);
    u64 const at = place_of(step.token);
    bool const known = step.row + Horizon < model_.size() &&
                       step.token != routing_snapshot::no_token &&
                       places_[at].token == step.token && places_[at].held != 0;
    double const steps = known ? steps_[at * model_.size() + there] : 0;
    u8 const* const uses = uses_.data() + at * model_.total() + model_[there].first;
    for (u32 x = 0; x < model_[there].n_experts; ++x) {
      double const base = rates_.in_the_long_run(model_, there, x);
      best.offer(x, ((known ? uses[x] : 0) + 2 * base) / (steps + 2));
    }
    return best.write(model_[there].layer, out, [](double worth) { return worth; });
  }

 private:
  struct place {
    u32 token = 0;
    u32 held = 0;  ///< how often the token came, less the others that came; 0 = free
  };

  /// Top bits of a multiplicative hash, which spreads ids that follow each other.
  u64 place_of(u32 token) const noexcept {
    return u64{token * 0x9E37'79B1u} * places_.size() >> 32;
  }

  /// Whether the place is the token's. It is asked for once per layer; the row that comes first does the counting.
  bool claim(routing_snapshot const& step) noexcept {
    u64 const at = place_of(step.token);
    place& p = places_[at];
    if (p.held != 0 && p.token == step.token) {
      p.held = min_of(p.held + (step.row == 0 ? 1u : 0u), 16u);
      return true;
    }
    if (p.held != 0) {
      p.held -= step.row == 0 ? 1 : 0;
      return false;
    }
    p = {step.token, 1};
    for (u64 i = at * model_.size(); i < (at + 1) * model_.size(); ++i) {
      steps_[i] = 0;
    }
    for (u64 i = at * model_.total(); i < (at + 1) * model_.total(); ++i) {
      uses_[i] = 0;
    }
    return true;
  }

  u64 bytes_;
  detail::rows model_;
  detail::use_rates rates_;
  fixed_array<place> places_;
  fixed_array<u8> steps_;  // [place][row]
  fixed_array<u8> uses_;   // [place][expert of the model]
};

static_assert(predictor<token_table<>>, "predict::token_table must satisfy predictor");

}  // namespace warmset::inline v0::predict
