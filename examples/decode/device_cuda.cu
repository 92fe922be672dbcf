// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <warmset/cuda.cuh>
#include <warmset/cuda/phase_probe.hpp>
#include <warmset/cuda/runtime.hpp>

#include "graph_device.hpp"

namespace warmset_decode {

using namespace warmset;

namespace {

using adaptor = cuda::failing_gather<cuda::throttled_gather<>>;
using pools = cuda::device_pools<decode_policy, adaptor>;
using probe = cuda::basic_phase_probe<cuda::runtime, time_span>;

/// Every operation is a kernel of this form.
template <class Op>
__global__ void __launch_bounds__(ops::block_threads) op_kernel(__grid_constant__ Op const op) {
  __shared__ cuda::block_words words;
  __shared__ typename Op::shared shared;
  op(cuda::block_lanes{words}, blockIdx.x, shared);
}

void check(cudaError_t code, char const* what) {
  if (code != cudaSuccess) {
    (void)cudaGetLastError();
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(code));
  }
}

/// There is a GPU, or this says in one sentence why there is none.
struct gpu {
  gpu() {
    int n = 0;
    cudaError_t const code = cudaGetDeviceCount(&n);
    (void)cudaGetLastError();
    if (code != cudaSuccess || n == 0) {
      throw config_error("--device cuda: no GPU can be used: ",
                         code != cudaSuccess ? cudaGetErrorString(code) : "there is none");
    }
  }
};

/// The experts of a model in mapped pinned memory.
class pinned_experts final : public cuda::mapped_source {
 public:
  /// One copy for all devices of a model: what is compared reads the same pages. One thread.
  static std::shared_ptr<pinned_experts const> of(model const& m) {
    static std::weak_ptr<pinned_experts const> last;
    static model const* last_model = nullptr;
    auto found = last_model == &m ? last.lock() : nullptr;
    if (found == nullptr) {
      found = std::make_shared<pinned_experts const>(m);
      last = found;
      last_model = &m;
    }
    return found;
  }

  explicit pinned_experts(model const& m) {
    arena measure;
    (void)place(m, measure);
    memory_ = cuda::mapped_memory<unsigned char>(measure.size());
    arena on_device(memory_.device_data());
    banks_ = place(m, on_device);
    for (u32 l = 0; l < m.numbers.layers; ++l) {
      for (u32 b = 0; b < n_banks; ++b) {
        auto const& bytes = m.layers[l].experts[b]->bytes;
        std::memcpy(memory_.data() + (banks_[l * n_banks + b] - memory_.device_data()),
                    bytes.data(), bytes.size());
      }
    }
  }
  unsigned char const* bank(layer_id layer, u32 bank) const override {
    return banks_[layer.value * n_banks + bank];
  }
  unsigned char const* data() const { return memory_.data(); }
  u64 size() const { return memory_.size(); }

 private:
  static std::vector<unsigned char*> place(model const& m, arena& to) {
    std::vector<unsigned char*> banks;
    for (model::layer const& layer : m.layers) {
      for (gguf::tensor const* t : layer.experts) {
        banks.push_back(to.take<unsigned char>(t->bytes.size()));
      }
    }
    return banks;
  }
  cuda::mapped_memory<unsigned char> memory_;
  std::vector<unsigned char*> banks_;  // [layer][bank], as kernels name it
};

/// A graph as a capture leaves it.
struct recorded {
  recorded() = default;
  recorded(recorded const&) = delete;
  recorded& operator=(recorded const&) = delete;
  ~recorded() {
    if (of != nullptr) {
      (void)cudaGraphDestroy(of);
    }
  }
  cudaGraph_t of = nullptr;
};

/// A captured step.
class graph {
 public:
  graph() = default;
  explicit graph(recorded const& made) {
    check(cudaGraphInstantiate(&ready_, made.of, 0), "instantiating a graph");
  }
  graph(graph&& other) noexcept : ready_(std::exchange(other.ready_, nullptr)) {}
  graph& operator=(graph&& other) noexcept {
    std::swap(ready_, other.ready_);
    return *this;
  }
  ~graph() {
    if (ready_ != nullptr) {
      (void)cudaGraphExecDestroy(ready_);
    }
  }
  explicit operator bool() const noexcept { return ready_ != nullptr; }
  void launch(cudaStream_t stream) const {
    check(cudaGraphLaunch(ready_, stream), "launching a graph");
  }

 private:
  cudaGraphExec_t ready_ = nullptr;
};

struct stream {
  stream() {
    cuda::detail::require(cudaStreamCreateWithFlags(&of, cudaStreamNonBlocking), "a stream");
  }
  stream(stream const&) = delete;
  stream& operator=(stream const&) = delete;
  ~stream() { (void)cudaStreamDestroy(of); }
  cudaStream_t of = nullptr;
};

adaptor adaptor_of(device_options const& o, unsigned long long* free_at) {
  u64 const ps = o.link_bytes_per_us == 0 ? 0 : ceil_div(u64{1'000'000}, o.link_bytes_per_us);
  return {{{}, free_at, static_cast<u32>(ps)}, o.seed, o.copy_failures_q16};
}

class cuda_engine final : public step_engine {
 public:
  cuda_engine(model const& m, device_options const& options, step_shape const& shape)
      : a_(m.numbers), shape_(shape), experts_(pinned_experts::of(m)), link_free_at_(1), held_(m, options),
        pools_(held_.geometry, held_.sites, {held_.tables.data(), held_.tables.size()}, *experts_,
               {}, adaptor_of(options, link_free_at_.data())),
        logits_(a_.vocabulary), now_(1),
        link_bytes_per_us_(options.link_bytes_per_us != 0 ? options.link_bytes_per_us
                                                          : measured_link()),
        beside_{cuda::branch::make(), cuda::branch::make()} {
    arena page_size;
    (void)lay_out_page(a_, shape.n_hints, page_size);
    page_memory_ = cuda::mapped_memory<unsigned char>(page_size.size());
    arena here(page_memory_.data());
    page_ = lay_out_page(a_, shape.n_hints, here);
    arena there(page_memory_.device_data());
    device_page_ = lay_out_page(a_, shape.n_hints, there);

    dense_part const dense(m);
    std::vector<weights_to_copy> copies;
    arena size;
    (void)dense.lay_out(shape, size, copies);
    copies.clear();
    memory_ = cuda::device_memory<unsigned char>(size.size());
    arena memory(memory_.data());
    step_ = dense.lay_out(shape, memory, copies);
    for (weights_to_copy const& c : copies) {
      check(
          cudaMemcpy(const_cast<float*>(c.to), c.from, c.n * sizeof(float), cudaMemcpyHostToDevice),
          "copying weights");
    }
    std::vector<ops::layer_facts> facts;
    for (u32 l = 0; l < a_.layers; ++l) {
      layer_memory const& w = step_.layers[l];
      facts.push_back({pools_.counters(l), pools_.fetched(l, intent::demand),
                       pools_.fetched(l, intent::speculative), w.ids, w.weights, w.hints});
      if (!pools_.fits(held_.geometry.layers()[l].layer, 1)) {
        throw config_error("layer ", l, ": a token's experts do not fit");
      }
    }
    check(cudaMemcpy(step_.facts, facts.data(), facts.size() * sizeof facts[0],
                     cudaMemcpyHostToDevice),
          "copying addresses");
    check(pools_.take_over({held_.tables.data(), held_.tables.size()}, epoch).code,
          "taking the pools over");
  }
  ~cuda_engine() override { (void)cudaStreamSynchronize(stream_.of); }

  step_page const& page() const override { return page_; }
  void set(phase p, u64 hint_bytes) override {
    // the last step is over, and so is its copy of this
    *now_.data() = {epoch, p, 0, step_context::no_token, hint_bytes};
    check(pools_.set(stream_.of, now_.data()).code, "telling the graphs");
  }
  u64 link_bytes_per_us() const override { return link_bytes_per_us_; }
  u64 run(bool ahead) override {
    captured& of = captured_[ahead ? 1 : 0];
    if (!of.ready) {
      capture(of, ahead);
    }
    auto const begin = std::chrono::steady_clock::now();
    of.ready.launch(stream_.of);
    if (of.times) {
      of.times->launched();
    }
    check(cudaStreamSynchronize(stream_.of), "a step");
    u64 const took = ns_since(begin);
    if (of.times) {
      (void)of.times->collect(*table_);
    }
    return took;
  }
  std::span<float const> logits() override {
    check(cudaMemcpyAsync(logits_.data(), step_.logits, logits_.size() * sizeof(float),
                          cudaMemcpyDeviceToHost, stream_.of),
          "reading logits");
    check(cudaStreamSynchronize(stream_.of), "reading logits");
    return {logits_.data(), logits_.size()};
  }
  void measure(phase_table* table) override { table_ = table; }

 private:
  static constexpr u32 epoch = 1;

  static u64 ns_since(std::chrono::steady_clock::time_point begin) {
    auto const took = std::chrono::steady_clock::now() - begin;
    return static_cast<u64>(std::chrono::duration_cast<std::chrono::nanoseconds>(took).count());
  }

  /// What the link brings by itself, by the fastest of a few copies; at least 1.
  u64 measured_link() const {
    u64 const bytes = std::min(experts_->size(), u64{32} << 20);
    cuda::device_memory<unsigned char> room(static_cast<std::size_t>(bytes));
    u64 best = u64_max;
    for (int i = 0; i < 4; ++i) {
      auto const begin = std::chrono::steady_clock::now();
      check(cudaMemcpy(room.data(), experts_->data(), bytes, cudaMemcpyHostToDevice),
            "measuring the link");
      check(cudaDeviceSynchronize(), "measuring the link");
      best = std::min(best, ns_since(begin));
    }
    return std::max(bytes * 1000 / std::max(best, u64{1}), u64{1});
  }

  struct captured {
    graph ready;
    std::optional<probe> times;
  };

  /// Puts operations into the stream that is captured. Keeps the first thing that went wrong, so that a capture always
  /// ends.
  class stage {
   public:
    stage(cuda_engine& of, probe* times) : of_(of), stream_(of.stream_.of), times_(times) {}

    template <class Op>
    void run(int place, Op const& op, u32 blocks) {
      cudaStream_t const to = place < 0 ? stream_ : of_.beside_[place % 2].stream();
      op_kernel<Op><<<blocks, ops::block_threads, 0, to>>>(op);
      note(cudaPeekAtLastError());
    }
    void fork(u32 layer) { note(of_.beside_[layer % 2].fork(stream_).code); }
    void join(u32 layer) { note(of_.beside_[layer % 2].join(stream_).code); }
    void advise(u32 layer, u32 width) {
      note(of_.pools_
               .plan_hints(of_.beside_[(layer - 1) % 2].stream(), id(layer),
                           of_.step_.layers[layer].hints, width)
               .code);
    }
    void fetch(u32 layer) {
      fork(layer - 1);
      note(of_.pools_.fetch_hints(of_.beside_[(layer - 1) % 2].stream(), id(layer)).code);
    }
    void serve(u32 layer) {
      layer_memory const& w = of_.step_.layers[layer];
      note(of_.pools_.record(stream_, id(layer), w.ids, of_.a_.k, w.answers).code);
    }
    cuda::served_experts served(u32 layer) const { return of_.pools_.served(id(layer)); }
    void finish() { note(of_.pools_.join(stream_).code); }
    void begin(time_row row) {
      if (times_ != nullptr) {
        (void)times_->begin(stream_, row);
      }
    }
    void end(time_row row) {
      if (times_ != nullptr) {
        (void)times_->end(stream_, row);
      }
    }

    void note(cudaError_t code) { first_ = first_ == cudaSuccess ? code : first_; }
    cudaError_t first() const { return first_; }

   private:
    layer_id id(u32 layer) const { return of_.held_.geometry.layers()[layer].layer; }
    cuda_engine& of_;
    cudaStream_t stream_;
    probe* times_;
    cudaError_t first_ = cudaSuccess;
  };

  void capture(captured& to, bool ahead) {
    if (table_ != nullptr) {
      to.times.emplace(4 * a_.layers + 2, 1);
    }
    probe* const times = to.times ? &*to.times : nullptr;
    stage into(*this, times);
    check(cudaStreamBeginCapture(stream_.of, cudaStreamCaptureModeThreadLocal), "a capture");
    if (times != nullptr) {
      (void)times->begin_step(stream_.of);
    }
    record_step(into, a_, shape_, device_page_, step_, ahead);
    if (times != nullptr) {
      (void)times->end_step(stream_.of);
    }
    recorded made;
    cudaError_t const ended = cudaStreamEndCapture(stream_.of, &made.of);
    check(into.first(), "recording a step");
    check(ended, "a capture");
    to.ready = graph(made);
  }

  gpu needed_;  // first: nothing else is tried without one
  architecture a_;
  step_shape shape_;
  std::shared_ptr<pinned_experts const> experts_;
  cuda::device_memory<unsigned long long> link_free_at_;
  step_pools held_;
  pools pools_;
  cuda::mapped_memory<float> logits_;
  cuda::mapped_memory<unsigned char> page_memory_;
  cuda::mapped_memory<cuda::launch_state> now_;
  cuda::device_memory<unsigned char> memory_;
  u64 link_bytes_per_us_;
  step_page page_{};
  step_page device_page_{};
  step_memory step_{};
  stream stream_;
  cuda::branch beside_[2];  // of even and odd layers: each is joined after the next has forked
  phase_table* table_ = nullptr;
  captured captured_[2];  // without and with the branches that look ahead
};

std::unique_ptr<step_engine> make_cuda_engine(model const& m, device_options const& options,
                                              step_shape const& shape) {
  return std::make_unique<cuda_engine>(m, options, shape);
}

}  // namespace

std::unique_ptr<device> make_cuda_device(model const& m, device_options const& options,
                                         instruments* tools) {
  return make_graph_device(m, options, tools, &make_cuda_engine);
}

}  // namespace warmset_decode
