// SPDX-License-Identifier: Apache-2.0
// Exports are read back: JSON by a library where there is one, Prometheus text by a strict reader of its own.

#include <cctype>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include <warmset/observe/export_json.hpp>
#include <warmset/observe/export_log.hpp>
#include <warmset/observe/export_prometheus.hpp>

#if __has_include(<nlohmann/json.hpp>)
#include <nlohmann/json.hpp>
#define WARMSET_TEST_READS_JSON 1
#endif

namespace warmset {
namespace {

geometry const model = geometry::uniform(2, 16, 2, 1000);

/// Two layers in which every counter has another number, up to the largest that there is.
snapshot numbered() {
  snapshot s{model};
  u64 n = 1;
  for (u32 i = 0; i < 2; ++i) {
    for (phase const p : {phase::prefill, phase::decode}) {
      total_counters& c = s.at(i, p);
      c.zip(c, [&](auto& mine, auto) { mine.value = n++; });
      c.accesses[0].value += c.pinned_hits.value;  // pinned hits are hits
    }
  }
  s.at(0, phase::decode).bytes[1].value = u64_max - s.at(1, phase::decode).bytes[1].value;
  return s;
}

template <class Write>
std::string text_of(Write&& write) {
  std::string text;
  write([&](char const* data, std::size_t n) { text.append(data, n); });
  return text;
}

/// One sample of Prometheus text.
struct sample {
  std::string family;
  std::map<std::string, std::string> labels;
  std::string value;
};

/// Reads the text exposition format and refuses what a scraper might refuse.
class prometheus_reader {
 public:
  explicit prometheus_reader(std::string const& text) : text_(text) {
    REQUIRE((!text.empty() && text.back() == '\n'));
    while (at_ < text_.size())
      line();
  }

  std::vector<sample> samples;
  std::map<std::string, std::string> type_of;
  std::map<std::string, std::string> help_of;

  /// The value of the sample with exactly these labels.
  std::string value(std::string const& family,
                    std::map<std::string, std::string> const& labels) const {
    for (sample const& s : samples) {
      if (s.family == family && s.labels == labels)
        return s.value;
    }
    return "no such sample";
  }

 private:
  void line() {
    if (text_[at_] == '#') {
      expect("# ");
      bool const is_help = text_.compare(at_, 5, "HELP ") == 0;
      expect(is_help ? "HELP " : "TYPE ");
      std::string const name = word();
      expect(" ");
      std::string const rest = until_newline();
      if (is_help) {
        REQUIRE(help_of.emplace(name, rest).second);  // once
        REQUIRE(!rest.empty());
      } else {
        REQUIRE((rest == "counter" || rest == "gauge"));
        REQUIRE(help_of.count(name) == 1);  // HELP came first
        REQUIRE(type_of.emplace(name, rest).second);
        family_ = name;
      }
      return;
    }
    sample s;
    s.family = word();
    REQUIRE(s.family == family_);  // under its own TYPE, in one piece
    if (text_[at_] == '{') {
      ++at_;
      for (bool first = true; text_[at_] != '}'; first = false) {
        if (!first)
          expect(",");
        std::string const name = word();
        expect("=\"");
        REQUIRE(s.labels.emplace(name, quoted()).second);
      }
      ++at_;
    }
    expect(" ");
    s.value = until_newline();
    REQUIRE(!s.value.empty());
    for (char const c : s.value)
      REQUIRE((std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '.'));
    std::string key = s.family;
    for (auto const& [name, value] : s.labels)
      key += "\n" + name + "\n" + value;
    REQUIRE(seen_.insert(key).second);  // no series twice
    samples.push_back(s);
  }
  void expect(std::string const& what) {
    REQUIRE(text_.compare(at_, what.size(), what) == 0);
    at_ += what.size();
  }
  std::string word() {
    std::string name;
    while (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_')
      name += text_[at_++];
    REQUIRE(!name.empty());
    REQUIRE(std::isdigit(static_cast<unsigned char>(name[0])) == 0);
    return name;
  }
  std::string quoted() {
    std::string value;
    for (; text_[at_] != '"'; ++at_) {
      REQUIRE(text_[at_] != '\n');
      if (text_[at_] == '\\') {
        ++at_;
        REQUIRE((text_[at_] == '\\' || text_[at_] == '"' || text_[at_] == 'n'));
        value += text_[at_] == 'n' ? '\n' : text_[at_];
      } else {
        value += text_[at_];
      }
    }
    ++at_;
    return value;
  }
  std::string until_newline() {
    std::size_t const end = text_.find('\n', at_);
    std::string const rest = text_.substr(at_, end - at_);
    at_ = end + 1;
    return rest;
  }

  std::string const& text_;
  std::size_t at_ = 0;
  std::string family_;
  std::set<std::string> seen_;
};

std::string prometheus_of(export_source<total_span> const& from) {
  return text_of([&](auto&& sink) { write_prometheus(from, sink); });
}

bool ends_in(std::string const& text, std::string const& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

std::string identifier(std::string name) {
  for (char& c : name)
    c = c == ' ' ? '_' : c;
  return name;
}

char const* const nasty = "a\"b\\c\nd\x01 \xC3\xA9";

}  // namespace

TEST_CASE("Prometheus text is read back, name by name and number by number") {
  snapshot const s = numbered();
  export_label const labels[] = {{"model", nasty}, {"rank", "0"}};
  health_monitor monitor{health_setup::of(model)};
  monitor.update(s.sum());
  recall predictions{model};
  for (bool const per_layer : {false, true}) {
    export_source<total_span> const from{s, &monitor.report(), &predictions, labels, per_layer};
    std::string const text = prometheus_of(from);
    prometheus_reader const read{text};
    for (auto const& [family, type] : read.type_of) {
      INFO(family);
      CHECK(family.rfind("warmset_", 0) == 0);
      CHECK((type == "counter") == ends_in(family, "_total"));
    }
    std::size_t counters = 0;
    for (sample const& one : read.samples) {
      CHECK(one.labels.at("model") == nasty);
      CHECK(one.labels.at("rank") == "0");
      counters += ends_in(one.family, "_total") ? 1 : 0;
    }
    u32 n_recall = 0;
    for_each_counter(recall_counts{}, [&](counter_info const&, auto) { ++n_recall; });
    CHECK(counters == n_counters * n_phases * (per_layer ? 2 : 1) + n_recall * n_phases);
    for (u32 c = 0; c < n_counters; ++c) {
      counter_info const& info = registry[c];
      std::string const family =
          std::string("warmset_") + info.name + "_" + identifier(info.unit) + "_total";
      std::map<std::string, std::string> labelled{{"model", nasty}, {"rank", "0"}};
      if (info.intent != counted_for::neither)
        labelled["intent"] = name_of(info.intent);
      if (info.label[0] != '\0')
        labelled[info.label] = info.label_value;
      for (phase const p : {phase::prefill, phase::decode}) {
        labelled["phase"] = name_of(p);
        labelled.erase("layer");
        INFO(family << " " << info.label_value);
        if (!per_layer) {
          CHECK(read.value(family, labelled) == std::to_string(value_of(s.sum(p), c)));
          continue;
        }
        for (u32 i = 0; i < 2; ++i) {
          labelled["layer"] = std::to_string(i);
          CHECK(read.value(family, labelled) == std::to_string(value_of(s.at(i, p), c)));
        }
      }
    }
  }
  export_source<total_span> const bare{s};
  std::string const text = prometheus_of(bare);
  prometheus_reader const read{text};
  CHECK(read.value("warmset_copied_bytes_total",
                   {{"phase", "decode"}, {"intent", "speculative"}}) == "18446744073709551615");
}

TEST_CASE("health is exported as gauges, in units that the names tell") {
  snapshot const s{model};
  health_setup setup = health_setup::of(model);
  setup.requested_bytes = 5000;
  setup.effective_bytes = 4000;
  setup.pageable = true;
  health_monitor monitor{setup};
  total_counters c{};
  c.steps.value = 10;
  c.hints_offered.value = 4;
  c.issued[1].value = 1;
  c.hints_dropped[static_cast<u32>(reason::guard)].value = 3;
  monitor.update(c);
  std::string const text = prometheus_of({s, &monitor.report()});
  prometheus_reader const read{text};
  CHECK(read.value("warmset_health", {{"state", "degraded"}}) == "1");
  CHECK(read.value("warmset_health", {{"state", "active"}}) == "0");
  CHECK(read.value("warmset_health", {{"state", "inert"}}) == "0");
  CHECK(read.value("warmset_health_condition",
                   {{"condition", "pageable"}, {"reason", "pageable"}}) == "1");
  CHECK(read.value("warmset_health_condition", {{"condition", "no_permit"}, {"reason", "none"}}) ==
        "0");
  CHECK(read.value("warmset_drop_ratio", {}) == "0.750000");
  CHECK(read.value("warmset_budget_requested_bytes", {}) == "5000");
  CHECK(read.value("warmset_budget_effective_bytes", {}) == "4000");
  CHECK(read.value("warmset_layers_covered", {}) == "2");
  CHECK(read.value("warmset_producers_may_stop", {}) == "0");
  std::string const line = text_of([&](auto&& sink) {
    write_log_line(export_source<total_span>{s, &monitor.report()}, sink);
  });
  CHECK(line.find(" health=degraded reason=over_budget") == std::string::npos);
  CHECK(line.find(" health=degraded reason=pageable ") != std::string::npos);
  CHECK(line.find(" drop_rate=0.750000 ") != std::string::npos);
  CHECK(line.find(" budget_differs=over_budget,4000/5000 ") != std::string::npos);
}

TEST_CASE("a log line is one line of pairs, and what it leaves out is 0") {
  snapshot const s = numbered();
  export_label const labels[] = {{"model", nasty}};
  for (bool const is_delta : {false, true}) {
    snapshot const zero{model};
    snapshot_delta const between = s - zero;
    std::string const line = text_of([&](auto&& sink) {
      if (is_delta)
        write_log_line(export_source<delta_span>{between, nullptr, nullptr, labels}, sink);
      else
        write_log_line(export_source<total_span>{s, nullptr, nullptr, labels}, sink);
    });
    CHECK(line.find('\n') == line.size() - 1);
    CHECK(line.find(is_delta ? "warmset span=delta " : "warmset span=total ") == 0);
    CHECK(line.find(" model=\"a\\\"b\\\\c\\nd\\u0001 \xC3\xA9\"") != std::string::npos);
    std::istringstream words{line.substr(line.find("prefill."))};
    std::map<std::string, std::string> pairs;
    for (std::string word; words >> word;) {
      std::size_t const equals = word.find('=');
      REQUIRE(equals != std::string::npos);
      REQUIRE(pairs.emplace(word.substr(0, equals), word.substr(equals + 1)).second);
    }
    CHECK(pairs.size() == n_counters * n_phases);
    CHECK(pairs.at("decode.copied.speculative.bytes") == "18446744073709551615");
    CHECK(pairs.at("decode.plans_admitted.steps") ==
          std::to_string(s.sum(phase::decode).steps.value));
    CHECK(
        pairs.at("prefill.hints_dropped.guard.experts") ==
        std::to_string(s.sum(phase::prefill).hints_dropped[static_cast<u32>(reason::guard)].value));
  }
  snapshot const zero{model};
  CHECK(text_of([&](auto&& sink) { write_log_line(export_source<total_span>{zero}, sink); }) ==
        "warmset span=total\n");
}

TEST_CASE("a buffer takes what fits, ends it and says what it needed") {
  snapshot const s = numbered();
  export_source<total_span> const from{s};
  std::string const whole = text_of([&](auto&& sink) { write_json(from, sink); });
  std::vector<char> memory(whole.size() + 1);
  buffer_sink exact{memory.data(), memory.size()};
  write_json(from, exact);
  CHECK(!exact.truncated());
  CHECK(exact.size() == whole.size());
  CHECK(memory.data() == whole);
  for (std::size_t const room :
       {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{300}, whole.size()}) {
    std::vector<char> small(room + 1, '#');
    buffer_sink cut{small.data(), room};
    write_json(from, cut);
    CHECK(cut.truncated());
    CHECK(cut.needed() == whole.size());
    CHECK(small[room] == '#');
    if (room != 0) {
      CHECK(cut.size() == room - 1);
      CHECK(std::string(small.data()) == whole.substr(0, room - 1));
    }
  }
}

TEST_CASE("labels that no scraper takes, or that exports use themselves, are refused") {
  for (char const* const name :
       {"", "1st", "a-b", "a b", "__name", "phase", "layer", "intent", "source", "reason", "state",
        "condition", "\xC3\xA9", "span", "health", "since_step", "step", "drop_rate",
        "bytes_per_useful_hit"}) {
    INFO(name);
    CHECK_THROWS_AS(export_label(name, "x"), config_error);
  }
  for (u32 i = 0; i < n_health_conditions; ++i) {
    CHECK_THROWS_AS(export_label(name_of(static_cast<health_condition>(i)), "x"), config_error);
  }
  CHECK(std::string(export_label("_a1", "x").name()) == "_a1");
}

TEST_CASE("no key of the log line is a label that could be given") {
  snapshot const s = numbered();
  health_report raised{};
  for (condition_report& c : raised.conditions) {
    c.raised = true;
  }
  std::istringstream words{text_of([&](auto&& sink) {
    write_log_line(export_source{s, &raised}, sink);
  })};
  std::string word;
  for (words >> word; words >> word;) {
    std::string const key = word.substr(0, word.find('='));
    INFO(key);
    CHECK_THROWS_AS(export_label(key.c_str(), "x"), config_error);
  }
}

TEST_CASE("two labels of one name are refused") {
  snapshot const s = numbered();
  export_label const twice[] = {{"model", "a"}, {"rank", "0"}, {"model", "b"}};
  CHECK_THROWS_AS((export_source<total_span>{s, nullptr, nullptr, twice}), config_error);
  CHECK_THROWS_AS((export_source<total_span>{s, nullptr, nullptr, std::vector(twice, twice + 3)}),
                  config_error);
  CHECK_NOTHROW(export_source<total_span>{s, nullptr, nullptr, {twice, 2}});
}

#if defined(WARMSET_TEST_READS_JSON)
TEST_CASE("JSON is read back, number by number") {
  using nlohmann::json;
  snapshot const s = numbered();
  export_label const labels[] = {{"model", nasty}};
  health_setup setup = health_setup::of(model);
  setup.pageable = true;
  health_monitor monitor{setup};
  monitor.update(s.sum());
  recall predictions{model};
  predictions.predicted(0, std::vector<i32>{1, 2});
  u32 const used[] = {1};
  access_kind const how[] = {access_kind::load};
  predictions.used(0, phase::decode, used, how);
  for (bool const per_layer : {false, true}) {
    export_source<total_span> const from{s, &monitor.report(), &predictions, labels, per_layer};
    std::string const text = text_of([&](auto&& sink) { write_json(from, sink); });
    CHECK(text.find('\n') == text.size() - 1);
    json const read = json::parse(text);
    CHECK(read["format"] == "warmset-counters");
    CHECK(read["version"] == 1);
    CHECK(read["span"] == "total");
    CHECK(read["labels"]["model"] == nasty);
    REQUIRE(read["counters"].size() == n_counters);
    for (u32 c = 0; c < n_counters; ++c) {
      json const& entry = read["counters"][c];
      counter_info const& info = registry[c];
      INFO(entry.dump());
      CHECK(entry["name"] == info.name);
      CHECK(entry["unit"] == identifier(info.unit));
      CHECK(entry.contains("intent") == (info.intent != counted_for::neither));
      if (info.label[0] != '\0')
        CHECK(entry[info.label] == info.label_value);
      for (phase const p : {phase::prefill, phase::decode}) {
        json const& number = entry[name_of(p)];
        if (!per_layer) {
          CHECK(number.get<u64>() == value_of(s.sum(p), c));
          continue;
        }
        for (u32 i = 0; i < 2; ++i)
          CHECK(number[std::to_string(i)].get<u64>() == value_of(s.at(i, p), c));
      }
    }
    CHECK(read["health"]["state"] == "degraded");
    CHECK(read["health"]["conditions"][0]["condition"] == "pageable");
    CHECK(read["health"]["conditions"].size() == 1);
    CHECK(read["health"]["producers_may_stop"] == false);
    u32 at = 0;
    for_each_counter(predictions.total(phase::decode), [&](counter_info const& info, auto value) {
      CHECK(read["recall"][at]["name"] == info.name);
      CHECK(read["recall"][at]["decode"].get<u64>() == value.value);
      CHECK(read["recall"][at++]["prefill"] == 0);
    });
    CHECK(read["recall"].size() == at);
  }
  snapshot const before{model};
  snapshot_delta const between = s - before;
  json const delta = json::parse(
      text_of([&](auto&& sink) { write_json(export_source<delta_span>{between}, sink); }));
  CHECK(delta["span"] == "delta");
  CHECK(!delta.contains("health"));
  CHECK(!delta.contains("recall"));
  for (json const& entry : delta["counters"]) {
    if (entry["name"] == "copied" && entry["unit"] == "bytes" && entry["intent"] == "speculative")
      CHECK(entry["decode"].get<u64>() == u64_max);
  }
}
#endif

}  // namespace warmset
