// SPDX-License-Identifier: Apache-2.0
#include "model_geometry.hpp"

#include <array>
#include <charconv>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "../common/gguf.hpp"
#include "warmset/core/error.hpp"

namespace warmset_tools {

using warmset::u32;
using warmset::u64;

namespace {

constexpr std::array<std::string_view, 4> bank_names{"ffn_gate_exps", "ffn_gate_up_exps",
                                                     "ffn_up_exps", "ffn_down_exps"};
enum : std::size_t { bank_gate, bank_gate_up, bank_up, bank_down };

/// The weight tensors of a layer's experts, by kind; null where there is none.
using banks = std::array<gguf::tensor const*, bank_names.size()>;

/// Where `blk.<layer>.<bank>.weight` belongs; false for other names.
bool place_of(std::string_view name, u32& layer, std::size_t& bank) {
  if (!name.starts_with("blk.") || !name.ends_with(".weight")) {
    return false;
  }
  name = name.substr(4, name.size() - 4 - 7);
  auto const [stop, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  if (error != std::errc{} || stop == name.data() + name.size() || *stop != '.') {
    return false;
  }
  name.remove_prefix(static_cast<std::size_t>(stop - name.data()) + 1);
  for (bank = 0; bank < bank_names.size(); ++bank) {
    if (name == bank_names[bank]) {
      return true;
    }
  }
  return false;
}

}  // namespace

model_file read_model_file(std::string const& path) {
  gguf::file const file(path);
  if (file.has("split.count") && file.count("split.count") > 1) {
    file.fail("one part of a split model; the tool reads a model of one file");
  }
  std::string const architecture(file.text("general.architecture"));
  auto const number = [&](char const* key) -> u32 {
    std::string const name = architecture + "." + key;
    u64 const n = file.has(name) ? file.count(name) : 0;
    if (n == 0) {
      file.fail("a model without experts (architecture " + architecture + "): it has no '" + name + "'");
    }
    if (n > warmset::geometry::max_experts_per_layer) {
      file.fail(fmt::format("'{}' is {}", name, n));
    }
    return static_cast<u32>(n);
  };
  u32 const experts = number("expert_count");
  u32 const k = number("expert_used_count");
  std::map<u32, banks> by_layer;
  for (gguf::tensor const& t : file.tensors()) {
    u32 layer = 0;
    std::size_t bank = 0;
    if (!place_of(t.name, layer, bank)) {
      continue;
    }
    if (t.shape.size() != 3 || t.shape[2] != experts) {
      file.fail(fmt::format("tensor '{}' does not hold {} experts", t.name, experts));
    }
    by_layer[layer][bank] = &t;
  }
  if (by_layer.empty()) {
    file.fail(fmt::format("no tensor of experts, such as 'blk.0.ffn_down_exps.weight', though it says that there are {}",
                          experts));
  }
  std::vector<warmset::layer_geometry> rows;
  for (auto const& [layer, has] : by_layer) {
    for (std::size_t b = 0; b < has.size(); ++b) {
      bool const wanted = b == bank_down || (b == bank_up && has[bank_gate_up] == nullptr) ||
                          (b == bank_gate && by_layer.begin()->second[bank_gate] != nullptr);
      if (wanted && has[b] == nullptr) {
        file.fail(fmt::format("tensor 'blk.{}.{}.weight' is missing", layer, bank_names[b]));
      }
    }
    rows.push_back({warmset::layer_id{layer}, experts, k, {}});
    for (gguf::tensor const* t : has) {
      if (t != nullptr) {
        rows.back().bank_bytes.push_back(t->slice_bytes());
      }
    }
  }
  try {
    return {file.has("general.name") ? std::string(file.text("general.name")) : architecture,
            warmset::geometry(std::move(rows))};
  } catch (warmset::config_error const& e) {
    file.fail(e.what());
  }
}

}  // namespace warmset_tools
