// SPDX-License-Identifier: Apache-2.0
#include "table.hpp"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "instruments.hpp"

namespace warmset_decode {

using namespace warmset;

namespace {

struct cell {
  generation made;
  device_report report;
  warmset::recall_counts recall;
};

cell run_cell(model const& m, tokenizer const& words, device_options const& options,
              generation_request const& run) {
  instruments tools(m, {}, options.width, false, false);
  std::unique_ptr<device> const on = make_device(m, options, &tools);
  cell c;
  c.made = generate(*on, words, run);
  c.report = on->report();
  c.recall = tools.made().total(phase::decode);
  return c;
}

}  // namespace

std::string lookahead_table(model const& m, tokenizer const& words, table_request const& request) {
  std::string text = fmt::format(
      "{:>8} {:>6} {:>6} {:>7} {:>9} {:>7} {:>9} {:>8} {:>7} {:>9} {:>9}\n", "link", "slots",
      "width", "hit", "stall", "of off", "tokens/s", "recall", "used", "wasted", "governor");
  text += fmt::format("{:>8} {:>6} {:>6} {:>7} {:>9} {:>7} {:>9} {:>8} {:>7} {:>9} {:>9}\n", "GB/s",
                      "", "", "%", "us/token", "", "", "%", "%", "KiB/token", "");
  std::vector<u32> widths = request.widths;
  std::sort(widths.begin(), widths.end());
  if (widths.empty() || widths.front() != 0) {
    widths.insert(widths.begin(), 0);
  }
  u64 hash = 0;
  u64 cells = 0;
  for (u64 link : request.links_bytes_per_us) {
    for (u32 slots : request.slots) {
      double off_stall = 0;
      for (u32 width : widths) {
        device_options options = request.device;
        options.link_bytes_per_us = link;
        options.slots = slots;
        options.width = width;
        cell const c = run_cell(m, words, options, request.run);
        if (cells++ != 0 && c.made.logits_hash != hash) {
          throw std::runtime_error(
              fmt::format("{} slots, width {}: other logits than the first cell", slots, width));
        }
        hash = c.made.logits_hash;
        double const tokens = static_cast<double>(request.run.prompt.size() + c.made.decode_steps);
        double const stall = static_cast<double>(c.report.stall_ns) / 1000 / tokens;
        double const work = static_cast<double>(c.report.compute_ns) / 1000 / tokens;
        off_stall = width == 0 ? stall : off_stall;
        double const expert = static_cast<double>(m.geometry().layers()[0].expert_bytes());
        double const used = static_cast<double>(c.report.judged.used);
        double const wasted = static_cast<double>(c.report.judged.wasted);
        double const share = used + wasted == 0 ? 0 : 100 * used / (used + wasted);
        text += fmt::format("{:>8.3g} {:>6} {:>6} {:>7.1f} {:>9.1f} {:>7.3f} {:>9.0f} {:>8.1f} "
                            "{:>7.1f} {:>9.1f} {:>9}\n",
                            static_cast<double>(link) / 1000, slots, width,
                            100 * c.report.counters.sum().hit_rate(), stall,
                            off_stall == 0 ? 1 : stall / off_stall, 1e6 / (stall + work),
                            100 * c.recall.recall(), share, wasted * expert / 1024 / tokens,
                            width == 0         ? ""
                            : options.governed ? gate::name_of(c.report.governor)
                                               : "off");
      }
    }
  }
  return text + fmt::format("{} cells, {} tokens each, one hash of all logits: {:016x}\n", cells,
                            request.run.n_tokens, hash);
}

}  // namespace warmset_decode
