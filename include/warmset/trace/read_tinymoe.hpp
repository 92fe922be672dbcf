// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "builder.hpp"
#include "json_line.hpp"
#include "read_geometry.hpp"

namespace warmset::inline v0 {
namespace trace {

namespace detail {

/// Reader of `routing-jsonl-1`. One object per input.
class tinymoe_reader {
 public:
  explicit tinymoe_reader(std::string_view text) : text_(text), in_("tinymoe", text) {}

  recording read() {
    if (text_.empty()) {
      throw format_error("tinymoe", format_error::unit::line, 1, "the input is empty");
    }
    in_.next();
    read_header();
    while (in_.next()) {
      read_event();
    }
    if (row_ != 0) {
      in_.fail("the input ends before layer " + std::to_string(row_) + " of position " +
               std::to_string(position_) + " of sequence " + std::to_string(sequence_));
    }
    if (out_.parts.ids.empty()) {
      in_.fail("no events follow the header");
    }
    out_.parts.lookahead_width = static_cast<u32>(width_);
    std::sort(
        out_.parts.labels.begin(), out_.parts.labels.end(),
        [](sequence_label const& a, sequence_label const& b) { return a.sequence < b.sequence; });
    for (std::size_t i = 1; i < out_.parts.labels.size(); ++i) {
      if (out_.parts.labels[i].sequence == out_.parts.labels[i - 1].sequence) {
        in_.fail("sequence " + std::to_string(out_.parts.labels[i].sequence) +
                 " is interrupted by another sequence");
      }
    }
    return recording::checked(out_.take(), [this](fault const& f) { in_.fail(f.what); });
  }

 private:
  void read_header() {
    u64 expert_bytes = 0;
    u64 layers = 0;
    bool known = false;
    json_line object(in_);
    while (object.next()) {
      std::string_view const key = object.key();
      if (key == "format") {
        std::string_view const name = object.string();
        known = name == "routing-jsonl-1";
        if (!known) {
          in_.fail("format is '" + shown(name) + "' instead of 'routing-jsonl-1'");
        }
      } else if (key == "model") {
        out_.parts.model = std::string(object.string());
      } else if (key == "layers") {
        layers = object.number(geometry::max_layers);
      } else if (key == "experts") {
        n_experts_ = object.number(geometry::max_experts_per_layer);
      } else if (key == "top_k") {
        k_ = object.number(geometry::max_experts_per_layer);
      } else if (key == "expert_bytes") {
        expert_bytes = object.wide_number(geometry::max_expert_bytes);
      } else {
        object.skip();
      }
    }
    if (!known) {
      in_.fail("the first line has no format");
    }
    if (layers == 0 || n_experts_ == 0 || k_ == 0 || k_ > n_experts_ || expert_bytes == 0) {
      in_.fail("layers, experts, top_k and expert_bytes are " + std::to_string(layers) + ", " +
               std::to_string(n_experts_) + ", " + std::to_string(k_) + ", " +
               std::to_string(expert_bytes) +
               "; none may be 0 or missing, nor top_k above experts");
    }
    // The shortest event has 30 characters: a larger model than the text can hold is not allocated.
    if (layers > text_.size() / 30) {
      in_.fail("layers is " + std::to_string(layers) + ", more than the input can hold");
    }
    n_layers_ = static_cast<u32>(layers);
    std::vector<layer_geometry> rows;
    rows.reserve(n_layers_);
    for (u32 i = 0; i < n_layers_; ++i) {
      rows.push_back({layer_id{i}, n_experts_, k_, {expert_bytes}});
    }
    out_.parts.geometry = read_geometry(std::move(rows), [&](char const* what) { in_.fail(what); });
  }

  void read_event() {
    ids_.clear();
    ahead_.clear();
    u32 seen = 0;
    u32 sequence = 0;
    u32 position = 0;
    u32 layer = 0;
    phase what = phase::decode;
    std::string_view kind;
    json_line object(in_);
    while (object.next()) {
      std::string_view const key = object.key();
      char const letter = key.size() == 1 ? key[0] : ' ';
      switch (letter) {
      case 's':
        sequence = object.number(u32_max);
        seen |= 1;
        break;
      case 'd':
        kind = object.string();
        break;
      case 'p':
        position = object.number(u32_max);
        seen |= 2;
        break;
      case 'f': {
        std::string_view const f = object.string();
        if (f != "p" && f != "d") {
          in_.fail("f is '" + shown(f) + "', neither p nor d");
        }
        what = f == "p" ? phase::prefill : phase::decode;
        seen |= 4;
        break;
      }
      case 'l':
        layer = object.number(n_layers_ - 1);
        seen |= 8;
        break;
      case 'e':
        ids_.clear();
        object.ids(n_experts_ - 1, ids_);
        seen |= 16;
        break;
      case 'a':
        ahead_.clear();
        object.ids(n_experts_ - 1, ahead_);
        break;
      default:
        object.skip();
      }
    }
    if (seen != 31) {
      in_.fail("one of s, p, f, l, e is missing");
    }
    check_order(sequence, position, what, layer, kind);
    check_row("e", ids_);
    if (ids_.size() != k_) {
      in_.fail("e has " + std::to_string(ids_.size()) + " ids; top_k is " + std::to_string(k_));
    }
    out_.add(sequence, position, what, layer, 1, k_, ids_);
    add_lookahead(layer);
  }

  /// Positions ascend by one within a sequence, and layers 0 … n-1 within a position.
  void check_order(u32 sequence, u32 position, phase what, u32 layer, std::string_view kind) {
    bool const new_sequence = !started_ || sequence != sequence_;
    if (layer != row_) {
      in_.fail("layer " + std::to_string(layer) + " where layer " + std::to_string(row_) +
               " is due");
    }
    bool const in_order = layer != 0
                              ? !new_sequence && position == position_ && what == phase_
                              : new_sequence || (position_ != u32_max && position == position_ + 1);
    if (!in_order) {
      in_.fail("position " + std::to_string(position) + " of sequence " + std::to_string(sequence) +
               ", layer " + std::to_string(layer) + " follows position " +
               std::to_string(position_) + " of sequence " + std::to_string(sequence_));
    }
    if (new_sequence) {
      out_.parts.labels.push_back({sequence, std::string(kind)});
    }
    started_ = true;
    sequence_ = sequence;
    position_ = position;
    phase_ = what;
    row_ = layer + 1 == n_layers_ ? 0 : layer + 1;
  }

  void check_row(std::string_view field, std::vector<u16> const& ids) {
    if (ids.size() > n_experts_) {
      in_.fail(std::string(field) + " has " + std::to_string(ids.size()) + " ids of " +
               std::to_string(n_experts_) + " experts");
    }
    if (marked_.empty()) {
      marked_.assign(n_experts_, 0);
    }
    ++stamp_;
    for (u16 id : ids) {
      if (id != padding && marked_[id] == stamp_) {
        in_.fail(std::string(field) + " has expert " + std::to_string(id) + " twice");
      }
      if (id != padding) {
        marked_[id] = stamp_;
      }
    }
  }

  /// Look-ahead is on every layer, or on every layer but the first, of every position; so its
  /// column is at most twice as long as the ids in the text.
  void add_lookahead(u32 layer) {
    check_row("a", ahead_);
    ++n_events_;
    bool const has = !ahead_.empty();
    if (n_events_ == 1) {
      on_first_ = has;
    } else if (layer == 0 && has != on_first_) {
      in_.fail(has ? "a is on layer 0, but was not before"
                   : "a is missing on layer 0, but was there before");
    }
    if (has && width_ == 0) {
      if (n_events_ > 2 || (n_events_ == 2 && layer == 0)) {
        in_.fail("a appears, but was missing on earlier layers");
      }
      width_ = ahead_.size();
      out_.parts.lookahead.assign((n_events_ - 1) * width_, padding);
    }
    if (has && ahead_.size() != width_) {
      in_.fail("a has " + std::to_string(ahead_.size()) + " ids where it had " +
               std::to_string(width_));
    }
    if (!has && width_ != 0 && layer != 0) {
      in_.fail("a is missing on layer " + std::to_string(layer));
    }
    if (width_ != 0) {
      ahead_.resize(width_, padding);
      out_.parts.lookahead.insert(out_.parts.lookahead.end(), ahead_.begin(), ahead_.end());
    }
  }

  std::string_view text_;
  lines in_;
  builder out_;
  u32 n_layers_ = 0;
  u32 n_experts_ = 0;
  u32 k_ = 0;

  bool started_ = false;
  u32 sequence_ = 0;
  u32 position_ = 0;
  phase phase_ = phase::prefill;
  u32 row_ = 0;  ///< the layer that is due
  u64 n_events_ = 0;
  std::size_t width_ = 0;
  bool on_first_ = false;
  std::vector<u16> ids_;
  std::vector<u16> ahead_;
  std::vector<u64> marked_;
  u64 stamp_ = 0;
};

}  // namespace detail

/// Reads JSON lines of layout `routing-jsonl-1`, already decompressed: a header line, then one line
/// per position and layer with `s` sequence, `d` kind of text, `p` position, `f` phase (p or d),
/// `l` layer, `e` experts in rank order and, where recorded, `a` look-ahead ids.
///
/// Every line is one event of one token. Members of an object may stand in any order; unknown ones
/// are skipped. Input token ids are in a list beside it, for `with_tokens`. Throws format_error with
/// the line. O(size).
inline recording read_tinymoe(std::string_view text) {
  return detail::tinymoe_reader(text).read();
}

}  // namespace trace
}  // namespace warmset::inline v0
