// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <kit/thread_lanes.hpp>

#include <warmset/table/audit.hpp>

#include "decode/graph_device.hpp"

/// The host twin of the CUDA engine: the same operations, decisions and gathers as a graph's kernels, in ordinary memory.
namespace decode_test {

using namespace warmset;
using namespace warmset_decode;

/// When a twin does what a GPU may do beside the stream of the steps: a branch's work and what a score learns.
enum class beside_runs { at_once, as_late_as_possible };

/// What a block finds in its shared memory, so that a read before the first write is no lucky zero.
template <class Shared>
void leave_garbage(Shared& shared) {
  static_assert(std::is_trivially_copyable_v<Shared>);
  std::memset(static_cast<void*>(&shared), 0xFF, sizeof shared);
}

/// Lets every operation of a graph run one after the other, block after block, by one lane or by several, which are threads.
class twin_engine final : public step_engine {
 public:
  twin_engine(model const& m, device_options const& options, step_shape const& shape,
              beside_runs when, u32 n_lanes)
      : a_(m.numbers), options_(options), shape_(shape), when_(when), n_lanes_(n_lanes),
        team_(n_lanes), dense_(m),
        pools_(m, options), adaptor_{{}, options.seed, options.copy_failures_q16} {
    arena measure_page;
    (void)lay_out_page(a_, shape.n_hints, measure_page);
    page_memory_.resize(measure_page.size() / sizeof(std::max_align_t) + 1);
    arena page(page_memory_.data());
    page_ = lay_out_page(a_, shape.n_hints, page);

    std::vector<weights_to_copy> copies;
    arena measure;
    (void)dense_.lay_out(shape, measure, copies);
    copies.clear();
    memory_.resize(measure.size() / sizeof(std::max_align_t) + 1);
    arena memory(memory_.data());
    step_ = dense_.lay_out(shape, memory, copies);
    for (weights_to_copy const& c : copies) {
      std::copy_n(c.from, c.n, const_cast<float*>(c.to));
    }
    check_sites(pools_.geometry, {pools_.sites.data(), pools_.sites.size()});
    layouts_ = layouts_of(pools_.geometry, {pools_.sites.data(), pools_.sites.size()}, 0);
    for (group_layout const& g : layouts_) {
      banks_.emplace_back(g.bytes(), 0xFF);  // what is no expert's is no number
    }
    for (u32 l = 0; l < a_.layers; ++l) {
      add_pool(m, l);
      step_.facts[l] = {views_[l]->out,      &views_[l]->queue,       &views_[l]->hint_queue,
                        step_.layers[l].ids, step_.layers[l].weights, step_.layers[l].hints};
    }
  }

  step_page const& page() const override { return page_; }
  void set(phase p, u64 hint_bytes) override {
    phase_ = p;
    hint_bytes_ = hint_bytes;
    ++n_sets;
  }
  u64 run(bool ahead) override {
    record_step(*this, a_, shape_, page_, step_, ahead);
    REQUIRE(late_.empty());
    for (u32 l = 0; l < a_.layers; ++l) {
      REQUIRE(audit(pools_.tables[l].view()));
    }
    return made_up_ns(ahead);
  }
  u64 link_bytes_per_us() const override { return options_.link_bytes_per_us; }
  std::span<float const> logits() override { return {step_.logits, a_.vocabulary}; }
  void measure(phase_table* table) override {
    if (table != nullptr) {
      table->switch_off("a twin has no clock");
    }
  }

  inline static u32 n_sets = 0;  ///< how often any of them has been told what it is under

  // ---- the stage

  template <class Op>
  void run(int place, Op const& op, u32 blocks) {
    later(place, [this, op, blocks] {
      typename Op::shared shared{};
      for (u32 block = 0; block < blocks; ++block) {
        leave_garbage(shared);
        by_lanes([&](auto const& lanes) { op(lanes, block, shared); });
      }
    });
  }
  void fork(u32) {}
  void join(u32 layer) { carry_out(static_cast<int>(layer)); }
  void finish() { carry_out(learning); }
  void begin(time_row) {}
  void end(time_row) {}
  void advise(u32 layer, u32 width) {
    later(static_cast<int>(layer) - 1, [this, layer, width] {
      pool& p = *views_[layer];
      cuda::pool_view<decode_policy> view = p.view;
      view.queue = &p.hint_queue;
      by_lanes([&](auto const& lanes) {
        cuda::hints_on_device<decode_policy>(lanes, view, {0, 0, phase_, hint_bytes_},
                                             step_.layers[layer].hints, width, p.workspace,
                                             p.hint_plan);
      });
    });
  }
  void fetch(u32 layer) {
    later(static_cast<int>(layer) - 1, [this, layer] {
      cuda::pool_view<decode_policy> view = views_[layer]->view;
      view.queue = &views_[layer]->hint_queue;
      fetch(view);
    });
  }
  void serve(u32 layer) {
    carry_out(learning);
    pool& p = *views_[layer];
    layer_memory const& w = step_.layers[layer];
    by_lanes([&](auto const& lanes) {
      cuda::step_on_device<decode_policy>(lanes, p.view, {0, 0, phase_}, w.ids, a_.k, w.answers,
                                          p.workspace, p.plan);
    });
    fetch(p.view);
    later(learning, [this, &p] {
      by_lanes([&](auto const& lanes) { cuda::learn_on_device<decode_policy>(lanes, p.view); });
    });
  }
  cuda::served_experts served(u32 layer) const {
    auto const& v = views_[layer]->view;
    return {v.banks, v.arrivals, 0, v.shape.n_slots, v.first_slot, v.first_scratch};
  }

  table<decode_policy> const& pool_table(u32 layer) const { return pools_.tables[layer]; }

 private:
  static constexpr int main = -1;
  static constexpr int learning = -2;

  struct pool {
    std::vector<u32> arrivals;
    outcome out[n_phases]{};
    ops::queue queue{};
    ops::queue hint_queue{};
    std::vector<unsigned char const*> sources;
    std::vector<cuda::bank_addresses> banks;
    workspace_of<decode_policy> workspace{};
    plan_of<decode_policy> plan{};
    plan_of<decode_policy> hint_plan{};
    cuda::pool_view<decode_policy> view;
  };

  void add_pool(model const& m, u32 layer) {
    constexpr u32 piece_bytes = 1024;
    pool_site const& site = pools_.sites[layer];
    group_layout const& layout = layouts_[site.group];
    table<decode_policy>& owner = pools_.tables[layer];
    std::vector<u32> arrivals(site.n_slots);
    std::vector<unsigned char const*> sources(n_banks);
    for (u32 b = 0; b < n_banks; ++b) {
      sources[b] = reinterpret_cast<unsigned char const*>(m.layers[layer].experts[b]->bytes.data());
    }
    std::vector<cuda::bank_addresses> banks;
    u32 n_pieces = 0;
    for (u32 b = 0; b < n_banks; ++b) {
      unsigned char* const bank = banks_[site.group].data();
      banks.push_back({&sources[b], bank + layout.offset(b, site.first_slot),
                       bank + layout.offset(b, site.first_scratch), layout.stride(b)});
      n_pieces += static_cast<u32>(ceil_div(layout.stride(b), u64{piece_bytes}));
    }
    views_.push_back(std::unique_ptr<pool>(
        new pool{std::move(arrivals),
                 {},
                 {},
                 {},
                 std::move(sources),
                 std::move(banks),
                 {},
                 {},
                 {},
                 {const_cast<void*>(owner.block()), owner.parts(), owner.view().shape(), nullptr,
                  nullptr, nullptr, nullptr, nullptr, n_banks, piece_bytes, n_pieces,
                  site.first_slot, site.first_scratch}}));
    pool& p = *views_.back();
    p.view.arrivals = p.arrivals.data();
    p.view.plan = &p.plan;
    p.view.out = p.out;
    p.view.queue = &p.queue;
    p.view.banks = p.banks.data();
    for (u32 b = 0; b < n_banks; ++b) {
      p.banks[b].source = &p.sources[b];
    }
  }

  /// How long the step would have taken on a serial link: layers compute for as long as the options say, hints go out
  /// when the layer before theirs does, and a layer waits for its own and for what it demands.
  u64 made_up_ns(bool ahead) const {
    u64 now = 0, before = 0, free_at = 0;
    for (u32 l = 0; l < a_.layers; ++l) {
      u64 expert_bytes = 0;
      for (cuda::bank_addresses const& b : views_[l]->banks) {
        expert_bytes += b.bytes;
      }
      auto const send = [&](u64 from, u32 n) {
        u64 const rate = options_.link_bytes_per_us;
        if (rate != 0 && n != 0) {
          free_at = std::max(free_at, from) + n * expert_bytes * 1000 / rate;
          now = std::max(now, free_at);
        }
      };
      if (ahead && l != 0) {
        send(before, views_[l]->hint_queue.n);
      }
      before = now;
      send(now, views_[l]->queue.n);
      now += options_.compute_ns;
    }
    return now;
  }

  void fetch(cuda::pool_view<decode_policy> const& view) {
    for (u32 worker = 0; worker < 2; ++worker) {
      cuda::gather<decode_policy>(
          view, worker, 2, adaptor_,
          [](unsigned char* to, unsigned char const* from, u64 bytes) {
            std::memcpy(to, from, bytes);
          },
          [](u32& left) { return --left == 0; });
    }
  }

  template <class F>
  void by_lanes(F&& f) {
    if (n_lanes_ == 1) {
      f(one_lane{});
    } else {
      team_.run([&](kit::thread_lanes lanes) { f(lanes); });
    }
  }
  void later(int place, std::function<void()> work) {
    if (place == main || when_ == beside_runs::at_once) {
      work();
    } else {
      late_.push_back({place, std::move(work)});
    }
  }
  void carry_out(int place) {
    std::vector<waiting> rest;
    for (waiting& each : std::exchange(late_, {})) {
      if (each.place == place) {
        each.work();
      } else {
        rest.push_back(std::move(each));
      }
    }
    late_ = std::move(rest);
  }

  struct waiting {
    int place;
    std::function<void()> work;
  };

  architecture a_;
  device_options options_;
  step_shape shape_;
  beside_runs when_;
  u32 n_lanes_;
  kit::lane_team team_;
  dense_part dense_;
  step_pools pools_;
  cuda::failing_gather<> adaptor_;
  std::vector<std::max_align_t> page_memory_, memory_;
  step_page page_{};
  step_memory step_{};
  std::vector<group_layout> layouts_;
  std::vector<std::vector<unsigned char>> banks_;  // of a group
  std::vector<std::unique_ptr<pool>> views_;
  std::vector<waiting> late_;
  phase phase_ = phase::decode;
  u64 hint_bytes_ = u64_max;
};

template <beside_runs When, u32 Lanes>
std::unique_ptr<step_engine> make_twin_engine(model const& m, device_options const& options,
                                              step_shape const& shape) {
  return std::make_unique<twin_engine>(m, options, shape, When, Lanes);
}

/// A graph device over a twin.
template <beside_runs When = beside_runs::as_late_as_possible, u32 Lanes = 1>
std::unique_ptr<device> make_twin(model const& m, device_options const& options,
                                  instruments* tools = nullptr) {
  return make_graph_device(m, options, tools, &make_twin_engine<When, Lanes>);
}

}  // namespace decode_test
