// SPDX-License-Identifier: Apache-2.0
#include "arms.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>

namespace warmset_decode {

using namespace warmset;

namespace {

constexpr u32 one_percent_q16 = 655;

u32 share_of(model const& m, u32 percent) {
  return std::max(m.numbers.experts * percent / 100, 1u);
}

}  // namespace

std::vector<arm_options> ways_to_serve(model const& m, u64 seed, std::string const& device) {
  bool const has_graph = device != "cpu";
  u32 const least = has_graph ? m.numbers.k : 1;
  u32 const quarter = std::max(share_of(m, 25), least);
  u32 const half = std::max(share_of(m, 50), least);
  std::vector<arm_options> ways;
  auto const add = [&](std::string name, device_options o, u32 batch = 1) {
    bool const hints = o.width != 0;
    o.seed = seed;
    o.device = device;
    bool const failures = o.copy_failures_q16 != 0;
    bool const hits = o.slots == 0 || o.slots >= m.numbers.k;
    ways.push_back({std::move(name), std::move(o), batch, hints, failures, hits});
  };
  // Hints without a governor, so that what hurts is not stopped before it could do harm.
  auto const ahead = [](u32 slots, u32 width, char const* predictor = "router_lookahead") {
    device_options o;
    o.slots = slots;
    o.width = width;
    o.predictor = predictor;
    o.governed = false;
    return o;
  };
  auto const failing = [](device_options o) {
    o.copy_failures_q16 = one_percent_q16;
    return o;
  };
  auto const slow = [](device_options o) {  // an expert takes as long as a layer
    o.link_bytes_per_us = 250;
    return o;
  };
  add("all resident", {});
  add("25 % of the slots", {.slots = quarter});
  add("50 % of the slots", {.slots = half});
  if (!has_graph) {
    add("one slot", {.slots = 1});
  }
  add("look-ahead 4", ahead(quarter, 4));
  add("look-ahead 8", ahead(quarter, 8));
  add("look-ahead 16", ahead(quarter, 16));
  add("look-ahead 16, 50 %", ahead(half, 16));
  add("look-ahead 4, governed, slow link", slow({.slots = quarter, .width = 4}));
  add("look-ahead 8, slow link", slow(ahead(quarter, 8)));
  add("adversarial", ahead(quarter, 8, "adversarial"));
  add("random", ahead(quarter, 8, "random"));
  add("transition", ahead(quarter, 4, "transition"));
  add("failing copies", failing({.slots = quarter}));
  add("failing copies, look-ahead 8, slow link", slow(failing(ahead(quarter, 8))));
  if (!has_graph) {
    add("wide prompt", {.slots = quarter}, 16);
    add("wide prompt, failing copies", failing({.slots = quarter}), 16);
  }
  return ways;
}

arm run_arm(model const& m, tokenizer const& words, arm_options const& how,
            generation_request request) {
  arm result{how.name, how.expects_hints, {}, {}, {}, how.expects_failures, how.expects_hits};
  std::unique_ptr<device> const on = make_device(m, how.device);
  request.batch = how.batch;
  result.made = generate(*on, words, request);
  result.text = words.decode(result.made.tokens);
  result.report = on->report();
  return result;
}

std::vector<arm> run_arms(model const& m, tokenizer const& words, std::span<arm_options const> ways,
                          generation_request const& request) {
  std::vector<arm> results(ways.size());
  std::vector<std::exception_ptr> errors(ways.size());
  std::atomic<std::size_t> next{0};
  auto const work = [&] {
    for (std::size_t i = next++; i < ways.size(); i = next++) {
      try {
        results[i] = run_arm(m, words, ways[i], request);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  };
  std::vector<std::thread> threads;
  bool const is_cpu = ways.empty() || ways.front().device.device == "cpu";
  unsigned const most = is_cpu ? std::thread::hardware_concurrency() : 1;
  for (unsigned i = 1; i < std::min<std::size_t>(most, ways.size()); ++i) {
    threads.emplace_back(work);
  }
  work();
  for (std::thread& t : threads) {
    t.join();
  }
  for (std::exception_ptr const& e : errors) {
    if (e) {
      std::rethrow_exception(e);
    }
  }
  return results;
}

std::string compare(std::span<arm const> arms) {
  if (arms.size() < 2) {
    return "nothing was compared";
  }
  for (arm const& a : arms) {
    total_counters const sum =
        a.report.counters.n_layers() == 0 ? total_counters{} : a.report.counters.sum();
    if (a.made.tokens.empty() || a.made.decode_steps == 0 || a.text.empty()) {
      return a.name + ": the text is empty";
    }
    if (sum[access_kind::load].value == 0 && sum[access_kind::overflow_miss].value == 0) {
      return a.name + ": no expert was loaded";
    }
    if (sum.arrived[static_cast<u32>(intent::demand)].value + sum.scratch_arrived.value == 0) {
      return a.name + ": no load arrived";
    }
    if (a.expects_hits && sum[access_kind::hit].value == 0) {
      return a.name + ": no resident expert was read again";
    }
    if (a.expects_failures &&
        (a.report.copies_failed == 0 ||
         (a.expects_hints && sum.failed[static_cast<u32>(intent::speculative)].value == 0))) {
      return a.name + ": no copy failed";
    }
    if (a.expects_hints && (a.report.produced == 0 || a.report.hints == 0)) {
      return a.name + ": the predictor never ran";
    }
    if (a.expects_hints &&
        (a.report.loads == 0 || sum.arrived[static_cast<u32>(intent::speculative)].value == 0)) {
      return a.name + ": no hint was installed";
    }
    if (a.made.decode_steps != arms[0].made.decode_steps ||
        a.made.logits_hash != arms[0].made.logits_hash) {
      return a.name + ": other logits than " + arms[0].name;
    }
    if (a.text != arms[0].text) {
      return a.name + ": another text than " + arms[0].name;
    }
  }
  return "";
}

}  // namespace warmset_decode
