// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <sstream>

#include <warmset/trace/decision_log.hpp>

using namespace trace_test;
using trace::decision_log;
using trace::logged_access;
using trace::logged_load;

namespace {

std::vector<logged_access> const ids = {
    {3, access_kind::hit, 1}, {9, access_kind::load, 4}, {2, access_kind::declined, 12}};
std::vector<logged_load> const loads = {{9, 4, 1, 5}};

template <class Sink>
void write_sample(Sink sink, char const* policy, u32 last_slot = 4) {
  trace::log_writer log(sink, {0x1122'3344'5566'7788ull, policy});
  std::vector<u32> const arrived = {4, 5};
  std::vector<u32> const failed = {6};
  std::vector<trace::logged_score> const scores = {{1, 100}, {2, u32_max}};
  log.step(1, phase::decode, intent::demand, ids, loads);
  log.settle(0, arrived, failed);
  log.release(2, arrived);
  log.resize(0, 7);
  log.supplied(3, scores);
  log.permit(u64{5} << 32 | 6);
  std::vector<logged_load> const hint = {{0, 2, logged_load::none, logged_load::none}};
  std::vector<u32> const trims = {last_slot};
  log.step(65534, phase::prefill, intent::speculative, {}, hint, trims);
}

std::vector<u32> sample(char const* policy = "lru", u32 last_slot = 4) {
  std::vector<u32> words;
  write_sample(trace::vector_sink(words), policy, last_slot);
  return words;
}

std::vector<u32> patched(std::size_t at, u32 value) {
  std::vector<u32> words = sample();
  words.at(at) = value;
  return words;
}

std::string shown(std::vector<u32> const& words) {
  return std::string(trace::text_of(trace::to_bytes(words)));
}

decision_log parse_text(std::string const& s) {
  return decision_log::parse(trace::bytes_of(s));
}

}  // namespace

TEST_CASE("decision log: records survive, through words and through a stream") {
  std::ostringstream stream;
  write_sample(trace::stream_sink(stream), "lru");
  CHECK(stream.str() == shown(sample()));
  decision_log const log = parse_text(stream.str());
  CHECK(log.header().fingerprint == 0x1122'3344'5566'7788ull);
  CHECK(log.header().policy == "lru");
  REQUIRE(log.n_records() == 7);
  CHECK(log[0].kind() == trace::record_kind::step);
  CHECK(log[0].row() == 1);
  CHECK(log[0].in_phase() == phase::decode);
  CHECK(log[0].for_intent() == intent::demand);
  REQUIRE(log[0].n_ids() == 3);
  CHECK(log[0].id(0) == ids[0]);
  CHECK(log[0].id(2) == ids[2]);
  REQUIRE(log[0].n_loads() == 1);
  CHECK(log[0].load(0) == loads[0]);
  CHECK(log[0].trims().empty());
  CHECK(log[1].arrived()[1] == 5);
  CHECK(log[1].failed()[0] == 6);
  CHECK(log[2].pool() == 2);
  CHECK(log[2].released().size() == 2);
  CHECK(log[3].slots() == 7);
  CHECK(log[4].row() == 3);
  CHECK(log[4].score(1) == trace::logged_score{2, u32_max});
  CHECK(log[5].bytes() == (u64{5} << 32 | 6));
  CHECK(log[6].for_intent() == intent::speculative);
  CHECK(log[6].load(0).victim_row == logged_load::none);
  CHECK(log[6].trims()[0] == 4);
  CHECK(log.offset(0) == 28);
  CHECK(trace::to_bytes(log.words()) == trace::to_bytes(sample()));
}

TEST_CASE("decision log: a log without records, and names of every length") {
  for (std::string name : {"", "a", "ab", "abc", "abcd", "abcde"}) {
    std::vector<u32> words;
    trace::log_writer(trace::vector_sink(words), {1, name});
    decision_log const log = decision_log::parse(words);
    CHECK(log.header().policy == name);
    CHECK(log.n_records() == 0);
  }
}

TEST_CASE("decision log: the writer refuses what does not fit and writes nothing of it") {
  std::vector<u32> words;
  trace::log_writer log(trace::vector_sink(words), {1, "x"});
  std::size_t const before = words.size();
  std::vector<logged_access> const wide = {{65535, access_kind::hit, 0}};
  CHECK_THROWS_AS(log.step(65535, phase::decode, intent::demand, {}, {}), config_error);
  CHECK_THROWS_AS(log.step(0, phase::decode, intent::demand, wide, {}), config_error);
  CHECK_THROWS_AS(log.release(0, std::vector<u32>(65536)), config_error);
  CHECK(words.size() == before);
}

TEST_CASE("decision log: malformed inputs name the byte") {
  // Words: 0-6 header, 7 step of 13, 20 settle of 6, 26 release of 5, 31 resize of 3, 34 supplied
  // of 7.
  std::string const good = shown(sample());
  std::vector<malformed> const cases = {
      {"empty", "", 0, "empty"},
      {"within a word", good.substr(0, 30), 28, "within a word"},
      {"wrong magic", shown(patched(0, 1)), 0, "magic"},
      {"version", shown(patched(1, 2)), 4, "version is 2"},
      {"within the header", good.substr(0, 16), 16, "within its header"},
      {"header length", shown(patched(4, 8)), 16, "header of 8 words"},
      {"huge name", shown(patched(5, 0x7FFF'FFFF)), 16, "name of 2147483647"},
      {"within the name", good.substr(0, 24), 24, "policy's name"},
      {"name padding", shown(patched(6, 0x0175'726C)), 24, "padding"},
      {"kind 0", shown(patched(7, 13)), 28, "kind is 0"},
      {"kind 7", shown(patched(7, 7u << 24 | 13)), 28, "kind is 7"},
      {"length 0", shown(patched(7, 1u << 24)), 28, "step of 0 words"},
      {"length beyond the end", shown(patched(7, 1u << 24 | 0xFF'FFFF)), 28, "16777215 words"},
      {"cut off in a record", good.substr(0, 32), 28, "where 1 are left"},
      {"ids", shown(patched(9, 4 | 1u << 16)), 28, "counts need 15"},
      {"trims", shown(patched(10, u32_max)), 28, "counts need"},
      {"row", shown(patched(8, 0xFFFF)), 32, "layer row is 65535"},
      {"phase", shown(patched(8, 1 | 2u << 16)), 32, "phase is 2"},
      {"intent", shown(patched(8, 1 | 2u << 24)), 32, "intent is 2"},
      {"access kind", shown(patched(11, 3 | 7u << 16)), 44, "access kind is 7"},
      {"id beyond 16 bits", shown(patched(11, 0xFFFF)), 44, "expert is 65535"},
      {"id twice", shown(patched(13, 3)), 52, "expert 3 occurs twice"},
      {"load beyond 16 bits", shown(patched(17, 0x1'0000)), 68, "expert is 65536"},
      {"victim", shown(patched(19, 0x0001'FFFF)), 76, "victim is 65535"},
      {"settle counts", shown(patched(22, u32_max)), 80, "counts need"},
      {"release count", shown(patched(28, u32_max)), 104, "counts need"},
      {"supplied count", shown(patched(36, u32_max)), 136, "counts need"},
  };
  check_malformed(cases, trace::format_error::unit::byte, parse_text);
  for (std::size_t n = 0; n < good.size(); ++n) {
    format_error_of([&] { return parse_text(good.substr(0, n)); });
  }
}

TEST_CASE("decision log: diff shows the first record where two logs part") {
  decision_log const a = decision_log::parse(sample());
  CHECK_FALSE(trace::diff(a, decision_log::parse(sample("another name"))).has_value());

  auto const last = trace::diff(a, decision_log::parse(sample("lru", 5)));
  REQUIRE(last.has_value());
  CHECK(last->record == 6);
  CHECK(last->step == 1);
  CHECK(last->text == "record 6 (step 1): layer row 65534: trimmed slots are [4] in the first log; "
                      "[5] in the second");

  auto text = [&](std::size_t at, u32 value) {
    auto const d = trace::diff(a, decision_log::parse(patched(at, value)));
    return d ? d->text : "equal";
  };
  CHECK(text(12, 7) == "record 0 (step 0): layer row 1: id 0: expert 3 is hit in slot 1 in the "
                       "first log; expert 3 is hit "
                       "in slot 7 in the second");
  CHECK(text(19, u32_max) == "record 0 (step 0): layer row 1: load 0: expert 9 goes to slot 4, "
                             "replacing expert 5 of layer row 1 in the first "
                             "log; expert 9 goes to slot 4, which was free in the second");
  CHECK(text(8, 2).find("a demand in prefill of layer row 2 in the second") != std::string::npos);
  CHECK(text(23, 9).find(
            "arrived and failed slots are [4 5] and [6] in the first log; [9 5] and [6]") !=
        std::string::npos);
  CHECK(text(29, 9).find("released slots are [4 5] in the first log; [9 5]") != std::string::npos);
  CHECK(text(33, 9).find("7 slots in the first log; 9 slots") != std::string::npos);
  CHECK(text(38, 9).find("score 100 of expert 1 in the first log; score 9 of expert 1") !=
        std::string::npos);
  CHECK(text(42, 9).find("bytes in the first log; ") != std::string::npos);

  auto const model = trace::diff(a, decision_log::parse(patched(2, 1)));
  REQUIRE(model.has_value());
  CHECK(model->in_header);

  std::vector<u32> shorter = sample();
  shorter.resize(shorter.size() - 8);
  auto const end = trace::diff(decision_log::parse(shorter), a);
  REQUIRE(end.has_value());
  CHECK(end->record == 6);
  CHECK(end->text == "record 6 (step 1): the first log ends, the other goes on with a step");
}
