// SPDX-License-Identifier: Apache-2.0
#include "pairs.hpp"

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "instruments.hpp"
#include "report.hpp"

namespace warmset_decode {

using namespace warmset;
using json = nlohmann::ordered_json;

namespace {

constexpr u32 rounds_of_a_device = 10;

/// The q-th part of sorted values, between neighbours in proportion.
double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  double const at = q * static_cast<double>(values.size() - 1);
  std::size_t const below = static_cast<std::size_t>(at);
  std::size_t const above = std::min(below + 1, values.size() - 1);
  double const part = at - static_cast<double>(below);
  return values[below] + part * (values[above] - values[below]);
}

/// One way to decode, and its times.
struct contender {
  u32 width = 0;
  bool is_again = false;  ///< without look-ahead a second time
  std::unique_ptr<device> on;
  std::vector<double> us_per_token;
  std::vector<double> ratios;  ///< to the first contender's of the same round
};

struct facts {
  double stall_us;  ///< of a token: copies, and decisions, that nothing hides
  double recall;
  device_report report;
  u64 tokens;
};

/// A run of its own under the instruments, which cost time.
facts look_at(model const& m, tokenizer const& words, device_options const& options,
              generation_request const& run, u64& hash) {
  instruments tools(m, {}, options.width, false, true);
  auto const on = make_device(m, options, &tools);
  generation const made = generate(*on, words, run);
  hash = made.logits_hash;
  double const steps = static_cast<double>(std::max<u64>(tools.times().steps().value, 1));
  double const stall =
      static_cast<double>(tools.times().sum()[time_row::copies].value) / 1000 / steps;
  return {stall, tools.made().total(phase::decode).recall(), on->report(),
          run.prompt.size() + made.decode_steps};
}

}  // namespace

pairs_report measure_pairs(model const& m, tokenizer const& words, table_request const& request,
                           u32 n_rounds) {
  std::vector<u32> widths = request.widths;
  std::sort(widths.begin(), widths.end());
  widths.erase(std::unique(widths.begin(), widths.end()), widths.end());
  std::erase(widths, 0u);
  pairs_report out;
  out.table =
      fmt::format("{:>8} {:>6} {:>6} {:>7} {:>9} {:>8} {:>17} {:>9} {:>8} {:>7} {:>9} {:>9}\n",
                  "link", "slots", "width", "hit", "tokens/s", "of off", "quartiles", "stall",
                  "recall", "used", "wasted", "governor");
  out.table +=
      fmt::format("{:>8} {:>6} {:>6} {:>7} {:>9} {:>8} {:>17} {:>9} {:>8} {:>7} {:>9} {:>9}\n",
                  "GB/s", "", "", "%", "median", "time", "", "us/token", "%", "%", "KiB/token", "");
  json cells = json::array();
  u64 hash = 0;
  bool is_first = true;
  auto const compare_hash = [&](u64 one, u32 slots, u32 width) {
    if (!is_first && one != hash) {
      throw std::runtime_error(
          fmt::format("{} slots, width {}: other logits than the first cell", slots, width));
    }
    hash = one;
    is_first = false;
  };
  for (u64 link : request.links_bytes_per_us) {
    for (u32 slots : request.slots) {
      std::vector<contender> all(2 + widths.size());
      all[1].is_again = true;
      for (std::size_t i = 0; i < widths.size(); ++i) {
        all[2 + i].width = widths[i];
      }
      std::vector<std::size_t> order(all.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::mt19937 dice(1);
      for (u32 round = 0; round < n_rounds; ++round) {
        // where a device's memory lies moves its times as well
        if (round % rounds_of_a_device == 0) {
          std::for_each(all.begin(), all.end(), [](contender& c) { c.on.reset(); });
          std::shuffle(order.begin(), order.end(), dice);
          for (std::size_t const i : order) {
            contender& c = all[i];
            device_options options = request.device;
            options.link_bytes_per_us = link;
            options.slots = slots;
            options.width = c.width;
            c.on = make_device(m, options);
            // what is captured at first use, and the first trial of what decides, is no part of any time
            for (int warm_up = 0; warm_up < 2; ++warm_up) {
              compare_hash(generate(*c.on, words, request.run).logits_hash, slots, c.width);
            }
          }
        }
        std::shuffle(order.begin(), order.end(), dice);  // else each would always follow the same one
        for (std::size_t const i : order) {
          contender& c = all[i];
          generation const made = generate(*c.on, words, request.run);
          compare_hash(made.logits_hash, slots, c.width);
          c.us_per_token.push_back(made.decode_seconds * 1e6 /
                                   static_cast<double>(made.decode_steps));
        }
        for (contender& c : all) {
          c.ratios.push_back(c.us_per_token.back() / all.front().us_per_token.back());
        }
      }
      for (contender const& c : all) {
        device_options options = request.device;
        options.link_bytes_per_us = link;
        options.slots = slots;
        options.width = c.width;
        u64 one = 0;
        facts const f = look_at(m, words, options, request.run, one);
        compare_hash(one, slots, c.width);
        double const used = static_cast<double>(f.report.judged.used);
        double const wasted = static_cast<double>(f.report.judged.wasted);
        double const share = used + wasted == 0 ? 0 : 100 * used / (used + wasted);
        double const wasted_kib = wasted *
                                  static_cast<double>(m.geometry().layers()[0].expert_bytes()) /
                                  1024 / static_cast<double>(f.tokens);
        double const per_second = 1e6 / quantile(c.us_per_token, 0.5);
        char const* const governor = c.width == 0              ? ""
                                     : request.device.governed ? gate::name_of(f.report.governor)
                                                               : "off";
        out.table +=
            fmt::format("{:>8.3g} {:>6} {:>6} {:>7.1f} {:>9.0f} {:>8.4f} {:>8.4f} {:>8.4f} "
                        "{:>9.1f} {:>8.1f} {:>7.1f} {:>9.1f} {:>9}\n",
                        static_cast<double>(link) / 1000, slots,
                        c.is_again ? "0 again" : fmt::format("{}", c.width),
                        100 * f.report.counters.sum().hit_rate(), per_second,
                        quantile(c.ratios, 0.5), quantile(c.ratios, 0.25), quantile(c.ratios, 0.75),
                        f.stall_us, 100 * f.recall, share, wasted_kib, governor);
        cells.push_back({{"link_gbps", static_cast<double>(link) / 1000},
                         {"slots", slots},
                         {"width", c.width},
                         {"is_again", c.is_again},
                         {"tokens_per_second", per_second},
                         {"of_off", quantile(c.ratios, 0.5)},
                         {"of_off_quartiles", {quantile(c.ratios, 0.25), quantile(c.ratios, 0.75)}},
                         {"us_per_token", c.us_per_token},
                         {"stall_us_per_token", f.stall_us},
                         {"hit_rate", f.report.counters.sum().hit_rate()},
                         {"recall", f.recall},
                         {"used", f.report.judged.used},
                         {"wasted", f.report.judged.wasted},
                         {"wasted_kib_per_token", wasted_kib},
                         {"governor", governor}});
      }
    }
  }
  out.table += fmt::format("{} rounds of {} tokens each; one hash of all logits: {}\n", n_rounds,
                           request.run.n_tokens, hash_text(hash));
  out.json = json{{"format", "warmset-decode-pairs"},
                  {"version", 1},
                  {"model", m.name},
                  {"device", request.device.device},
                  {"predictor", request.device.predictor},
                  {"rounds", n_rounds},
                  {"tokens", request.run.n_tokens},
                  {"logits_hash", hash_text(hash)},
                  {"cells", cells}}
                 .dump(2) +
             "\n";
  return out;
}

}  // namespace warmset_decode
