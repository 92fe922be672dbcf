// SPDX-License-Identifier: Apache-2.0
// A decode loop with the shapes of real models and the routes of real traces: what serving experts from a pool costs, mode
// beside mode in one run. See README.md beside this file.

#include "decode.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "decode_common.hpp"

namespace gpu_bench {
namespace {

constexpr u32 shown_width = 8;  // of the modes that look ahead and are not paired
constexpr u32 widths[] = {4, 8, 16};
constexpr u32 least_rounds = 3;      // of pairs, however long they take
constexpr double settling_us = 3e5;  // after which a device that was idle has its clock
constexpr u32 resident_steps = 96;

/// What one mode came to: microseconds of each step, and what it moved.
struct mode_result {
  std::string name;
  std::vector<double> times;
  mode_counts counts;
  std::string note;

  double mean() const {
    double sum = 0;
    for (double t : times) {
      sum += t;
    }
    return sum / static_cast<double>(times.size());
  }
  /// Bytes a step that the link had to bring, whoever asked for them.
  double needed() const {
    return static_cast<double>(counts.missed_bytes + counts.used_bytes) /
           static_cast<double>(times.size());
  }
};

mode_result run_mode(decode_mode& mode, decode_options const& o, u32 n_steps, std::string name) {
  mode_result r{std::move(name), {}, {}, {}};
  mode.restart();
  mode_counts before;
  for (u32 i = 0; i < n_steps; ++i) {
    if (i == o.warm_up) {
      before = mode.counted();
      mode.warmed_up();
    }
    auto const begin = std::chrono::steady_clock::now();
    mode.step();
    double const us = us_since(begin);
    if (i >= o.warm_up) {
      r.times.push_back(us);
    }
  }
  r.counts = mode.counted() - before;
  r.note = mode.note();
  return r;
}

/// Steps with all experts resident, each timed: what every floor begins with. Its memory goes with it.
std::vector<double> time_resident(decoder& d, cudaStream_t stream) {
  std::unique_ptr<decode_mode> const mode = make_all_resident(d, stream);
  mode->restart();
  auto const start = std::chrono::steady_clock::now();
  while (us_since(start) < settling_us) {
    mode->step();
  }
  std::vector<double> times;
  for (u32 i = 0; i < resident_steps; ++i) {
    auto const begin = std::chrono::steady_clock::now();
    mode->step();
    times.push_back(us_since(begin));
  }
  return times;
}

/// Bytes per microsecond of the dense part's reader alone, over more than a cache holds.
double measure_dense_reader(timer const& t, model_routes const& m, decode_options const& o) {
  decode_options alone = o;
  alone.dense_bytes = u64{256} << 20;
  decoder d(m, alone);
  std::vector<double> times;
  for (u32 i = 0; i < 48; ++i) {
    double const us = t.microseconds([&] { d.record_dense(t.stream(), i % m.n_layers()); });
    if (i >= 16) {
      times.push_back(us);
    }
  }
  return static_cast<double>(alone.dense_bytes) / median(times);
}

void print_mode(report& out, mode_result const& r, double resident_us, link_rates const& rates,
                std::string const& model) {
  out.add({model + " | " + r.name, r.mean(), "us/step", 0, true, r.note, r.times});
  if (r.counts.lookups == 0) {
    return;
  }
  double const n = static_cast<double>(r.times.size());
  constexpr double mib = 1048576;
  out.add({"  hit rate", static_cast<double>(r.counts.hits) / static_cast<double>(r.counts.lookups),
           ""});
  out.add({"  missed by demand, per step", static_cast<double>(r.counts.missed_bytes) / n / mib,
           "MiB"});
  if (r.counts.hint_bytes != 0) {
    out.add(
        {"  moved for hints, per step", static_cast<double>(r.counts.hint_bytes) / n / mib, "MiB"});
    out.add({"  ... of it used",
             static_cast<double>(r.counts.used_bytes) / static_cast<double>(r.counts.hint_bytes),
             ""});
    out.add({"  hinted experts that left unused, per step",
             static_cast<double>(r.counts.wasted) / n, ""});
  }
  double const serial = resident_us + r.needed() / rates.gather;
  out.add({"  serial floor at the gather rate", serial, "us/step"});
  out.add({"  serial floor at the link's ceiling", resident_us + r.needed() / rates.ceiling,
           "us/step"});
  out.add({"  overlapped floor at the gather rate",
           std::max(resident_us, r.needed() / rates.gather), "us/step"});
  out.add({"  overlapped floor at the link's ceiling",
           std::max(resident_us, r.needed() / rates.ceiling), "us/step"});
  out.add({"  of the serial floor at the gather rate", r.mean() / serial, "x"});
}

/// The q-th part of the values, between neighbours in proportion.
double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  double const at = q * static_cast<double>(values.size() - 1);
  std::size_t const below = static_cast<std::size_t>(at);
  std::size_t const above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

/// One way to decode in a round of pairs.
struct arm {
  u32 width;
  std::string name;
  std::vector<double> us_per_step{};
  std::vector<double> speeds{};  // in that of no look-ahead in the same round
  mode_counts counts{};          // of the last round's timed steps
  std::string note{};
};

struct pairs_result {
  double best_speed = 0;    ///< of the widths above 0
  double missed_bytes = 0;  ///< of a step without look-ahead
};

/// No look-ahead, the same again and each width in turn, the same steps from an empty pool every time. Two rounds go
/// through the arms in both directions, and the next two begin with another arm.
pairs_result measure_pairs(report& out, look_ahead_mode& mode, decoder const& d,
                           std::string const& what) {
  u32 const n_steps = min_of(d.m.n_steps, d.o.warm_up + d.o.pair_steps);
  u32 const timed = n_steps - d.o.warm_up;
  std::vector<arm> arms{{0, "no look-ahead"}, {0, "no look-ahead, again (noise)"}};
  for (u32 width : widths) {
    arms.push_back({width, "look-ahead, width " + std::to_string(width)});
  }
  auto const start = std::chrono::steady_clock::now();
  for (u32 round = 0;
       round < d.o.pairs && (round < least_rounds || us_since(start) < d.o.pair_seconds * 1e6);
       ++round) {
    for (std::size_t i = 0; i < arms.size(); ++i) {
      std::size_t const at = round % 2 == 0 ? i : arms.size() - 1 - i;
      arm& a = arms[(at + round / 2) % arms.size()];
      mode.use(a.width);
      mode.restart();
      for (u32 step = 0; step < d.o.warm_up; ++step) {
        mode.step();
      }
      mode_counts const before = mode.counted();
      auto const begin = std::chrono::steady_clock::now();
      for (u32 step = 0; step < timed; ++step) {
        mode.step();
      }
      a.us_per_step.push_back(us_since(begin) / timed);
      a.counts = mode.counted() - before;
      a.note = mode.note();
    }
    for (arm& a : arms) {
      a.speeds.push_back(arms[0].us_per_step.back() / a.us_per_step.back());
    }
  }
  pairs_result result;
  result.missed_bytes = static_cast<double>(arms[0].counts.missed_bytes) / timed;
  out.add({what + " | rounds of pairs", static_cast<double>(arms[0].speeds.size()), ""});
  for (arm const& a : arms) {
    out.add(
        {what + " | " + a.name, median(a.us_per_step), "us/step", 0, true, a.note, a.us_per_step});
    if (&a == &arms[0]) {
      continue;
    }
    double const speed = median(a.speeds);
    bool const is_on = a.width != 0;
    out.add({"  speed in that without, median of pairs",
             speed,
             "x",
             is_on ? 0.99 : 0,
             false,
             {},
             a.speeds});
    out.add({"  ... first quartile", quantile(a.speeds, 0.25), "x"});
    out.add({"  ... third quartile", quantile(a.speeds, 0.75), "x"});
    out.add({"  missed by demand, per step",
             static_cast<double>(a.counts.missed_bytes) / timed / 1048576, "MiB"});
    if (is_on) {
      double const hinted = static_cast<double>(a.counts.hint_bytes);
      out.add({"  moved for hints, per step", hinted / timed / 1048576, "MiB"});
      out.add({"  ... of it used",
               hinted == 0 ? 0 : static_cast<double>(a.counts.used_bytes) / hinted, ""});
      result.best_speed = std::max(result.best_speed, speed);
    }
  }
  out.add({what + " | best width", result.best_speed, "x"});
  return result;
}

/// Bytes of a dense part that takes as long as the link needs for the misses of a layer, of 1 MiB at least and 4 GiB at most.
u64 dense_with_slack(double missed_bytes_per_layer, link_rates const& rates,
                     double dense_bytes_per_us) {
  double const wanted = missed_bytes_per_layer / rates.gather * dense_bytes_per_us;
  return static_cast<u64>(std::clamp(wanted / 1048576, 1.0, 4096.0)) << 20;
}

void print_resident(report& out, std::string const& what, std::vector<double> const& times) {
  out.add({what + " | all resident", median(times), "us/step", 0, true, "median", times});
}
void print_resident_again(report& out, std::string const& what, double first,
                          std::vector<double> const& times) {
  out.add({what + " | all resident again at the end, in the first (noise)",
           median(times) / first,
           "x",
           0,
           true,
           {},
           times});
}

/// Every mode but the paired ones, with its floors.
void measure_modes(report& out, decoder& d, cudaStream_t s, pinned_experts const& experts,
                   link_rates const& rates, double resident_us, decode_figures& f) {
  model_routes const& m = d.m;
  auto const run = [&](std::unique_ptr<decode_mode> mode,
                       char const* name) {  // its memory goes with it
    return run_mode(*mode, d.o, m.n_steps, name);
  };
  auto const print = [&](mode_result const& r) { print_mode(out, r, resident_us, rates, m.name); };

  mode_result const practice = run(make_common_practice(d, s, experts, 0),
                                   "common practice: read-back, linear LRU, a copy per miss");
  print(practice);
  print(run(make_common_practice(d, s, experts, shown_width),
            "common practice, look-ahead of width 8"));
  print(run(make_host_directed(d, s, experts, 0), "host-directed, decayed_count"));
  print(
      run(make_host_directed(d, s, experts, shown_width), "host-directed, look-ahead of width 8"));

  std::vector<mode_result> ours;
  ours.push_back(
      run(make_device_directed(d, s, experts, device_bundle::lru), "device-directed, lru"));
  ours.push_back(run(make_device_directed(d, s, experts, device_bundle::decayed_count),
                     "device-directed, decayed_count half-life 64"));
  ours.push_back(run(make_device_directed(d, s, experts, device_bundle::successor),
                     "device-directed, successor"));
  for (mode_result const& each : ours) {
    print(each);
  }
  mode_result const& best =
      *std::min_element(ours.begin(), ours.end(), [](mode_result const& a, mode_result const& b) {
        return a.mean() < b.mean();
      });
  f.of_serial_floor = best.mean() / (resident_us + best.needed() / rates.gather);
  f.against_practice = practice.mean() / best.mean();

  std::unique_ptr<look_ahead_mode> ahead = make_look_ahead(d, s, experts, rates, resident_us);
  ahead->use(shown_width);
  print(run(std::move(ahead), "device-directed, decayed_count, governed look-ahead of width 8"));
  out.add({m.name + " | best bundle, of the serial floor", f.of_serial_floor, "x", 1.08});
  out.add({m.name + " | common practice / best bundle", f.against_practice, "x", 1.0, false});
}

}  // namespace

decode_figures measure_decode(report& out, model_routes const& m, decode_options const& o) {
  timer const t;
  cudaStream_t const s = t.stream();
  pinned_experts const experts(m.model, max_of(o.pinned_bytes, u64{256} << 20));
  u64 const expert_bytes = m.model.layers()[0].expert_bytes();
  std::printf(
      "\n%s: %u layers, %u experts, k %u, %llu bytes per expert (first layer), %.1f GiB in all\n",
      m.name.c_str(), m.n_layers(), m.model.layers()[0].n_experts, m.k,
      static_cast<unsigned long long>(expert_bytes),
      static_cast<double>(m.model.total_bytes()) / 1073741824.0);
  out.add({m.name + " | slots, of the experts", o.resident, "", 0, true, "routes: " + m.source});
  out.add(
      {m.name + " | dense part of a layer", static_cast<double>(o.dense_bytes) / 1048576, "MiB"});
  out.add({m.name + " | recall at width k of what stands for a look-ahead", o.recall, ""});
  link_rates const rates = measure_link(t, experts.memory(), expert_bytes);
  out.add({m.name + " | link's ceiling, 256 MiB copy", rates.ceiling / 1000, "GB/s"});
  out.add({m.name + " | gather kernel", rates.gather / 1000, "GB/s"});

  double const dense_rate = measure_dense_reader(t, m, o);
  out.add({m.name + " | reader of the dense part alone", dense_rate / 1000, "GB/s"});

  decode_figures f{};
  pairs_result without_slack;
  {
    decoder d(m, o);
    std::vector<double> const resident = time_resident(d, s);
    double const resident_us = median(resident);
    print_resident(out, m.name, resident);
    double read = 0;
    for (layer_geometry const& layer : m.model.layers()) {
      read += static_cast<double>(o.dense_bytes + m.k * layer.expert_bytes());
    }
    out.add({"  bytes read", read / resident_us / 1000, "GB/s"});
    measure_modes(out, d, s, experts, rates, resident_us, f);
    out.save();
    if (o.pairs != 0) {
      without_slack =
          measure_pairs(out, *make_look_ahead(d, s, experts, rates, resident_us), d, m.name);
    }
    print_resident_again(out, m.name, resident_us, time_resident(d, s));
  }
  out.save();
  if (o.pairs != 0) {
    decode_options slack = o;
    slack.dense_bytes =
        max_of(o.dense_bytes,
               dense_with_slack(without_slack.missed_bytes / m.n_layers(), rates, dense_rate));
    std::string const what =
        m.name + ", dense part of " + std::to_string(slack.dense_bytes >> 20) + " MiB";
    decoder d(m, slack);
    std::vector<double> const resident = time_resident(d, s);
    double const resident_us = median(resident);
    print_resident(out, what, resident);
    pairs_result const paired =
        measure_pairs(out, *make_look_ahead(d, s, experts, rates, resident_us), d, what);
    f.best_with_slack = paired.best_speed;
    double const link_us = paired.missed_bytes / rates.gather;
    out.add({"  serial floor without look-ahead, gather rate", resident_us + link_us, "us/step"});
    out.add({"  overlapped floor, gather rate", std::max(resident_us, link_us), "us/step"});
    print_resident_again(out, what, resident_us, time_resident(d, s));
  }
  return f;
}

}  // namespace gpu_bench
