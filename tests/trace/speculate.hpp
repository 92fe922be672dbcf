// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support.hpp"

#include <algorithm>
#include <memory>

#include <warmset/cache.hpp>
#include <warmset/observe/laws.hpp>
#include <warmset/predict/named.hpp>
#include <warmset/table/bundles.hpp>
#include <warmset/trace/speculative_replay.hpp>

/// Speculative replays as the tests of this room play them.
namespace trace_test {

/// A bundle that takes hints, without a reserve for them: speculation may evict what a demand would evict.
template <class Bundle>
struct hinted : bundles::guarded<Bundle, guard::none> {};

/// A predictor behind virtual calls: a sweep of many compiles the replay once.
class any_predictor {
 public:
  template <class P>
  static any_predictor of() {
    any_predictor made;
    made.model_ = std::make_unique<model_of<P>>();
    return made;
  }

  static constexpr bool speculates = true;
  static constexpr char const* name = "any";
  static constexpr u32 horizon = 1;  // layers_ahead() is what counts

  u32 layers_ahead() const noexcept { return model_->layers_ahead(); }
  void open(geometry const& g) { model_->open(g); }
  void tell(u32 row, array_view<u32 const> next) noexcept { model_->tell(row, next); }
  void learn(routing_snapshot const& seen) noexcept { model_->learn(seen); }
  u32 predict(routing_snapshot const& seen, u32 width, array_view<hint> out) const noexcept {
    return model_->predict(seen, width, out);
  }

 private:
  struct model {
    virtual ~model() = default;
    virtual u32 layers_ahead() const noexcept = 0;
    virtual void open(geometry const& g) = 0;
    virtual void tell(u32 row, array_view<u32 const> next) noexcept = 0;
    virtual void learn(routing_snapshot const& seen) noexcept = 0;
    virtual u32 predict(routing_snapshot const& seen, u32 width,
                        array_view<hint> out) const noexcept = 0;
  };
  template <class P>
  struct model_of final : model {
    P predictor;

    u32 layers_ahead() const noexcept override { return P::horizon; }
    void open(geometry const& g) override { predictor.open(g); }
    void tell([[maybe_unused]] u32 row,
              [[maybe_unused]] array_view<u32 const> next) noexcept override {
      if constexpr (predict::is_told<P>) {
        predictor.tell(row, next);
      }
    }
    void learn(routing_snapshot const& seen) noexcept override { predictor.learn(seen); }
    u32 predict(routing_snapshot const& seen, u32 width,
                array_view<hint> out) const noexcept override {
      return predictor.predict(seen, width, out);
    }
  };

  std::unique_ptr<model> model_;
};

template <class Predictor>
u32 horizon_of(Predictor const& predictor) {
  if constexpr (requires { predictor.layers_ahead(); }) {
    return predictor.layers_ahead();
  } else {
    return Predictor::horizon;
  }
}

struct played {
  trace::speculative_report report;
  total_counters sum;
};

struct setting {
  trace::link_numbers link{16'000'000'000, 0, 5'000, 1'000'000};
  trace::speculation how{};
  u32 slots = 8;  ///< per layer; of a shared pool on average
  trace::selection which{.prefill = false};
};

/// Plays and checks what must hold of every replay: the table's invariants, the laws, and that the ledger has judged
/// every hint that it can.
template <class Bundle, class Predictor>
played speculate(trace::recording const& r, setting const& s, Predictor predictor = Predictor()) {
  tuning numbers = Bundle::numbers;
  if constexpr (speculates<Bundle>) {
    u32 const room = Bundle::pool::spans_layers ? s.slots : s.slots - 1;
    numbers.speculative_slots =
        std::min(s.how.width, room) * (Bundle::pool::spans_layers ? horizon_of(predictor) + 1 : 1);
  }
  cache<Bundle, trace::link_backend> c{r.geometry(), budget::of_slots(s.slots), numbers,
                                       trace::link_backend{s.link}};
  played p{trace::replay_speculatively(r, s.which, c, predictor, s.how), {}};
  p.sum = c.observer().total();
  audit_result const audit = c.audit();
  CHECK(audit);
  law_result const law = check_laws(p.sum, c.slot_counts());
  INFO(name_of(law.broken) << ": " << law.left << " != " << law.right);
  CHECK(law);
  CHECK(p.report.judged.used + p.report.judged.wasted <= p.sum.issued[1].value);
  return p;
}

/// The same routes with experts of other bytes, in three banks.
inline trace::recording with_expert_bytes(trace::recording r, u64 bytes) {
  trace::contents parts = std::move(r).release();
  std::vector<layer_geometry> layers = parts.geometry.layers();
  for (layer_geometry& layer : layers) {
    layer.bank_bytes = {bytes / 3, bytes / 3, bytes - bytes / 3 * 2};
  }
  parts.geometry = geometry(std::move(layers));
  return trace::recording(std::move(parts));
}

/// Bytes of an expert of gpt-oss-20b.
inline constexpr u64 gpt_oss_bytes = 13'219'200;

/// A bundled trace with experts of gpt-oss-20b's bytes, or nothing without zstd.
inline std::optional<trace::recording> bundled(char const* name = "tinymoe-8x32.wst.zst") {
#if defined(WARMSET_HAS_ZSTD)
  return with_expert_bytes(
      read_trace_file(
          (std::filesystem::path(WARMSET_SOURCE_DIR) / "examples/data" / name).string()),
      gpt_oss_bytes);
#else
  (void)name;
  return std::nullopt;
#endif
}

inline trace::selection decoded(u32 first, u32 last) {
  trace::selection s;
  s.prefill = false;
  s.sequences = trace::selection::rule::range;
  s.first = first;
  s.last = last;
  return s;
}

#define REQUIRE_BUNDLED(name)                                                                      \
  std::optional<trace::recording> const name = bundled();                                          \
  if (!name) {                                                                                     \
    SKIP("skipped: the bundled trace needs zstd");                                                 \
  }

/// What a predictor may cost in the link model: 1 % of the stall without it, and the sampling of the governor.
inline double allowed_ns(trace::speculative_report const& without, setting const& s,
                         layer_geometry const& layer) {
  u64 const expert =
      trace::link_time(s.link, layer.expert_bytes(), static_cast<u32>(layer.bank_bytes.size()));
  return 1.01 * static_cast<double>(without.total_stall_ns()) +
         static_cast<double>(s.how.numbers.min_samples * expert);
}

}  // namespace trace_test
