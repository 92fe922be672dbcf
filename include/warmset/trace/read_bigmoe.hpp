// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "builder.hpp"
#include "read_geometry.hpp"
#include "text.hpp"

namespace warmset::inline v0 {
namespace trace {

namespace detail {

/// Reader of `route_trace v1`. One object per input.
class bigmoe_reader {
 public:
  explicit bigmoe_reader(std::string_view text) : text_(text), in_("bigmoe", text) {}

  recording read() {
    if (text_.empty()) {
      throw format_error("bigmoe", format_error::unit::line, 1, "the input is empty");
    }
    if (!in_.next() || in_.line() != magic) {
      in_.fail("'" + shown(in_.line()) + "' instead of '" + std::string(magic) + "'");
    }
    read_header();
    while (in_.next()) {
      read_row();
    }
    end_event();
    end_pass(true);
    if (out_.parts.ids.empty()) {
      in_.fail("no rows follow the header");
    }
    out_.parts.geometry = std::move(geometry_);
    return recording::checked(out_.take(), [this](fault const& f) { in_.fail(f.what); });
  }

  static constexpr std::string_view magic = "# route_trace v1";
  static constexpr std::string_view columns =
      "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes";

 private:
  struct row {
    u32 turn, phase, step, layer, slot;
    bool operator==(row const&) const = default;
  };

  /// Value of `key=` in a header line, up to the next blank; empty where the key is missing.
  std::string_view value_of(std::string_view key) const {
    std::string_view const line = in_.line();
    std::string const wanted = " " + std::string(key) + "=";
    std::size_t const at = line.find(wanted);
    if (at == std::string_view::npos) {
      return {};
    }
    std::string_view const value = line.substr(at + wanted.size());
    return value.substr(0, value.find(' '));
  }

  void read_header() {
    std::vector<layer_geometry> layers;
    bool named = false;
    while (in_.next()) {
      if (in_.line().starts_with("# model=")) {
        std::string_view name = value_of("model");
        name = name.substr(name.rfind('/') + 1);  // the folder is the recording machine's affair
        if (name.ends_with(".gguf")) {
          name.remove_suffix(5);
        }
        out_.parts.model = std::string(name);
        n_layers_ = in_.number_of32("n_layer", value_of("n_layer"), geometry::max_layers);
        n_experts_ =
            in_.number_of32("n_expert", value_of("n_expert"), geometry::max_experts_per_layer);
        k_ = in_.number_of32("n_expert_used", value_of("n_expert_used"), n_experts_);
        if (n_layers_ == 0 || n_experts_ == 0 || k_ == 0) {
          in_.fail("n_layer, n_expert and n_expert_used must be at least 1");
        }
        named = true;
      } else if (in_.line().starts_with("# layer=")) {
        if (!named) {
          in_.fail("a layer before the line with the model");
        }
        u32 const layer = in_.number_of32("layer", value_of("layer"), n_layers_ - 1);
        u64 const bytes = in_.number_of("expert_bytes", value_of("expert_bytes"), geometry::max_expert_bytes);
        if (bytes == 0) {
          in_.fail("expert_bytes is 0");
        }
        if (!layers.empty() && layer <= layers.back().layer.value) {
          in_.fail("layer " + std::to_string(layer) + " follows layer " +
                   std::to_string(layers.back().layer.value));
        }
        layers.push_back({layer_id{layer}, n_experts_, k_, {bytes}});
      } else if (in_.line() == columns) {
        if (layers.empty()) {
          in_.fail("no layer is described before the rows");
        }
        geometry_ = read_geometry(std::move(layers), [&](char const* what) { in_.fail(what); });
        looked_up_.assign(n_experts_, 0);
        in_token_.assign(n_experts_, 0);
        return;
      } else if (!in_.line().starts_with("#")) {
        in_.fail("'" + shown(in_.line()) + "' instead of '" + std::string(columns) + "'");
      }
    }
    in_.fail("the input ends in its header");
  }

  std::string_view field(std::string_view& rest, bool last) const {
    std::size_t const comma = rest.find(',');
    if ((comma == std::string_view::npos) != last) {
      in_.fail("a row has another number of fields than 9");
    }
    std::string_view const value = rest.substr(0, comma);
    rest = last ? std::string_view() : rest.substr(comma + 1);
    return value;
  }

  void read_row() {
    std::string_view rest = in_.line();
    row now;
    now.turn = in_.number_of32("turn", field(rest, false));
    now.phase = in_.number_of32("phase", field(rest, false), 1);
    now.step = in_.number_of32("step", field(rest, false));
    now.layer = in_.number_of32("layer", field(rest, false));
    now.slot = in_.number_of32("slot", field(rest, false));
    u16 const expert =
        static_cast<u16>(in_.number_of("expert", field(rest, false), n_experts_ - 1));
    std::string_view const weight_text = field(rest, false);
    u32 const flag = in_.number_of32("residency", field(rest, false), 1);
    u64 const bytes = in_.number_of("expert_bytes", field(rest, true), u64_max);

    if (now.slot == 0) {
      start_token(now);
    }
    if (!started_ || now.slot >= k_ ||
        !(now == row{last_.turn, last_.phase, last_.step, last_.layer, n_ranks_})) {
      in_.fail("slot " + std::to_string(now.slot) + " of step " + std::to_string(now.step) +
               ", layer " + std::to_string(now.layer) + " where slot " +
               std::to_string(started_ ? n_ranks_ : 0) + " of " + std::to_string(k_) + " is due");
    }
    if (in_token_[expert] == token_stamp_) {
      in_.fail("expert " + std::to_string(expert) + " occurs twice in the row of one token");
    }
    in_token_[expert] = token_stamp_;
    u64 const layer_bytes = geometry_.layers()[row_].expert_bytes();
    if (bytes != 0 && (bytes != layer_bytes || flag == 1)) {
      in_.fail("expert_bytes is " + std::to_string(bytes) + ", but a " +
               (flag == 1 ? "hit" : "miss") + " reads " +
               std::to_string(flag == 1 ? 0 : layer_bytes));
    }
    float weight = 0;
    char const* const end = weight_text.data() + weight_text.size();
    auto const [stop, error] = std::from_chars(weight_text.data(), end, weight);
    if (error != std::errc() || stop != end || !(weight >= -1e6f && weight <= 1e6f)) {
      in_.fail("weight is '" + shown(weight_text) + "', not a number");
    }
    ids_.push_back(expert);
    bool const repeated = looked_up_[expert] == event_stamp_;
    looked_up_[expert] = event_stamp_;
    out_.parts.residency.push_back(repeated ? recorded_access::repeat
                                            : static_cast<recorded_access>(flag));
    out_.parts.weights.push_back(weight);
    ++n_ranks_;
  }

  /// Slot 0: a new token of the event under way, or the first of the next event.
  void start_token(row const& now) {
    if (started_ && n_ranks_ != k_) {
      in_.fail("the row of step " + std::to_string(last_.step) + ", layer " +
               std::to_string(last_.layer) + " ends after " + std::to_string(n_ranks_) + " of " +
               std::to_string(k_) + " experts");
    }
    bool const same_event = started_ && now.turn == last_.turn && now.phase == 0 &&
                            last_.phase == 0 && now.layer == last_.layer &&
                            now.step == last_.step + 1;
    if (!same_event) {
      end_event();
      bool const same_pass = started_ && now.turn == last_.turn && now.phase == last_.phase &&
                             now.layer > last_.layer && (now.phase == 0 || now.step == last_.step);
      if (!same_pass) {
        end_pass(now.turn != last_.turn || now.phase != 0);
        row_ = 0;
      } else {
        ++row_;
      }
      if (row_ >= geometry_.layers().size() || geometry_.layers()[row_].layer.value != now.layer) {
        in_.fail("layer " + std::to_string(now.layer) + " where " +
                 (row_ < geometry_.layers().size()
                      ? "layer " + std::to_string(geometry_.layers()[row_].layer.value)
                      : std::string("a new step")) +
                 " is due");
      }
      first_step_ = now.step;
      ++event_stamp_;
    }
    started_ = true;
    ++token_stamp_;
    n_ranks_ = 0;
    last_ = now;
  }

  void end_event() {
    if (!started_ || ids_.empty()) {
      return;
    }
    if (n_ranks_ != k_) {
      in_.fail("the input ends within the row of one token");
    }
    u32 const n_tokens = static_cast<u32>(ids_.size() / k_);
    bool const last_layer = row_ + 1 == geometry_.layers().size();
    if (row_ == 0) {
      pass_first_ = first_step_;
      pass_last_ = last_.step;
    }
    // The engine needs logits of the last prompt token only, so the last layer may have fewer
    // tokens.
    if (last_.step != pass_last_ ||
        (first_step_ != pass_first_ && !(last_layer && first_step_ > pass_first_))) {
      in_.fail("layer " + std::to_string(last_.layer) + " has steps " +
               std::to_string(first_step_) + " to " + std::to_string(last_.step) +
               ", but the first layer has " + std::to_string(pass_first_) + " to " +
               std::to_string(pass_last_));
    }
    out_.add(last_.turn, first_step_, last_.phase == 0 ? phase::prefill : phase::decode, row_,
             n_tokens, k_, ids_);
    ids_.clear();
  }

  /// A pass over the layers ends: all must have been there; a part of a prompt that needs no logits
  /// may lack the last.
  void end_pass(bool needs_last) const {
    std::size_t const n = geometry_.layers().size();
    if (started_ && row_ + 1 != n && (needs_last || row_ + 2 != n)) {
      in_.fail("the step ends after layer " + std::to_string(last_.layer) + "; layer " +
               std::to_string(geometry_.layers()[row_ + 1].layer.value) + " is missing");
    }
  }

  std::string_view text_;
  lines in_;
  builder out_;
  geometry geometry_;
  u32 n_layers_ = 0;
  u32 n_experts_ = 0;
  u32 k_ = 0;

  bool started_ = false;
  row last_{};       ///< the token under way
  u32 n_ranks_ = 0;  ///< ids of that token so far
  u32 row_ = 0;      ///< layer under way
  u32 first_step_ = 0;
  u32 pass_first_ = 0;
  u32 pass_last_ = 0;
  std::vector<u16> ids_;        ///< of the event under way
  std::vector<u64> looked_up_;  ///< by expert: the last event with it
  std::vector<u64> in_token_;   ///< by expert: the last token with it
  u64 event_stamp_ = 0;
  u64 token_stamp_ = 0;
};

}  // namespace detail

/// Reads a BigMoeOnEdge `route_trace v1` (CSV with `#` lines), already decompressed.
///
/// A prompt's rows are layer-major: one event per layer for the whole prompt, and the last layer
/// may hold only the last prompt tokens. A decode step is one event per layer. A turn is a
/// sequence; residency and weights are kept; bytes per expert are exact, per layer. k is the number
/// that the engine ran with, which may be below the model's own. Throws format_error with the line.
/// O(size).
inline recording read_bigmoe(std::string_view text) {
  return detail::bigmoe_reader(text).read();
}

}  // namespace trace
}  // namespace warmset::inline v0
