// SPDX-License-Identifier: Apache-2.0

// Empty where the libraries of the tool are not there.
#if defined(WARMSET_HAS_FMT) && defined(WARMSET_HAS_JSON)

#include <deque>
#include <string>

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include "../../examples/replay/report.hpp"

namespace warmset_tools {
namespace {

constexpr u64 lookups = 10'000;  // of a stretch

/// A report of one layer whose policies have the hits that a test gives them, stretch by stretch.
class made_report {
 public:
  made_report()
      : trace_{"made", warmset::trace::layout{}, empty()}, report_{trace_, {},    "all",
                                                                   false,  false, {}} {
    report_.phases = {warmset::phase::decode};
    report_.tokens = {0, 100};
  }

  /// The policy hits `mean` of each stretch's look-ups, and `swing` more and less in turn.
  void add(char const* name, int mean, int swing = 0, std::size_t state_bytes = 8,
           bool decays = true) {
    warmset::trace::policy_traits traits;
    traits.score_decays = decays;
    bundles_.push_back({name, {}, {}, traits, state_bytes, false, false, nullptr});
    outcome_row row{{name, chosen_policy::kind::bundle, &bundles_.back(), {}}, size, {{}}};
    counts& c = row.by_layer[0][1];
    for (std::size_t i = 0; i < n_stretches; ++i) {
      u64 const hits = static_cast<u64>(mean + (i % 2 == 0 ? swing : -swing));
      row.by_stretch[1][i] = {hits, lookups};
      c.demand_accesses += lookups;
      c.hits += hits;
      c.bytes_loaded += (lookups - hits) * 10;
    }
    report_.rows.push_back(row);
  }

  report const& get() const { return report_; }
  json only() const {
    json const all = recommend(report_, report_);
    REQUIRE(all.size() == 1);
    return all[0];
  }

 private:
  static constexpr pool_size size{pool_kind::per_layer, 4, 0};

  static warmset::trace::recording empty() {
    warmset::trace::contents c;
    c.geometry = warmset::geometry::uniform(1, 8, 2, 100);
    return warmset::trace::recording(std::move(c));
  }

  loaded_trace trace_;
  std::deque<policy> bundles_;
  report report_;
};

}  // namespace

TEST_CASE("a gain must exceed 0.002, however certain it is") {
  made_report r;
  r.add("lru", 5000);
  r.add("a", 5019);
  CHECK(r.only()["policy"] == "lru");
  CHECK(r.only()["rule"] == "lru-within-noise");
  CHECK(r.only()["runner_up"] == "a");
  r.add("b", 5021);
  CHECK(r.only()["policy"] == "b");
  CHECK(r.only()["rule"] == "best");
  CHECK(r.only()["noise"].get<double>() == Catch::Approx(0.002));
  CHECK(r.only()["gain_over_lru"].get<double>() == Catch::Approx(0.0021));
  CHECK(r.only()["runner_up"] == "a");
  CHECK(r.only()["margin_hit_rate"].get<double>() == Catch::Approx(0.0002));
  // Two look-ups more in each of 16 stretches, 10 bytes each, over 100 tokens.
  CHECK(r.only()["margin_bytes_per_token"].get<double>() == Catch::Approx(3.2));
}

TEST_CASE("the noise is twice the standard error over the stretches") {
  // Gains 0.1 around the mean in turn: a deviation of 0.1 * sqrt(16/15), a standard error of 0.0258.
  made_report within;
  within.add("lru", 5000);
  within.add("a", 5510, 1000);
  CHECK(within.only()["policy"] == "lru");
  made_report above;
  above.add("lru", 5000);
  above.add("a", 5520, 1000);
  CHECK(above.only()["policy"] == "a");
  CHECK(above.only()["noise"].get<double>() == Catch::Approx(0.0516398).epsilon(1e-5));
  // What both have in common is no noise.
  made_report together;
  together.add("lru", 5000, 1000);
  together.add("a", 5100, 1000);
  CHECK(together.only()["policy"] == "a");
}

TEST_CASE("of policies as good as the best the one with the smallest state is taken") {
  made_report r;
  r.add("lru", 5000, 0, 4);
  r.add("large", 6019, 0, 64);
  r.add("small", 6000, 0, 8);
  CHECK(r.only()["policy"] == "small");
  CHECK(r.only()["rule"] == "simpler-within-noise");
  CHECK(r.only()["runner_up"] == "large");
  CHECK(r.only()["margin_hit_rate"].get<double>() == Catch::Approx(-0.0019));
  r.add("small but worse", 5998, 0, 4);  // 21 of 10,000 behind the best
  CHECK(r.only()["policy"] == "small");
  r.add("as small and better", 6010, 0, 8);
  CHECK(r.only()["policy"] == "as small and better");
  r.add("best by far", 7000, 0, 1000);
  CHECK(r.only()["policy"] == "best by far");
  CHECK(r.only()["rule"] == "best");
}

TEST_CASE("counts that never fade are no simpler, but may be best") {
  made_report r;
  r.add("lru", 5000, 0, 4);
  r.add("fading", 6020, 0, 8);
  r.add("everlasting", 6010, 0, 4, false);
  CHECK(r.only()["policy"] == "fading");
  r.add("more everlasting", 6500, 0, 4, false);
  CHECK(r.only()["policy"] == "more everlasting");
}

TEST_CASE("what decides alike is no runner-up") {
  made_report r;
  r.add("lru", 5000);
  r.add("lru_list", 5000);
  CHECK(r.only()["policy"] == "lru");
  CHECK(r.only()["rule"] == "best");
  CHECK(r.only()["runner_up"].is_null());
  CHECK(r.only()["to_belady"].is_null());
  r.add("worse", 4000);
  CHECK(r.only()["runner_up"] == "worse");
}

TEST_CASE("the choice is of one report and the figures are of the other") {
  made_report chosen_on, figures;
  chosen_on.add("lru", 5000);
  chosen_on.add("a", 6000);
  figures.add("a", 4400);
  figures.add("lru", 4500);
  json const one = recommend(chosen_on.get(), figures.get())[0];
  CHECK(one["policy"] == "a");
  CHECK(one["hit_rate"].get<double>() == Catch::Approx(0.44));
  CHECK(one["chosen_gain_over_lru"].get<double>() == Catch::Approx(0.1));
  CHECK(one["gain_over_lru"].get<double>() == Catch::Approx(-0.01));
  CHECK(recommendation_text(one).starts_with(
      "recommended at 4 slots per layer: a, 0.4400: gains 0.1000 over lru"));
}

}  // namespace warmset_tools

#endif
