// SPDX-License-Identifier: Apache-2.0
// What predictions and prompts may not do to decode, and comparisons that may not pass by proving nothing.

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <warmset/move/host.hpp>
#include <warmset/policy/guard/none.hpp>
#include <warmset/policy/score/lru.hpp>
#include <warmset/predict/transition.hpp>
#include <warmset/trace/builder.hpp>
#include <warmset/trace/decision_log.hpp>
#include <warmset/trace/equivalence.hpp>

#include "play.hpp"

namespace warmset::scenario {
namespace {

constexpr u32 layers = 3;

struct hinting : default_policy {
  using predictor = predict::supplied;
  static constexpr u32 max_experts = n_experts;
  static constexpr tuning numbers{.speculative_slots = 1};
};
struct unguarded : hinting {
  using guard = warmset::guard::none;
};
struct by_recency : default_policy {
  using score = warmset::score::lru;
  static constexpr u32 max_experts = n_experts;
};

/// Decode steps of k distinct experts that drift through the layer, so that neighbours in time share most of them.
id_list drifting(u32 step, u32 layer) {
  dice random{u64{step} * layers + layer};
  id_list ids;
  while (ids.size() < k) {
    u32 const e = (step / 25 * 3 + layer * 11 + random.below(10)) % n_experts;
    if (!predict::detail::contains(ids, e)) {
      ids.push_back(static_cast<routed_id>(e));
    }
  }
  return ids;
}

/// A cache with a predictor beside it, as an engine runs them.
template <class Policy>
struct engine {
  using cache_type = cache<Policy, move::host>;
  std::unique_ptr<cache_type> c;
  predict::transition<1> predictor;

  explicit engine(u32 slots)
      : c(std::make_unique<cache_type>(geometry::uniform(layers, n_experts, k, 37),
                                       budget::of_slots(slots))) {
    predictor.open(c->model());
  }

  /// One step of every layer; returns hits.
  u64 token(u32 number, phase p, id_list const* all = nullptr) {
    u64 const before = c->observer().total().hits().value;
    for (u32 layer = 0; layer < layers; ++layer) {
      id_list const ids = all != nullptr ? *all : drifting(number, layer);
      (void)c->step(layer_id{layer}, ids, p);
      std::vector<u32> const experts(ids.begin(), ids.end());
      routing_snapshot seen;
      seen.layer = {layer};
      seen.row = layer;
      seen.in_phase = p;
      seen.experts = experts;
      predictor.learn(seen);
      if constexpr (speculates<Policy>) {
        hint hints[4];
        u32 const n = p == phase::decode ? predictor.predict(seen, 4, hints) : 0;
        c->advise(array_view<hint const>(hints, n));
      }
      REQUIRE(c->audit());
    }
    c->settle();
    return c->observer().total().hits().value - before;
  }

  std::set<std::pair<u32, u32>> residents() const {
    std::set<std::pair<u32, u32>> all;
    for (u32 layer = 0; layer < layers; ++layer) {
      for (u32 e = 0; e < n_experts; ++e) {
        if (c->is_resident({{layer}, {e}})) {
          all.insert({layer, e});
        }
      }
    }
    return all;
  }
  std::vector<unsigned char> tables() const {
    std::vector<unsigned char> bytes;
    for (auto const& pool : std::as_const(*c).pools()) {
      auto const* const from = static_cast<unsigned char const*>(pool.block());
      bytes.insert(bytes.end(), from, from + pool.block_bytes());
    }
    return bytes;
  }
};

template <class F>
void for_policies(F&& f) {
  f.template operator()<by_recency>();
  f.template operator()<hinting>();
  f.template operator()<unguarded>();
}

}  // namespace

TEST_CASE("R24 a prefill of one token does not flush residents") {
  for_policies([]<class Policy>() {
    for (u32 const slots : capacities) {
      if (slots < (speculates<Policy> ? 2u : 1u)) {
        continue;  // no slot for speculation
      }
      INFO(slots << " slots, guard " << Policy::guard::name);
      engine<Policy> warm(slots);
      for (u32 step = 0; step < 60; ++step) {
        (void)warm.token(step, phase::decode);
      }
      auto const before = warm.residents();
      total_counters const counted = warm.c->observer().total();

      (void)warm.token(60, phase::prefill);
      auto const after = warm.residents();
      delta_counters const did = warm.c->observer().total() - counted;
      u64 const misses = did[access_kind::load].value;
      u64 lost = 0;
      for (auto const& r : before) {
        lost += after.count(r) == 0 ? 1 : 0;
      }
      CHECK(lost <=
            misses +
                (speculates<Policy> ? layers : 0));  // a reserve of one slot is made whole again
      CHECK(after.size() >= before.size());

      // what is resident stays where it is, word for word but for the clocks
      auto const held = warm.residents();
      for (u32 layer = 0; layer < layers; ++layer) {
        for (u32 e = 0; e < n_experts; ++e) {
          if (held.count({layer, e}) != 0) {
            id_list const one{static_cast<routed_id>(e)};
            (void)warm.c->step(layer_id{layer}, one, phase::prefill);
            REQUIRE(warm.c->audit());
            break;
          }
        }
      }
      CHECK(warm.residents().size() >= held.size() - (speculates<Policy> ? layers : 0));
    }
  });
}

TEST_CASE("R29 a prompt of 4k tokens between decode steps leaves the decode set as it was") {
  constexpr u32 prompt_steps = 4096 / 512;
  id_list everything;
  for (u32 i = 0; i < 512; ++i) {  // ids as they come: each expert many times
    everything.push_back(static_cast<routed_id>(i % n_experts));
  }
  for_policies([&]<class Policy>() {
    for (u32 const slots : {k, 8u, 42u, n_experts}) {
      INFO(slots << " slots, guard " << Policy::guard::name);
      engine<Policy> with(slots), without(slots);
      for (u32 step = 0; step < 300; ++step) {
        CHECK(with.token(step, phase::decode) == without.token(step, phase::decode));
      }
      auto const residents = with.residents();
      auto const tables = with.tables();
      std::byte const* const base = with.c->backend().memory(0).data();
      u32 const n_slots = with.c->effective_budget().slots;

      for (u32 step = 0; step < prompt_steps; ++step) {
        (void)with.token(step, phase::prefill, &everything);
      }
      CHECK(with.c->backend().memory(0).data() == base);
      CHECK(with.c->effective_budget().slots == n_slots);
      bool const fits = slots == n_experts;  // then the prompt is a step like others
      if (!fits) {
        CHECK(with.residents() == residents);
        CHECK(with.tables() == tables);
        CHECK(with.c->observer().total(phase::prefill).overflow_steps.value ==
              prompt_steps * layers);
      } else {
        CHECK(with.residents().size() >= n_slots - (keeps_reserve<Policy> ? layers : 0));
      }
      u64 hits = 0;
      u64 undisturbed = 0;
      for (u32 step = 300; step < 600; ++step) {
        u64 const now = with.token(step, phase::decode);
        u64 const then = without.token(step, phase::decode);
        CHECK((fits || now == then));  // from the first step on
        hits += now;
        undisturbed += then;
      }
      CHECK(hits + (keeps_reserve<Policy> ? layers : 0) >= undisturbed);
    }
  });
}

// ---- same input, same decisions ------------------------------------------------------------------------------------

namespace {

/// Plays 400 steps with hints over a link that lets transfers arrive when `arrives(step, pool, slot)` says so, and
/// writes down what was decided and what arrived.
template <class Arrives>
std::vector<u32> log_of(Arrives&& arrives) {
  cache<unguarded> c{geometry::uniform(layers, n_experts, k, 100), budget::of_slots(8)};
  predict::transition<1> predictor;
  predictor.open(c.model());
  std::vector<u32> words;
  trace::log_writer<trace::vector_sink> log(trace::vector_sink(words),
                                            {c.model().fingerprint(), "unguarded"});
  auto const write = [&](u32 row) {
    auto const& p = c.last_plan();
    std::vector<trace::logged_access> ids;
    for (u32 i = 0; i < p.n; ++i) {
      ids.push_back({p.expert[i], p.how[i], p.slot[i]});
    }
    std::vector<trace::logged_load> loads;
    for (u32 i = 0; i < p.n_loads; ++i) {
      loads.push_back(
          {p.loads[i].expert, p.loads[i].slot, trace::logged_load::none, trace::logged_load::none});
    }
    log.step(row, p.in_phase, p.for_intent, ids, loads, std::span<u32 const>(p.trims, p.n_trims));
  };
  for (u32 step = 0; step < 400; ++step) {
    for (u32 row = 0; row < layers; ++row) {
      for (u32 pool = 0; pool < layers; ++pool) {
        std::vector<u32> arrived;
        for (u32 s = 0; s < c.sites()[pool].n_slots; ++s) {
          bool const loading = arrival::state(c.backend().arrivals(pool)[s]) == transfer::loading;
          if (loading && arrives(step * layers + row, pool, s)) {
            REQUIRE(c.backend().arrived(pool, slot_id{s}));
            arrived.push_back(s);
          }
        }
        log.settle(pool, arrived, {});
      }
      id_list const ids = drifting(step, row);
      (void)c.step(layer_id{row}, ids);
      write(row);
      std::vector<u32> const experts(ids.begin(), ids.end());
      routing_snapshot seen;
      seen.layer = {row};
      seen.row = row;
      seen.experts = experts;
      predictor.learn(seen);
      hint hints[4];
      u32 const n = predictor.predict(seen, 4, hints);
      id_list hinted;
      for (u32 i = 0; i < n; ++i) {
        hinted.push_back(hints[i].expert);
      }
      (void)c.advise(layer_id{(row + 1) % layers}, hinted);
      write((row + 1) % layers);
      REQUIRE(c.audit());
    }
  }
  return words;
}

}  // namespace

TEST_CASE("R53 the same trace, configuration and log are the same sequence of plans") {
  auto const by_chance = [](u64 seed) {
    return [random = std::make_shared<dice>(seed)](u32, u32, u32) { return random->below(3) == 0; };
  };
  std::vector<u32> const first = log_of(by_chance(53));
  trace::decision_log const log = trace::decision_log::parse(first);
  REQUIRE(log.n_records() == 400 * layers * (layers + 2));

  // When the transfers arrive is all that chance decided; played from the log it decides nothing.
  std::vector<std::vector<std::vector<u32>>> arrived;
  for (u64 i = 0; i < log.n_records(); ++i) {
    if (log[i].kind() == trace::record_kind::settle) {
      if (log[i].pool() == 0) {
        arrived.emplace_back(layers);
      }
      arrived.back()[log[i].pool()].assign(log[i].arrived().begin(), log[i].arrived().end());
    }
  }
  std::vector<u32> const again = log_of([&](u32 at, u32 pool, u32 s) {
    return predict::detail::contains(arrived.at(at).at(pool), s);
  });
  std::optional<trace::log_difference> const parted =
      trace::diff(log, trace::decision_log::parse(again));
  INFO((parted ? parted->text : std::string("equal")));
  CHECK(!parted);
  CHECK(again == first);

  // The log matters: other arrivals are other plans.
  CHECK(trace::diff(log, trace::decision_log::parse(log_of(by_chance(54)))));
}

// ---- comparisons that prove nothing --------------------------------------------------------------------------------

namespace {

/// A prompt in micro-batches of 512 tokens, and decode steps if wanted.
trace::recording prompt_and_decode(u32 decode_steps) {
  trace::builder made;
  made.parts.geometry = geometry::uniform(layers, n_experts, k, 37);
  u32 position = 0;
  for (u32 batch = 0; batch < 2; ++batch, position += 512) {
    for (u32 row = 0; row < layers; ++row) {
      std::vector<u16> ids;
      for (u32 token = 0; token < 512; ++token) {
        for (routed_id id : drifting(token, row)) {
          ids.push_back(static_cast<u16>(id));
        }
      }
      made.add(0, position, phase::prefill, row, 512, k, ids);
    }
  }
  for (u32 step = 0; step < decode_steps; ++step, ++position) {
    for (u32 row = 0; row < layers; ++row) {
      id_list const ids = drifting(step, row);
      made.add(0, position, phase::decode, row, 1, k, std::vector<u16>(ids.begin(), ids.end()));
    }
  }
  return trace::recording(made.take());
}

auto caches_of(trace::recording const& r) {
  return [g = r.geometry()] { return cache<unguarded, move::host>{g, budget::of_slots(8)}; };
}

constexpr trace::equivalence_options decode_only{.hints_in_prefill = false};

}  // namespace

TEST_CASE("B105 an equivalence that compared nothing is no equivalence") {
  SECTION("a producer for decode alone, and an input of batches of 512") {
    trace::recording const r = prompt_and_decode(0);
    trace::equivalence_report const report =
        trace::check_equivalence(r, {}, caches_of(r), decode_only);
    CHECK(report.fault == trace::equivalence_fault::never_ran);
    CHECK(report.run == 1);
  }
  SECTION("with decode steps in it the producer runs") {
    trace::recording const r = prompt_and_decode(50);
    trace::equivalence_report const report =
        trace::check_equivalence(r, {}, caches_of(r), decode_only);
    INFO(trace::to_sentence(report));
    CHECK(report);
    CHECK(report.runs.at(1).asked == 50 * layers);
    CHECK(report.runs.at(1).loads > 0);
  }
  SECTION("two empty outputs have the same digest") {
    trace::recording const r = prompt_and_decode(50);
    trace::equivalence_report const report =
        trace::check_equivalence(r, {}, caches_of(r), {.max_events = 0});
    CHECK(report.fault == trace::equivalence_fault::empty_output);
    CHECK(report.runs.at(0).digest == report.runs.back().digest);
  }
}

TEST_CASE("B110 a result that an earlier run left behind is refused") {
  trace::recording const r = prompt_and_decode(50);
  trace::equivalence_report const report = trace::check_equivalence(r, {}, caches_of(r));
  REQUIRE(report);
  constexpr u64 then = 0x0123'4567'89AB'CDEF;
  constexpr u64 now = then + 1;
  std::string const left = trace::to_text(report, then);

  CHECK(trace::read_equivalence(left, then) == report);
  auto const refusal = [](std::string const& text, u64 nonce) {
    try {
      (void)trace::read_equivalence(text, nonce);
    } catch (trace::format_error const& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  // the program is dead, and what lies there is the file of the last time
  CHECK(refusal(left, now).find("another run") != std::string::npos);
  CHECK(refusal("", now).find("empty") != std::string::npos);
  CHECK(!refusal("warmset-equivalence 1\nend\n", now).empty());
  // it died while it wrote
  for (std::size_t n = 0; n < left.size(); ++n) {
    REQUIRE(!refusal(left.substr(0, n), then).empty());
  }
  CHECK(!refusal(left + "more\n", then).empty());
  // every line has its words and no more, in numbers that fit
  for (std::size_t end = left.find('\n'); end != std::string::npos;
       end = left.find('\n', end + 1)) {
    for (char const* const more : {" ", " junk", "\r"}) {
      INFO(end << more);
      CHECK(!refusal(std::string(left).insert(end, more), then).empty());
    }
  }
  for (char const* const field : {"run 0", "layer 0", "expert 0"}) {
    std::string wraps = left;
    std::size_t const at = left.find(field, left.find("fault"));
    REQUIRE(at != std::string::npos);
    wraps.replace(at, std::strlen(field),
                  std::string(field, std::strlen(field) - 1) + "4294967296");
    CHECK(refusal(wraps, then).find("4294967296") != std::string::npos);
  }

  SECTION("names that could not be read back are not written") {
    for (char const* const name : {"", "my predictor", " x", "x ", "a\nb", "a\rb", "a\tb"}) {
      trace::equivalence_report named = report;
      named.runs[1].predictor = name;
      CHECK_THROWS_AS(trace::to_text(named, now), config_error);
    }
    std::string nameless = left;
    std::string const run = "run " + report.runs[1].predictor + " ";
    nameless.replace(left.find(run), run.size(), "run  ");
    CHECK(!refusal(nameless, then).empty());
  }

  SECTION("a file that calls itself a success is judged by its own counts") {
    trace::equivalence_report hollow = report;
    for (trace::equivalence_run& run : hollow.runs) {
      run.delivered = run.bytes = 0;
    }
    CHECK(trace::read_equivalence(trace::to_text(hollow, now), now).fault ==
          trace::equivalence_fault::empty_output);
    trace::equivalence_report unlike = report;
    unlike.runs[2].digest ^= 1;
    CHECK(trace::read_equivalence(trace::to_text(unlike, now), now).fault ==
          trace::equivalence_fault::other_bytes);
  }
  SECTION("a difference survives as it was found") {
    trace::equivalence_report bad = report;
    bad.fault = trace::equivalence_fault::other_bytes;
    bad.run = 1;
    bad.step = 3;
    bad.layer = {2};
    bad.expert = {7};
    CHECK(trace::read_equivalence(trace::to_text(bad, now), now) == bad);
  }
  SECTION("benchmarks/run checks its result files the same way") {
    std::filesystem::path const file = std::filesystem::temp_directory_path() /
                                       ("warmset_b110_" + std::to_string(::getpid()) + ".json");
    auto const accepted = [&](char const* text, char const* nonce) {
      if (text != nullptr) {
        std::ofstream(file) << text;
      }
      std::string const command = "python3 " WARMSET_SOURCE_DIR "/benchmarks/check_result " +
                                  file.string() + " " + nonce + " 2>/dev/null";
      return std::system(command.c_str()) == 0;
    };
    std::filesystem::remove(file);
    CHECK(!accepted(nullptr, "ab"));
    CHECK(accepted(R"({"context": {"nonce": "ab"}, "benchmarks": [{"name": "x"}]})", "ab"));
    CHECK(!accepted(nullptr, "ac"));  // the file is still there, the program was not run
    CHECK(!accepted(R"({"context": {}, "benchmarks": [{"name": "x"}]})", "ab"));
    CHECK(!accepted(R"({"context": {"nonce": "ab"}, "benchmarks": []})", "ab"));
    CHECK(!accepted(
        R"({"context": {"nonce": "ab"}, "benchmarks": [{"name": "x", "error_occurred": true}]})",
        "ab"));
    CHECK(!accepted(R"({"context": {"nonce": "ab"}, "bench)", "ab"));
    std::filesystem::remove(file);
  }
}

}  // namespace warmset::scenario
