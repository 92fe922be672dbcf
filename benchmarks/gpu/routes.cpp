// SPDX-License-Identifier: Apache-2.0
#include "routes.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <stdexcept>
#include <utility>

#include <warmset/core/presets.hpp>
#include <warmset/trace/read_warmset.hpp>

namespace gpu_bench {

using namespace warmset;

namespace {

std::vector<std::byte> bytes_of_file(std::string const& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    throw std::runtime_error("cannot read " + path);
  }
  std::string const text{std::istreambuf_iterator<char>(in), {}};
  auto const* const first = reinterpret_cast<std::byte const*>(text.data());
  return {first, first + text.size()};
}

/// The trace's decode steps in which every layer has a route: [step][layer] -> ids in rank order.
std::vector<std::vector<std::vector<u16>>> decode_steps(trace::recording const& r) {
  std::map<std::pair<u32, u32>, std::vector<std::vector<u16>>> steps;
  std::size_t const n_layers = r.geometry().layers().size();
  for_each_event(r, [&](trace::event const& e) {
    if (e.phase == phase::decode && e.n_tokens == 1) {
      std::vector<std::vector<u16>>& layers = steps[{e.sequence, e.position}];
      layers.resize(n_layers);
      for (u16 id : e.ids) {
        if (id != trace::padding) {
          layers[e.row].push_back(id);
        }
      }
    }
  });
  std::vector<std::vector<std::vector<u16>>> whole;
  for (auto& [at, layers] : steps) {
    if (std::none_of(layers.begin(), layers.end(), [](auto const& ids) { return ids.empty(); })) {
      whole.push_back(std::move(layers));
    }
  }
  return whole;
}

}  // namespace

model_routes read_routes(char const* model, std::string const& path, u32 most_steps) {
  model_routes m;
  m.model = presets::find(model);
  m.name = model;
  trace::recording const r = trace::read_warmset(bytes_of_file(path));
  std::vector<std::vector<std::vector<u16>>> const steps = decode_steps(r);
  if (steps.empty()) {
    throw std::runtime_error(path + " has no decode step in which every layer has a route");
  }
  m.k = m.model.layers()[0].k;
  m.n_steps = min_of(static_cast<u32>(steps.size()), most_steps);
  u32 const n_experts = m.model.layers()[0].n_experts;
  u32 const of_trace = r.geometry().layers()[0].n_experts;
  u32 const trace_layers = static_cast<u32>(r.geometry().layers().size());
  u32 const n_groups = max_of(1u, min_of(n_experts / of_trace, m.k));
  m.source = r.model() + ", " + std::to_string(m.n_steps) + " decode steps";
  if (n_groups != 1 || of_trace != n_experts || trace_layers != m.n_layers() || r.geometry().layers()[0].k != m.k) {
    m.source += ", mapped from " + std::to_string(trace_layers) + " layers of " + std::to_string(of_trace) +
                " experts, k " + std::to_string(r.geometry().layers()[0].k);
  }
  for (u32 step = 0; step < m.n_steps; ++step) {
    for (u32 layer = 0; layer < m.n_layers(); ++layer) {
      std::vector<i32> ids;
      for (u32 group = 0; group < n_groups; ++group) {
        u32 const share = m.k / n_groups + (group < m.k % n_groups ? 1 : 0);
        std::size_t const until = ids.size() + share;
        u32 from = (layer + group * max_of(1u, trace_layers / n_groups)) % trace_layers;
        for (u32 tries = 0; ids.size() < until && tries < trace_layers; ++tries, from = (from + 1) % trace_layers) {
          for (u16 id : steps[step][from]) {  // more than one layer only where the trace's k is smaller
            i32 const mapped = static_cast<i32>(group * of_trace + id);
            if (ids.size() < until && mapped < static_cast<i32>(n_experts) &&
                std::find(ids.begin(), ids.end(), mapped) == ids.end()) {
              ids.push_back(mapped);
            }
          }
        }
      }
      if (ids.size() != m.k) {
        throw std::runtime_error(path + " has too few routes for k = " + std::to_string(m.k));
      }
      m.ids.insert(m.ids.end(), ids.begin(), ids.end());
    }
  }
  return m;
}

std::vector<i32> stand_in_hints(model_routes const& m, double recall) {
  std::mt19937_64 random{1};
  std::vector<i32> hints(std::size_t{m.n_steps} * m.n_layers() * most_hints, -1);
  u64 const sure = static_cast<u64>(recall * 65536);
  i32* to = hints.data();
  for (u32 step = 0; step < m.n_steps; ++step) {
    for (u32 layer = 0; layer < m.n_layers(); ++layer, to += most_hints) {
      i32 const* const routed = m.of(step, layer);
      u32 n = 0;
      for (u32 i = 0; i < most_hints; ++i) {
        if (i < m.k && random() % 65536 < sure) {
          to[n++] = routed[i];
          continue;
        }
        for (u32 tries = 0; tries < 64; ++tries) {
          i32 const other = m.of(static_cast<u32>(random() % m.n_steps), layer)[random() % m.k];
          if (std::find(routed, routed + m.k, other) == routed + m.k && std::find(to, to + n, other) == to + n) {
            to[n++] = other;
            break;
          }
        }
      }
    }
  }
  return hints;
}

}  // namespace gpu_bench
