// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstdlib>
#include <span>

#include <warmset/trace/decision_log.hpp>

using namespace warmset;
using trace::decision_log;
using trace::log_record;
using trace::record_kind;

namespace {

void require(bool holds) {
  if (!holds) {
    std::abort();
  }
}

/// Writes the records of a log again; the words must be the same.
std::vector<u32> rewritten(decision_log const& log) {
  std::vector<u32> words;
  trace::log_writer out(trace::vector_sink(words), log.header());
  for (u64 i = 0; i < log.n_records(); ++i) {
    log_record const r = log[i];
    std::vector<trace::logged_access> ids;
    std::vector<trace::logged_load> loads;
    std::vector<trace::logged_score> scores;
    switch (r.kind()) {
    case record_kind::step:
      for (u32 j = 0; j < r.n_ids(); ++j) {
        ids.push_back(r.id(j));
      }
      for (u32 j = 0; j < r.n_loads(); ++j) {
        loads.push_back(r.load(j));
      }
      out.step(r.row(), r.in_phase(), r.for_intent(), ids, loads, r.trims());
      break;
    case record_kind::settle:
      out.settle(r.pool(), r.arrived(), r.failed());
      break;
    case record_kind::release:
      out.release(r.pool(), r.released());
      break;
    case record_kind::resize:
      out.resize(r.pool(), r.slots());
      break;
    case record_kind::supplied:
      for (u32 j = 0; j < r.n_scores(); ++j) {
        scores.push_back(r.score(j));
      }
      out.supplied(r.row(), scores);
      break;
    case record_kind::permit:
      out.permit(r.bytes());
      break;
    }
  }
  return words;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  std::span<std::byte const> const bytes = std::as_bytes(std::span(data, size));
  try {
    decision_log const log = decision_log::parse(bytes);
    require(rewritten(log) == log.words());
    require(!trace::diff(log, log).has_value());
    // Against a log with one word changed, where that is still a log.
    std::vector<u32> changed = log.words();
    changed[changed.size() - 1 - size % changed.size() / 2] ^= 1;
    decision_log const other = decision_log::parse(std::move(changed));
    auto const difference = trace::diff(log, other);
    require(!difference || !difference->text.empty());
  } catch (trace::format_error const&) {
  }
  return 0;
}
