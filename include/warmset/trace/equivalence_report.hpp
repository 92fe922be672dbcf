// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../core/error.hpp"
#include "../core/ids.hpp"
#include "../core/spelling.hpp"
#include "format_error.hpp"

namespace warmset::inline v0 {
namespace trace {

/// Why two runs are not equivalent, or why their comparison says nothing.
enum class equivalence_fault : u8 {
  none,
  empty_output,        ///< no expert was delivered, or no byte
  never_ran,           ///< a predictor was never asked, or never had a hint
  nothing_speculated,  ///< hints came and not one of them became a load: nothing was put to the test
  refused_step,        ///< the cache did not decide a step
  not_delivered,       ///< a demanded expert never arrived, neither in its slot nor in scratch
  faulty_read,         ///< the backend itself says that a slot does not hold what it should
  other_expert,  ///< a step delivered another expert than without hints, or another number of them
  other_bytes,   ///< an expert's bytes are not those that it has without hints
};

inline constexpr u32 n_equivalence_faults = 9;

constexpr char const* name_of(equivalence_fault f) noexcept {
  constexpr char const* names[n_equivalence_faults] = {
      "none",          "empty_output", "never_ran",    "nothing_speculated", "refused_step",
      "not_delivered", "faulty_read",  "other_expert", "other_bytes"};
  return static_cast<u32>(f) < n_equivalence_faults ? names[static_cast<u32>(f)] : "unknown";
}

/// What one run did. Units: steps of a layer, experts, bytes.
struct equivalence_run {
  std::string predictor;
  u64 steps = 0;
  u64 delivered = 0;  ///< experts, one per distinct id of a step
  u64 bytes = 0;      ///< of those, as they were read
  u64 asked = 0;      ///< calls of predict
  u64 hints = 0;      ///< that came of them
  u64 loads = 0;      ///< that hints started
  u64 digest = 0;     ///< of all deliveries in their order
  bool operator==(equivalence_run const&) const = default;
};

/// What a comparison of runs found: equivalent, or the first difference.
struct equivalence_report {
  equivalence_fault fault = equivalence_fault::none;
  u32 run = 0;         ///< which of `runs`; meaningful with a fault
  u64 step = 0;        ///< number of the event in the order of play
  layer_id layer{};    ///< the event's
  expert_id expert{};  ///< of a single delivery
  std::vector<equivalence_run>
      runs;  ///< the first is without hints, the others are compared with it

  explicit operator bool() const noexcept { return fault == equivalence_fault::none; }
  bool operator==(equivalence_report const&) const = default;
};

/// The fault of comparisons that prove nothing, or `none`: runs without output, predictors that never ran. O(runs).
inline equivalence_report vacuous(std::vector<equivalence_run> runs) {
  equivalence_report report;
  report.runs = std::move(runs);
  auto const fail = [&](equivalence_fault f, std::size_t run) {
    if (report.fault == equivalence_fault::none) {
      report.fault = f;
      report.run = static_cast<u32>(run);
    }
  };
  if (report.runs.size() < 2) {
    fail(equivalence_fault::never_ran, 0);
  }
  for (std::size_t i = 0; i < report.runs.size(); ++i) {
    equivalence_run const& r = report.runs[i];
    if (r.delivered == 0 || r.bytes == 0) {
      fail(equivalence_fault::empty_output, i);
    } else if (i != 0 && (r.asked == 0 || r.hints == 0)) {
      fail(equivalence_fault::never_ran, i);
    } else if (i != 0 && r.loads == 0) {
      fail(equivalence_fault::nothing_speculated, i);
    } else if (i != 0 && r.delivered != report.runs[0].delivered) {
      fail(equivalence_fault::other_expert, i);
    } else if (i != 0 && (r.digest != report.runs[0].digest || r.bytes != report.runs[0].bytes)) {
      fail(equivalence_fault::other_bytes, i);
    }
  }
  return report;
}

/// One sentence for people.
inline std::string to_sentence(equivalence_report const& r) {
  if (r) {
    return std::to_string(r.runs.size()) + " runs delivered the same " +
           std::to_string(r.runs.empty() ? 0 : r.runs[0].delivered) + " experts, byte for byte";
  }
  std::string const who = r.run < r.runs.size() ? r.runs[r.run].predictor : "?";
  std::string text = std::string(name_of(r.fault)) + " under " + who;
  switch (r.fault) {
  case equivalence_fault::empty_output:
  case equivalence_fault::never_ran:
  case equivalence_fault::nothing_speculated:
    return text;
  default:
    return text + " at step " + std::to_string(r.step) + ", layer " +
           std::to_string(r.layer.value) + ", expert " + std::to_string(r.expert.value);
  }
}

namespace detail {

/// Lines of words, as report files have them.
class report_lines {
 public:
  explicit report_lines(std::string_view text) : text_(text) {}

  [[noreturn]] void fail(std::string const& what) const {
    throw format_error("equivalence report", format_error::unit::line, line_, what);
  }

  /// The next line; false at the end of the text. A line without an end is one that was cut off.
  bool next() {
    if (text_.empty()) {
      return false;
    }
    ++line_;
    std::size_t const end = text_.find('\n');
    if (end == std::string_view::npos) {
      fail("the line is cut off");
    }
    rest_ = text_.substr(0, end);
    text_.remove_prefix(end + 1);
    if (rest_.ends_with(' ')) {
      fail("the line ends in a blank");
    }
    return true;
  }
  std::string_view word() {
    std::size_t const end = rest_.find(' ');
    std::string_view const w = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    return w;
  }
  void expect(std::string_view wanted) {
    if (std::string_view const w = word(); w != wanted) {
      fail("'" + std::string(wanted) + "' is expected where '" + std::string(w.substr(0, 32)) +
           "' stands");
    }
  }
  u64 number(std::string_view field, u64 base = 10) {
    expect(field);
    return digits(field, base);
  }
  u64 digits(std::string_view field, u64 base) {
    std::string_view const w = word();
    u64 value = 0;
    bool wrong = w.empty() || w.size() > 20;
    for (char c : w) {
      u64 const d = c >= '0' && c <= '9'   ? static_cast<u64>(c - '0')
                    : c >= 'a' && c <= 'f' ? static_cast<u64>(c - 'a') + 10
                                           : base;
      wrong = wrong || d >= base || value > (~u64{0} - d) / base;
      value = wrong ? 0 : value * base + d;
    }
    if (wrong) {
      fail(std::string(field) + " is '" + std::string(w.substr(0, 32)) + "', not a number");
    }
    return value;
  }
  u32 number32(std::string_view field) {
    u64 const value = number(field);
    if (value > u32_max) {
      fail(std::string(field) + " is " + std::to_string(value) + ", more than 32 bits hold");
    }
    return static_cast<u32>(value);
  }
  /// The line has no more words.
  void end_line() const {
    if (!rest_.empty()) {
      fail("'" + std::string(rest_.substr(0, 32)) + "' follows the end of the line");
    }
  }
  bool is_done() const noexcept { return text_.empty(); }

 private:
  std::string_view text_;
  std::string_view rest_;
  u64 line_ = 0;
};

/// Whether a text is one word of a line.
inline bool is_word(std::string_view text) noexcept {
  bool good = !text.empty();
  for (char c : text) {
    good = good && static_cast<unsigned char>(c) > ' ' && c != '\x7F';
  }
  return good;
}

inline std::string hex(u64 x) {
  std::string s(16, '0');
  for (std::size_t i = 16; i-- != 0; x >>= 4) {
    s[i] = "0123456789abcdef"[x & 15];
  }
  return s;
}

}  // namespace detail

/// The report as a file keeps it, under a nonce: a number that whoever starts the run has made up for this run alone
/// and handed to it. A file that an earlier run left behind has another one. Throws config_error where a predictor's
/// name is not one word: empty, or with a blank or a control character.
inline std::string to_text(equivalence_report const& r, u64 nonce) {
  std::string text = "warmset-equivalence 1\nnonce " + detail::hex(nonce) + "\n";
  for (equivalence_run const& run : r.runs) {
    if (!detail::is_word(run.predictor)) {
      throw config_error("an equivalence report names predictors in one word each, and not '",
                         run.predictor.c_str(), "'");
    }
    text += "run " + run.predictor + " steps " + std::to_string(run.steps) + " delivered " +
            std::to_string(run.delivered) + " bytes " + std::to_string(run.bytes) + " asked " +
            std::to_string(run.asked) + " hints " + std::to_string(run.hints) + " loads " +
            std::to_string(run.loads) + " digest " + detail::hex(run.digest) + "\n";
  }
  text += "fault " + std::string(name_of(r.fault)) + " run " + std::to_string(r.run) + " step " +
          std::to_string(r.step) + " layer " + std::to_string(r.layer.value) + " expert " +
          std::to_string(r.expert.value) + "\nend\n";
  return text;
}

/// Reads a report file back. Throws format_error with the line where the file is of another run, because its nonce is
/// not this one, is cut off, or is no such file. What it says of itself is judged again: a report without a fault whose
/// runs prove nothing, or differ, has one.
inline equivalence_report read_equivalence(std::string_view text, u64 nonce) {
  detail::report_lines in(text);
  if (!in.next()) {
    in.fail("the input is empty");
  }
  in.expect("warmset-equivalence");
  in.expect("1");
  in.end_line();
  if (!in.next()) {
    in.fail("the nonce is missing");
  }
  if (u64 const found = in.number("nonce", 16); found != nonce) {
    in.fail("the nonce is " + detail::hex(found) + " and not " + detail::hex(nonce) +
            ": this is the report of another run");
  }
  in.end_line();
  equivalence_report report;
  bool more = in.next();
  std::string_view kind = more ? in.word() : std::string_view{};
  for (; more && kind == "run"; more = in.next(), kind = more ? in.word() : std::string_view{}) {
    equivalence_run run;
    run.predictor = std::string(in.word());
    if (!detail::is_word(run.predictor)) {
      in.fail("a run names no predictor");
    }
    run.steps = in.number("steps");
    run.delivered = in.number("delivered");
    run.bytes = in.number("bytes");
    run.asked = in.number("asked");
    run.hints = in.number("hints");
    run.loads = in.number("loads");
    run.digest = in.number("digest", 16);
    in.end_line();
    report.runs.push_back(std::move(run));
  }
  if (kind != "fault") {
    in.fail("the verdict is missing");
  }
  std::string_view const name = in.word();
  u32 fault = 0;
  while (fault < n_equivalence_faults && name != name_of(static_cast<equivalence_fault>(fault))) {
    ++fault;
  }
  if (fault == n_equivalence_faults) {
    in.fail("'" + std::string(name.substr(0, 32)) + "' is no fault");
  }
  report.fault = static_cast<equivalence_fault>(fault);
  report.run = in.number32("run");
  report.step = in.number("step");
  report.layer.value = in.number32("layer");
  report.expert.value = in.number32("expert");
  in.end_line();
  if (!in.next()) {
    in.fail("the end is missing");
  }
  in.expect("end");
  in.end_line();
  if (!in.is_done()) {
    in.fail("something follows the end");
  }
  return report ? vacuous(std::move(report.runs)) : report;
}

}  // namespace trace
}  // namespace warmset::inline v0
