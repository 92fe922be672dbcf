// SPDX-License-Identifier: Apache-2.0
#include "experts.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace warmset_llama {

namespace {

struct seen_node {
  ggml_tensor* node;
  std::string name;
};

class node_list final : public hook {
 public:
  bool wants(ggml_tensor* node) noexcept override {
    try {
      nodes.push_back({node, ggml_get_name(node)});
    } catch (...) {
      is_complete = false;
    }
    return false;
  }
  void reached(ggml_tensor*) override {}

  std::vector<seen_node> nodes;
  bool is_complete = true;
};

/// What follows the memory of a tensor back to the tensor that owns it.
ggml_tensor const* owner_of(ggml_tensor const* t) noexcept {
  return t->view_src != nullptr ? t->view_src : t;
}

bool reads(ggml_tensor const* node, ggml_tensor const* memory) noexcept {
  return std::any_of(std::begin(node->src), std::end(node->src), [&](ggml_tensor const* s) {
    return s != nullptr && owner_of(s) == memory;
  });
}

/// The layer in `blk.<layer>.ffn_...`.
u32 layer_of(std::string_view name) {
  u32 layer = 0;
  std::size_t i = 4;
  bool is_sound = name.starts_with("blk.");
  for (; is_sound && i < name.size() && name[i] >= '0' && name[i] <= '9' && i < 10; ++i) {
    layer = layer * 10 + static_cast<u32>(name[i] - '0');
  }
  if (!is_sound || i == 4 || i >= name.size() || name[i] != '.') {
    throw engine_error("the name of the expert tensor '" + std::string(name) +
                       "' does not tell its layer");
  }
  return layer;
}

/// Banks in the order in which files have them, whatever the order of the products.
int rank_of(std::string_view name) noexcept {
  constexpr std::array<std::string_view, 4> order{"ffn_gate_exps", "ffn_gate_up_exps",
                                                  "ffn_up_exps", "ffn_down_exps"};
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (name.find(order[i]) != name.npos) {
      return static_cast<int>(i);
    }
  }
  return static_cast<int>(order.size());
}

/// Positions of a layer's products in the list of nodes.
using products = std::vector<std::size_t>;

class learner {
 public:
  explicit learner(std::vector<seen_node> const& nodes) : nodes_(nodes) {
    for (seen_node const& n : nodes_) {
      ++uses_of_name_[n.name];
    }
  }

  expert_layer learn(u32 layer, products const& at) const {
    ggml_tensor const* const last = nodes_[at.back()].node;
    expert_layer l;
    l.layer = layer;
    l.k = static_cast<u32>(last->src[2]->ne[0]);
    l.n_experts = static_cast<u32>(last->src[0]->ne[2]);
    l.ids = ggml_get_name(last->src[2]);
    l.last_product = nodes_[at.back()].name;
    if (uses_of_name_.at(l.last_product) != 1) {
      throw engine_error("layer " + std::to_string(layer) +
                         ": several nodes are called '" + l.last_product + "'");
    }
    for (std::size_t i : at) {
      ggml_tensor* const w = nodes_[i].node->src[0];
      l.banks.push_back({ggml_get_name(w), w, w->data, w->nb[2]});
      if (w->ne[2] != last->src[0]->ne[2]) {
        throw engine_error("layer " + std::to_string(layer) + " has tensors of " +
                           std::to_string(w->ne[2]) + " and of " +
                           std::to_string(last->src[0]->ne[2]) + " experts");
      }
    }
    std::sort(l.banks.begin(), l.banks.end(), [](bank const& a, bank const& b) {
      return rank_of(a.name) < rank_of(b.name);
    });
    find_gate(l, at);
    return l;
  }

 private:
  /// The last node before the products that has a name of its own and comes after whoever makes the ids.
  void find_gate(expert_layer& l, products const& at) const {
    ggml_tensor const* const memory = owner_of(nodes_[at.back()].node->src[2]);
    std::size_t made = nodes_.size();
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      ggml_tensor const* const n = nodes_[i].node;
      bool const is_product = std::find(at.begin(), at.end(), i) != at.end();
      if (owner_of(n) == memory && i < at.front()) {
        made = i;  // the ids, or a view of them
      } else if (is_product && owner_of(n->src[2]) != memory) {
        l.obstacle = "its products read their experts from different tensors";
      } else if (i > at.front() && !is_product && reads(n, memory)) {
        l.obstacle = "node '" + nodes_[i].name + "' reads the chosen experts after the first product";
      }
    }
    for (bank const& b : l.banks) {
      if (b.weights->buffer == nullptr || !ggml_backend_buffer_is_host(b.weights->buffer)) {
        l.obstacle = "its experts are not in host memory";
      }
      if (b.weights->nb[2] != b.weights->nb[1] * static_cast<u64>(b.weights->ne[1])) {
        l.obstacle = "its experts are not packed one after the other";
      }
    }
    for (std::size_t i = at.front(); i-- > 0 && made < nodes_.size() && i >= made;) {
      if (!nodes_[i].name.empty() && uses_of_name_.at(nodes_[i].name) == 1) {
        l.gate = nodes_[i].name;
        break;
      }
    }
    if (l.obstacle.empty() && (l.gate.empty() || l.ids.empty() || uses_of_name_.count(l.ids) == 0 ||
                               uses_of_name_.at(l.ids) != 1)) {
      l.obstacle = "no node between its router and its products has a name of its own";
    }
  }

  std::vector<seen_node> const& nodes_;
  std::unordered_map<std::string, u32> uses_of_name_;
};

}  // namespace

warmset::layer_geometry expert_layer::geometry() const {
  warmset::layer_geometry g{warmset::layer_id{layer}, n_experts, k, {}};
  for (bank const& b : banks) {
    g.bank_bytes.push_back(b.stride);
  }
  return g;
}

std::vector<expert_layer> learn_layers(model const& m, u32 threads) {
  node_list list;
  context c(m, {.tokens = 32, .batch = 32, .threads = threads, .listener = &list});
  u32 const token = 0;
  c.decode({&token, 1}, 0, outputs::all);
  if (!list.is_complete) {
    throw std::bad_alloc();
  }
  std::map<u32, products> by_layer;
  for (std::size_t i = 0; i < list.nodes.size(); ++i) {
    ggml_tensor const* const n = list.nodes[i].node;
    if (n->op == GGML_OP_MUL_MAT_ID) {
      by_layer[layer_of(ggml_get_name(n->src[0]))].push_back(i);
    }
  }
  if (by_layer.empty()) {
    throw engine_error(m.path() + ": a forward pass has no product over experts");
  }
  learner const with(list.nodes);
  std::vector<expert_layer> layers;
  for (auto const& [layer, at] : by_layer) {
    layers.push_back(with.learn(layer, at));
  }
  return layers;
}

warmset::geometry geometry_of(std::vector<expert_layer> const& layers) {
  std::vector<warmset::layer_geometry> rows;
  for (expert_layer const& l : layers) {
    rows.push_back(l.geometry());
  }
  return warmset::geometry(std::move(rows));
}

}  // namespace warmset_llama
