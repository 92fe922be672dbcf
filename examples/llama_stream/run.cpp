// SPDX-License-Identifier: Apache-2.0
#include "run.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <optional>

namespace warmset_llama {

namespace {

double cpu_seconds() noexcept {
  std::timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

run_result run_once(model const& m, std::vector<expert_layer> const& layers,
                    std::vector<sequence> const& all, text_options const& o, way how,
                    pool_options const& pool, bool keeps_logits,
                    std::function<void()> const& on_pass) {
  using clock = std::chrono::steady_clock;
  run_result r;
  std::optional<streamer> served;
  std::optional<idle_gates> idle;
  context::options numbers{longest(all), std::min(o.batch, longest(all)), o.threads};
  if (how == way::pool) {
    numbers.listener = &served.emplace(layers, pool.policy, pool.slots);
  } else if (how == way::idle) {
    numbers.listener = &idle.emplace(layers);
  }
  context c(m, numbers);
  clock::time_point start;
  double cpu_start = 0;
  listeners who;
  who.before = [&](pass const& p) {
    if (served) {
      served->begin(p);
    }
    start = clock::now();
    cpu_start = cpu_seconds();
  };
  who.after = [&](pass const& p, context const& from) {
    std::size_t const phase = static_cast<std::size_t>(p.phase);
    r.seconds[phase] += std::chrono::duration<double>(clock::now() - start).count();
    r.cpu_seconds += cpu_seconds() - cpu_start;
    r.tokens[phase] += p.tokens.size();
    if (served) {
      served->end();
    }
    for (u32 i = 0; keeps_logits && i < p.n_outputs(); ++i) {
      std::span<float const> const row = from.logits(i);
      r.logits.insert(r.logits.end(), row.begin(), row.end());
    }
    if (on_pass) {
      on_pass();
    }
  };
  r.texts = compute(m, c, all, o, who);
  if (served) {
    r.served_steps = served->served_steps();
    r.overflow_steps = served->overflow_steps();
    r.bytes_copied = served->bytes_copied();
    r.pool_bytes = served->pool_bytes();
    r.counters = {served->pool().total(warmset::phase::prefill),
                  served->pool().total(warmset::phase::decode)};
    r.is_sound = served->pool().is_sound();
  }
  return r;
}

}  // namespace warmset_llama
