// SPDX-License-Identifier: Apache-2.0
// The registry of counters: that nothing is missing in it, that everything in it is counted and exported.

#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include <warmset/observe/export_json.hpp>
#include <warmset/observe/export_log.hpp>
#include <warmset/observe/export_prometheus.hpp>

#include "whole_life.hpp"

namespace warmset {
namespace {

constexpr u32 s = static_cast<u32>(intent::speculative);

std::string described(counter_info const& info) {
  return std::string(info.name) + " [" + info.unit + "] " + name_of(info.intent) + " " +
         info.label_value;
}

template <class... Parts>
std::string joined(Parts const&... parts) {
  std::string all;
  ((all += parts), ...);
  return all;
}

/// Everything that `write` writes.
template <class Write>
std::string text_of(Write&& write) {
  std::string text;
  write([&](char const* data, std::size_t n) { text.append(data, n); });
  return text;
}

std::string identifier(std::string name) {
  for (char& c : name)
    c = c == ' ' ? '_' : c;
  return name;
}

/// Values of the registry's entries, in its order.
template <class Counters>
std::vector<u64> values(Counters const& c) {
  std::vector<u64> all;
  for_each_counter(c, [&](counter_info const&, auto value) { all.push_back(value.value); });
  return all;
}

template <class A, class B>
concept adds = requires(A a, B b) {
  a + b;
};
template <class A, class B>
concept subtracts = requires(A a, B b) {
  a - b;
};
template <class A, class B>
concept compares = requires(A a, B b) {
  a == b;
};
template <class A, class B>
concept assigns = requires(A& a, B b) {
  a = b;
};

/// Something that an engine writes down once, and only from experts.
u64 reported_experts(amount<unit::experts> n) {
  return n.value;
}

}  // namespace

TEST_CASE("the registry has every counter, each in one entry of its unit") {
  // each number of the counters by itself: what no entry shows, no export shows
  total_counters probe{};
  u32 n = 0;
  probe.zip(probe, [&](auto&, auto) { ++n; });
  std::set<u32> shown;
  u32 unshown = 0;
  for (u32 i = 0; i < n; ++i) {
    total_counters c{};
    u32 at = 0;
    c.zip(c, [&](auto& mine, auto) { mine.value = at++ == i ? 3 : 0; });
    c.accesses[0] += c.pinned_hits;  // pinned hits are hits
    u32 entries = 0;
    u32 index = 0;
    for (u64 const value : values(c)) {
      if (value != 0) {
        ++entries;
        shown.insert(index);
        CHECK(value == 3);
      }
      ++index;
    }
    unshown += entries == 0 ? 1 : 0;
    INFO("number " << i);
    // first uses have a second name; all others are in one place
    CHECK(entries <= (c[access_kind::first_use].value != 0 ? 2u : 1u));
  }
  CHECK(shown.size() == n_counters);
  // what cannot happen: ids are skipped for three reasons, and nothing is dropped for none
  CHECK(unshown == (n_drop_reasons - std::size(id_reasons)) + 1);
}

TEST_CASE("entries of the registry are named, of a unit, and told apart") {
  std::set<std::string> seen;
  std::set<std::string> families;
  for (u32 i = 0; i < n_counters; ++i) {
    counter_info const& info = registry[i];
    INFO(described(info));
    CHECK(std::strlen(info.help) > 10);
    CHECK(info.help[std::strlen(info.help) - 1] == '.');
    for (char const* c = info.name; *c != '\0'; ++c)
      CHECK(((*c >= 'a' && *c <= 'z') || *c == '_'));
    CHECK(seen.insert(described(info)).second);
    // a family stands together, or Prometheus would refuse it
    bool const continues = i != 0 && info.same_family(registry[i - 1]);
    CHECK(families.insert(joined(info.name, "/", info.unit)).second == !continues);
    CHECK((continues ? std::strcmp(info.help, registry[i - 1].help) == 0 : true));
  }
  CHECK(seen.size() == n_counters);
}

TEST_CASE("B101 every counter is incremented by something that happens, and is in every export") {
  total_counters const seen = whole_life();
  std::string silent;
  for (u32 i = 0; i < n_counters; ++i) {
    if (value_of(seen, i) == 0)
      silent += described(registry[i]) + ", ";
  }
  INFO("never counted: " << silent);
  CHECK(silent.empty());

  geometry const model = geometry::uniform(1, 64, 4, 1000);
  snapshot shot{model};
  shot.at(0, phase::prefill) = seen;
  shot.at(0, phase::decode) = seen;
  recall predictions{model};
  for (phase const p : {phase::prefill, phase::decode}) {
    // of six predictions one is used, one is copied in vain; one expert comes as a surprise
    predictions.predicted(0, std::vector<i32>{9, 8, 7, 6, 5, 4});
    predictions.copied(0, expert_id{9});
    predictions.copied(0, expert_id{8});
    u32 const demanded[] = {9, 1};
    access_kind const how[] = {access_kind::first_use, access_kind::load};
    predictions.used(0, p, demanded, how);
  }
  for_each_counter(predictions.total(phase::decode), [&](counter_info const& info, auto value) {
    INFO(described(info));
    CHECK(value.value != 0);
  });

  export_source<total_span> const from{shot, nullptr, &predictions};
  std::string const json = text_of([&](auto&& sink) { write_json(from, sink); });
  std::string const line = text_of([&](auto&& sink) { write_log_line(from, sink); });
  std::string const prometheus = text_of([&](auto&& sink) { write_prometheus(from, sink); });
  auto const is_everywhere = [&](counter_info const& info, u64 value) {
    INFO(described(info));
    std::string const unit = identifier(info.unit);
    bool const has_label = info.label[0] != '\0';
    std::string const intent = info.intent == counted_for::neither ? "" : name_of(info.intent);
    std::string const number = std::to_string(value);
    CHECK(json.find(
              joined("{\"name\":\"", info.name, "\",\"unit\":\"", unit, "\"",
                     intent.empty() ? "" : joined(",\"intent\":\"", intent, "\""),
                     has_label ? joined(",\"", info.label, "\":\"", info.label_value, "\"") : "",
                     ",\"prefill\":", number, ",\"decode\":", number, "}")) != std::string::npos);
    std::string const family = joined("warmset_", info.name, "_", unit, "_total");
    CHECK(prometheus.find(joined("# TYPE ", family, " counter\n")) != std::string::npos);
    for (char const* const p : {"prefill", "decode"}) {
      CHECK(prometheus.find(
                joined("\n", family, "{phase=\"", p, "\"",
                       intent.empty() ? "" : joined(",intent=\"", intent, "\""),
                       has_label ? joined(",", info.label, "=\"", info.label_value, "\"") : "",
                       "} ", number, "\n")) != std::string::npos);
      std::string const key = joined(" ", p, ".", info.name);
      std::string const value_text = joined(".", unit, "=", number);
      bool const plain = line.find(key + value_text) != std::string::npos;
      bool const by_label =
          line.find(joined(key, ".", info.label_value, value_text)) != std::string::npos;
      bool const by_intent = line.find(joined(key, ".", intent, value_text)) != std::string::npos;
      CHECK((has_label ? by_label : plain || by_intent));
    }
  };
  for (u32 i = 0; i < n_counters; ++i)
    is_everywhere(registry[i], value_of(seen, i));
  for_each_counter(predictions.total(phase::decode),
                   [&](counter_info const& info, auto value) { is_everywhere(info, value.value); });
}

TEST_CASE("every counter is in the documentation, with its unit") {
  std::ifstream file{WARMSET_SOURCE_DIR "/docs/observe.md"};
  std::string const page{std::istreambuf_iterator<char>{file}, {}};
  REQUIRE(!page.empty());
  auto const is_listed = [&](counter_info const& info, auto) {
    INFO(described(info));
    std::istringstream lines{page};
    bool found = false;
    for (std::string line; std::getline(lines, line);)
      found = found || (line.rfind(joined("| `", info.name, "`"), 0) == 0 &&
                        line.find(info.unit) != std::string::npos);
    CHECK(found);
  };
  for_each_counter(total_counters{}, is_listed);
  for_each_counter(recall_counts{}, is_listed);
}

TEST_CASE("B103 480 experts are not 1440 bank slabs") {
  amount<unit::experts> const experts{480};
  amount<unit::bank_slabs> const slabs{1440};
  STATIC_CHECK(!std::is_invocable_v<decltype(reported_experts), amount<unit::bank_slabs>>);
  STATIC_CHECK(!std::is_invocable_v<decltype(reported_experts), u64>);
  STATIC_CHECK(!adds<amount<unit::experts>, amount<unit::bank_slabs>>);
  STATIC_CHECK(!subtracts<amount<unit::experts>, amount<unit::bank_slabs>>);
  STATIC_CHECK(!compares<amount<unit::experts>, amount<unit::bank_slabs>>);
  STATIC_CHECK(!assigns<amount<unit::experts>, amount<unit::bank_slabs>>);
  STATIC_CHECK(!assigns<amount<unit::bytes>, amount<unit::experts>>);
  STATIC_CHECK(!assigns<amount<unit::steps>, amount<unit::ids>>);
  CHECK(reported_experts(experts) == 480);

  // the same transfers in three units, each under its own name
  outcome o{};
  o.arrived[s] = 480;
  total_counters c{};
  fold(o, 3000, 3, c);
  CHECK(c.arrived[s] == experts);
  CHECK(c.slabs[s] == slabs);
  CHECK(c.bytes[s] == amount<unit::bytes>{1'440'000});
  u32 of_units = 0;
  for (u32 i = 0; i < n_counters; ++i) {
    u64 const value = value_of(c, i);
    of_units += value == 480 && std::strcmp(registry[i].unit, "experts") == 0 ? 1 : 0;
    of_units += value == 1440 && std::strcmp(registry[i].unit, "bank slabs") == 0 ? 1 : 0;
    of_units += value == 1'440'000 && std::strcmp(registry[i].unit, "bytes") == 0 ? 1 : 0;
  }
  CHECK(of_units == 3);
}

TEST_CASE("B104 admitted, issued, complete before use and late have names of their own") {
  std::set<std::string> names;
  for (counter_info const& info : registry) {
    names.insert(info.name);
    CHECK(std::strstr(info.name, "ready") == nullptr);
  }
  for (char const* const name :
       {"plans_admitted", "copies_issued", "copies_complete_before_use", "late"})
    CHECK(names.count(name) == 1);

  auto const named = [](total_counters const& c, char const* name, counted_for whose) {
    u64 found = u64_max;
    for_each_counter(c, [&](counter_info const& info, auto value) {
      if (std::strcmp(info.name, name) == 0 && info.intent == whose)
        found = value.value;
    });
    return found;
  };
  using namespace scenario;
  on_both<watched<score::lru, guard::spare_only>>(
      {.capacity = 8, .numbers = {.speculative_slots = 2}}, [&](player& play) {
        play.hint({1, 2});
        CHECK(named(play.counters(), "plans_admitted", counted_for::demand) == 0);
        CHECK(named(play.counters(), "copies_issued", counted_for::speculation) == 2);
        CHECK(named(play.counters(), "copies_completed", counted_for::speculation) == 0);
        play.finish(play.slot_of(1), transfer::arrived);
        play.demand({1, 2});  // one is there, one is on its way
        CHECK(named(play.counters(), "plans_admitted", counted_for::demand) == 1);
        CHECK(named(play.counters(), "copies_completed", counted_for::speculation) == 1);
        CHECK(named(play.counters(), "copies_complete_before_use", counted_for::speculation) == 1);
        CHECK(named(play.counters(), "late", counted_for::demand) == 1);
        play.land();
        CHECK(named(play.counters(), "copies_complete_before_use", counted_for::speculation) == 1);
        CHECK(named(play.counters(), "copies_joined", counted_for::speculation) == 1);
      });
}

}  // namespace warmset
