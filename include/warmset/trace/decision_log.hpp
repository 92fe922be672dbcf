// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../core/outcome.hpp"
#include "bytes.hpp"

namespace warmset::inline v0 {
namespace trace {

/// What a record of a decision log says; docs/decision-log.md describes every word.
enum class record_kind : u8 {
  step = 1,  ///< a plan that was committed or served as an overflow, with its loads and victims
  settle,    ///< transfers that arrived or failed, taken in before the next plan
  release,   ///< slots whose leases ended
  resize,    ///< a pool got another number of usable slots
  supplied,  ///< scores that the engine handed over with the next step
  permit     ///< bytes that speculation may move
};

constexpr char const* name_of(record_kind k) noexcept {
  constexpr char const* names[] = {"unknown", "step",     "settle", "release",
                                   "resize",  "supplied", "permit"};
  return static_cast<u32>(k) < 7 ? names[static_cast<u32>(k)] : "unknown";
}

/// One distinct expert of a logged step.
struct logged_access {
  u32 expert;
  access_kind how;
  u32 slot;  ///< `no_slot.value` where the expert has none
  bool operator==(logged_access const&) const = default;
};

/// One load of a logged step: the expert, its slot, and whom it replaces.
struct logged_load {
  static constexpr u32 none = u32_max;
  u32 expert;
  u32 slot;
  u32 victim_row = none;  ///< layer row of the victim, or `none` where the slot was free
  u32 victim_expert = none;
  bool operator==(logged_load const&) const = default;
};

/// A score that the engine supplied for one expert.
struct logged_score {
  u32 expert;
  u32 score;
  bool operator==(logged_score const&) const = default;
};

namespace wsdl {
inline constexpr u32 magic = 0x4C44'5357u;  // "WSDL"
inline constexpr u32 version = 1;
inline constexpr u32 header_words = 6;  ///< without the policy's name
inline constexpr u32 max_words = 0x00FF'FFFF;
inline constexpr u32 max_items = 0xFFFF;
}  // namespace wsdl

/// What stands at the head of a decision log.
struct log_header {
  u64 fingerprint = 0;  ///< geometry::fingerprint() of the model
  std::string policy;   ///< name of the bundle that decided
  bool operator==(log_header const&) const = default;
};

/// A word sink that appends to a vector.
class vector_sink {
 public:
  /// @param words  must outlive the sink
  explicit vector_sink(std::vector<u32>& words) noexcept : words_(&words) {}
  void operator()(u32 word) { words_->push_back(word); }

 private:
  std::vector<u32>* words_;
};

/// A word sink that writes little-endian bytes to a stream; errors stay in the stream's state.
class stream_sink {
 public:
  /// @param out  must outlive the sink
  explicit stream_sink(std::ostream& out) noexcept : out_(&out) {}
  void operator()(u32 word) {
    char bytes[4];
    for (int i = 0; i < 4; ++i) {
      bytes[i] = static_cast<char>(static_cast<unsigned char>(word >> (8 * i)));
    }
    out_->write(bytes, 4);
  }

 private:
  std::ostream* out_;
};

/// Writes a decision log, record by record, into a sink of words. Allocates nothing of its own.
/// Throws config_error where a value does not fit the format; nothing of that record is written
/// then.
template <class Sink>
class log_writer {
 public:
  log_writer(Sink sink, log_header const& header) : sink_(sink) {
    u32 const length = count(header.policy.size(), "a policy's name");
    sink_(wsdl::magic);
    sink_(wsdl::version);
    sink_(static_cast<u32>(header.fingerprint));
    sink_(static_cast<u32>(header.fingerprint >> 32));
    sink_(wsdl::header_words + (length + 3) / 4);
    sink_(length);
    for (u32 i = 0; i < length; i += 4) {
      u32 word = 0;
      for (u32 j = i; j < length && j < i + 4; ++j) {
        word |= u32{static_cast<unsigned char>(header.policy[j])} << (8 * (j - i));
      }
      sink_(word);
    }
  }

  /// A step of a layer row: its distinct ids in the order of their last occurrence, the loads in
  /// the order in which slots were taken, and slots of residents that made way without a load.
  /// Speculation has no ids.
  void step(u32 row, phase in_phase, intent for_intent, std::span<logged_access const> ids,
            std::span<logged_load const> loads, std::span<u32 const> trims = {}) {
    u32 const n_ids = count(ids.size(), "a step's ids");
    u32 const n_loads = count(loads.size(), "a step's loads");
    u32 const n_trims = count(trims.size(), "a step's trims");
    fits(row);
    for (logged_access const& a : ids) {
      fits(a.expert);
    }
    for (logged_load const& l : loads) {
      fits(l.expert);
      if (has_victim(l)) {
        fits(l.victim_row);
        fits(l.victim_expert);
      }
    }
    head(record_kind::step, 4 + 2 * n_ids + 3 * n_loads + n_trims);
    sink_(row | static_cast<u32>(in_phase) << 16 | static_cast<u32>(for_intent) << 24);
    sink_(n_ids | n_loads << 16);
    sink_(n_trims);
    for (logged_access const& a : ids) {
      sink_(a.expert | static_cast<u32>(a.how) << 16);
      sink_(a.slot);
    }
    for (logged_load const& l : loads) {
      sink_(l.expert);
      sink_(l.slot);
      sink_(has_victim(l) ? l.victim_row << 16 | l.victim_expert : logged_load::none);
    }
    put(trims);
  }

  void settle(u32 pool, std::span<u32 const> arrived, std::span<u32 const> failed) {
    u32 const n_arrived = count(arrived.size(), "arrived slots");
    u32 const n_failed = count(failed.size(), "failed slots");
    head(record_kind::settle, 3 + n_arrived + n_failed);
    sink_(pool);
    sink_(n_arrived | n_failed << 16);
    put(arrived);
    put(failed);
  }

  void release(u32 pool, std::span<u32 const> slots) {
    u32 const n = count(slots.size(), "released slots");
    head(record_kind::release, 3 + n);
    sink_(pool);
    sink_(n);
    put(slots);
  }

  void resize(u32 pool, u32 slots) {
    head(record_kind::resize, 3);
    sink_(pool);
    sink_(slots);
  }

  void supplied(u32 row, std::span<logged_score const> scores) {
    u32 const n = count(scores.size(), "supplied scores");
    fits(row);
    for (logged_score const& s : scores) {
      fits(s.expert);
    }
    head(record_kind::supplied, 3 + 2 * n);
    sink_(row);
    sink_(n);
    for (logged_score const& s : scores) {
      sink_(s.expert);
      sink_(s.score);
    }
  }

  void permit(u64 bytes) {
    head(record_kind::permit, 3);
    sink_(static_cast<u32>(bytes));
    sink_(static_cast<u32>(bytes >> 32));
  }

 private:
  static bool has_victim(logged_load const& l) noexcept {
    return l.victim_row != logged_load::none;
  }
  static u32 count(std::size_t n, char const* what) {
    if (n > wsdl::max_items) {
      throw config_error("decision log: ", what, " are ", u64{n}, ", more than ",
                         u64{wsdl::max_items});
    }
    return static_cast<u32>(n);
  }
  static void fits(u32 index) {
    if (index >= wsdl::max_items) {
      throw config_error("decision log: index ", u64{index}, " does not fit in 16 bits");
    }
  }
  void head(record_kind kind, u32 words) { sink_(static_cast<u32>(kind) << 24 | words); }
  void put(std::span<u32 const> words) {
    for (u32 word : words) {
      sink_(word);
    }
  }

  Sink sink_;
};

/// One record of a decision log: a view of its words. Accessors belong to the kind in their comment
/// and must not be called on another.
class log_record {
 public:
  explicit log_record(std::span<u32 const> words) noexcept : words_(words) {}

  record_kind kind() const noexcept { return static_cast<record_kind>(words_[0] >> 24); }
  std::span<u32 const> words() const noexcept { return words_; }

  u32 row() const noexcept { return words_[1] & 0xFFFF; }  ///< step, supplied
  phase in_phase() const noexcept { return static_cast<phase>(words_[1] >> 16 & 0xFF); }  ///< step
  intent for_intent() const noexcept { return static_cast<intent>(words_[1] >> 24); }     ///< step
  u32 n_ids() const noexcept { return words_[2] & 0xFFFF; }                               ///< step
  u32 n_loads() const noexcept { return words_[2] >> 16; }                                ///< step
  u32 n_trims() const noexcept { return words_[3]; }                                      ///< step
  logged_access id(u32 i) const noexcept {                                                ///< step
    u32 const word = words_[4 + 2 * i];
    return {word & 0xFFFF, static_cast<access_kind>(word >> 16), words_[5 + 2 * i]};
  }
  logged_load load(u32 i) const noexcept {  ///< step
    u32 const* const w = words_.data() + 4 + 2 * n_ids() + 3 * i;
    bool const victim = w[2] != logged_load::none;
    return {w[0], w[1], victim ? w[2] >> 16 : logged_load::none,
            victim ? w[2] & 0xFFFF : logged_load::none};
  }
  std::span<u32 const> trims() const noexcept { return words_.last(n_trims()); }  ///< step

  u32 pool() const noexcept { return words_[1]; }  ///< settle, release, resize
  std::span<u32 const> arrived() const noexcept {  ///< settle
    return words_.subspan(3, words_[2] & 0xFFFF);
  }
  std::span<u32 const> failed() const noexcept { return words_.last(words_[2] >> 16); }  ///< settle
  std::span<u32 const> released() const noexcept { return words_.subspan(3); }  ///< release
  u32 slots() const noexcept { return words_[2]; }                              ///< resize
  u32 n_scores() const noexcept { return words_[2]; }                           ///< supplied
  logged_score score(u32 i) const noexcept {                                    ///< supplied
    return {words_[3 + 2 * i], words_[4 + 2 * i]};
  }
  u64 bytes() const noexcept { return words_[1] | u64{words_[2]} << 32; }  ///< permit

 private:
  std::span<u32 const> words_;
};

/// A decision log in memory: its header and its records in order. Immutable and well-formed.
class decision_log {
 public:
  /// Reads a log from bytes. Throws format_error with the byte offset, the field and the value.
  /// O(size).
  static decision_log parse(std::span<std::byte const> bytes) {
    if (bytes.empty()) {
      fail(0, "the input is empty");
    }
    if (bytes.size() % 4 != 0) {
      fail(bytes.size() / 4, "the input ends within a word");
    }
    std::vector<u32> words(bytes.size() / 4);
    for (std::size_t i = 0; i < words.size(); ++i) {
      words[i] = detail::load_le<u32>(bytes.data() + 4 * i);
    }
    return parse(std::move(words));
  }

  /// Takes a log over as words.
  static decision_log parse(std::vector<u32> words) {
    decision_log log;
    log.words_ = std::move(words);
    log.read_header();
    log.read_records();
    return log;
  }

  log_header const& header() const noexcept { return header_; }
  u64 n_records() const noexcept { return at_.size(); }
  log_record operator[](u64 i) const noexcept {
    std::size_t const at = at_[static_cast<std::size_t>(i)];
    return log_record({words_.data() + at, words_[at] & wsdl::max_words});
  }
  /// Byte offset of a record.
  u64 offset(u64 i) const noexcept { return u64{at_[static_cast<std::size_t>(i)]} * 4; }
  std::vector<u32> const& words() const noexcept { return words_; }

 private:
  decision_log() = default;

  [[noreturn]] static void fail(u64 word, std::string const& what) {
    throw format_error("decision log", format_error::unit::byte, word * 4, what);
  }

  void read_header() {
    if (words_.empty()) {
      fail(0, "the input is empty");
    }
    if (words_[0] != wsdl::magic) {
      fail(0, "the magic is not 'WSDL'");
    }
    if (words_.size() < wsdl::header_words) {
      fail(words_.size(), "the input ends within its header");
    }
    if (words_[1] != wsdl::version) {
      fail(1, "version is " + std::to_string(words_[1]) + "; this reader knows version " +
                  std::to_string(wsdl::version));
    }
    header_.fingerprint = words_[2] | u64{words_[3]} << 32;
    u32 const length = words_[5];
    if (length > wsdl::max_items || words_[4] != wsdl::header_words + (length + 3) / 4) {
      fail(4, "a header of " + std::to_string(words_[4]) + " words for a name of " +
                  std::to_string(length) + " bytes");
    }
    if (words_[4] > words_.size()) {
      fail(words_.size(), "the input ends within the policy's name");
    }
    for (u32 i = 0; i < (length + 3) / 4 * 4; ++i) {
      char const c = static_cast<char>(words_[wsdl::header_words + i / 4] >> (8 * (i % 4)) & 0xFF);
      if (i < length) {
        header_.policy.push_back(c);
      } else if (c != 0) {
        fail(wsdl::header_words + i / 4, "padding is not zero");
      }
    }
  }

  void read_records() {
    detail::row_marks marks(wsdl::max_items);
    std::size_t at = words_[4];
    while (at < words_.size()) {
      u32 const length = words_[at] & wsdl::max_words;
      u32 const kind = words_[at] >> 24;
      if (kind < 1 || kind > 6) {
        fail(at, "record kind is " + std::to_string(kind));
      }
      if (length > words_.size() - at) {
        fail(at, "a record of " + std::to_string(length) + " words where " +
                     std::to_string(words_.size() - at) + " are left");
      }
      if (length < (static_cast<record_kind>(kind) == record_kind::step ? 4u : 3u)) {
        fail(at, "a " + std::string(name_of(static_cast<record_kind>(kind))) + " of " +
                     std::to_string(length) + " words");
      }
      check(at, static_cast<record_kind>(kind), {words_.data() + at, length}, marks);
      at_.push_back(at);
      at += length;
    }
  }

  static void check(std::size_t at, record_kind kind, std::span<u32 const> w,
                    detail::row_marks& marks) {
    u64 wanted = 3;
    switch (kind) {
    case record_kind::step:
      wanted = 4 + u64{w[2] & 0xFFFF} * 2 + u64{w[2] >> 16} * 3 + w[3];
      break;
    case record_kind::settle:
      wanted = 3 + u64{w[2] & 0xFFFF} + (w[2] >> 16);
      break;
    case record_kind::release:
      wanted = 3 + u64{w[2]};
      break;
    case record_kind::supplied:
      wanted = 3 + u64{w[2]} * 2;
      break;
    case record_kind::resize:
    case record_kind::permit:
      break;
    }
    if (wanted != w.size()) {
      fail(at, "a " + std::string(name_of(kind)) + " of " + std::to_string(w.size()) +
                   " words whose counts need " + std::to_string(wanted));
    }
    if (kind == record_kind::step) {
      check_step(at, log_record(w), marks);
    } else if (kind == record_kind::supplied) {
      check_index(at + 1, "layer row", w[1]);
      for (u32 i = 0; i < w[2]; ++i) {
        check_index(at + 3 + 2 * i, "expert", w[3 + 2 * i]);
      }
    }
  }

  static void check_index(std::size_t at, char const* field, u32 value) {
    if (value >= wsdl::max_items) {
      fail(at, std::string(field) + " is " + std::to_string(value) + ", more than " +
                   std::to_string(wsdl::max_items - 1));
    }
  }

  static void check_step(std::size_t at, log_record const& r, detail::row_marks& marks) {
    check_index(at + 1, "layer row", r.row());
    if (static_cast<u32>(r.in_phase()) >= n_phases) {
      fail(at + 1, "phase is " + std::to_string(static_cast<u32>(r.in_phase())));
    }
    if (static_cast<u32>(r.for_intent()) >= n_intents) {
      fail(at + 1, "intent is " + std::to_string(static_cast<u32>(r.for_intent())));
    }
    marks.next_row();
    for (u32 i = 0; i < r.n_ids(); ++i) {
      logged_access const a = r.id(i);
      check_index(at + 4 + 2 * i, "expert", a.expert);
      if (r.words()[4 + 2 * i] >> 16 >= n_access_kinds) {
        fail(at + 4 + 2 * i, "access kind is " + std::to_string(r.words()[4 + 2 * i] >> 16));
      }
      if (!marks.mark(static_cast<u16>(a.expert))) {
        fail(at + 4 + 2 * i, "expert " + std::to_string(a.expert) + " occurs twice in a step");
      }
    }
    std::size_t const loads_at = at + 4 + 2 * std::size_t{r.n_ids()};
    marks.next_row();
    for (u32 i = 0; i < r.n_loads(); ++i) {
      logged_load const l = r.load(i);
      check_index(loads_at + 3 * i, "expert", l.expert);
      if (!marks.mark(static_cast<u16>(l.expert))) {
        fail(loads_at + 3 * i, "expert " + std::to_string(l.expert) + " is loaded twice in a step");
      }
      if (l.victim_row != logged_load::none) {
        check_index(loads_at + 3 * i + 2, "victim's layer row", l.victim_row);
        check_index(loads_at + 3 * i + 2, "victim", l.victim_expert);
      }
    }
  }

  log_header header_;
  std::vector<u32> words_;
  std::vector<std::size_t> at_;
};

/// The words as little-endian bytes, as they stand in a file.
inline std::vector<std::byte> to_bytes(std::span<u32 const> words) {
  std::vector<std::byte> bytes(words.size() * 4);
  for (std::size_t i = 0; i < words.size(); ++i) {
    detail::store_le(bytes.data() + 4 * i, words[i]);
  }
  return bytes;
}

/// Where two logs part.
struct log_difference {
  u64 record;        ///< index of the first record that differs; 0 for the header
  u64 step;          ///< step records before it
  bool in_header;    ///< the logs are of different models
  std::string text;  ///< one sentence for people
};

namespace detail {

inline std::string shown(logged_access const& a) {
  std::string s = "expert " + std::to_string(a.expert) + " is " + name_of(a.how);
  return a.slot == no_slot.value ? s + " without a slot" : s + " in slot " + std::to_string(a.slot);
}

inline std::string shown(logged_load const& l) {
  std::string s = "expert " + std::to_string(l.expert) + " goes to slot " + std::to_string(l.slot);
  return l.victim_row == logged_load::none
             ? s + ", which was free"
             : s + ", replacing expert " + std::to_string(l.victim_expert) + " of layer row " +
                   std::to_string(l.victim_row);
}

inline std::string shown(std::span<u32 const> slots) {
  std::string s = "[";
  for (std::size_t i = 0; i < slots.size() && i < 16; ++i) {
    s += (i == 0 ? "" : " ") + std::to_string(slots[i]);
  }
  return s + (slots.size() > 16 ? " …]" : "]");
}

inline std::string either(std::string const& first, std::string const& second) {
  return first + " in the first log; " + second + " in the second";
}

inline std::string explain_step(log_record const& a, log_record const& b) {
  if (a.words()[1] != b.words()[1]) {
    auto head = [](log_record const& r) {
      return std::string(r.for_intent() == intent::demand ? "a demand" : "a speculation") +
             (r.in_phase() == phase::prefill ? " in prefill" : " in decode") + " of layer row " +
             std::to_string(r.row());
    };
    return either(head(a), head(b));
  }
  std::string const where = "layer row " + std::to_string(a.row()) + ": ";
  for (u32 i = 0; i < min_of(a.n_ids(), b.n_ids()); ++i) {
    if (!(a.id(i) == b.id(i))) {
      return where + "id " + std::to_string(i) + ": " + either(shown(a.id(i)), shown(b.id(i)));
    }
  }
  if (a.n_ids() != b.n_ids()) {
    return where + either(std::to_string(a.n_ids()) + " ids", std::to_string(b.n_ids()) + " ids");
  }
  for (u32 i = 0; i < min_of(a.n_loads(), b.n_loads()); ++i) {
    if (!(a.load(i) == b.load(i))) {
      return where + "load " + std::to_string(i) + ": " +
             either(shown(a.load(i)), shown(b.load(i)));
    }
  }
  if (a.n_loads() != b.n_loads()) {
    return where +
           either(std::to_string(a.n_loads()) + " loads", std::to_string(b.n_loads()) + " loads");
  }
  return where + "trimmed slots are " + either(shown(a.trims()), shown(b.trims()));
}

inline std::string explain(log_record const& a, log_record const& b) {
  if (a.kind() != b.kind()) {
    return either(std::string("a ") + name_of(a.kind()), std::string("a ") + name_of(b.kind()));
  }
  auto pools = [&] {
    return "pool " + std::to_string(a.pool()) + " and " + std::to_string(b.pool()) + ": ";
  };
  switch (a.kind()) {
  case record_kind::step:
    return explain_step(a, b);
  case record_kind::settle:
    return pools() + "arrived and failed slots are " +
           either(shown(a.arrived()) + " and " + shown(a.failed()),
                  shown(b.arrived()) + " and " + shown(b.failed()));
  case record_kind::release:
    return pools() + "released slots are " + either(shown(a.released()), shown(b.released()));
  case record_kind::resize:
    return pools() +
           either(std::to_string(a.slots()) + " slots", std::to_string(b.slots()) + " slots");
  case record_kind::supplied:
    for (u32 i = 0; i < min_of(a.n_scores(), b.n_scores()) && a.row() == b.row(); ++i) {
      if (!(a.score(i) == b.score(i))) {
        auto score = [](logged_score const& s) {
          return "score " + std::to_string(s.score) + " of expert " + std::to_string(s.expert);
        };
        return "layer row " + std::to_string(a.row()) + ": " +
               either(score(a.score(i)), score(b.score(i)));
      }
    }
    return either(std::to_string(a.n_scores()) + " scores of layer row " + std::to_string(a.row()),
                  std::to_string(b.n_scores()) + " scores of layer row " + std::to_string(b.row()));
  case record_kind::permit:
    break;
  }
  return "speculation may move " +
         either(std::to_string(a.bytes()) + " bytes", std::to_string(b.bytes()) + " bytes");
}

}  // namespace detail

/// The first record where two logs part, or nothing where they say the same. The policies' names
/// may differ: two policies that decide alike have equal logs. O(size).
inline std::optional<log_difference> diff(decision_log const& a, decision_log const& b) {
  if (a.header().fingerprint != b.header().fingerprint) {
    return log_difference{0, 0, true, "the logs are of models with different geometry"};
  }
  u64 steps = 0;
  u64 const shorter = min_of(a.n_records(), b.n_records());
  auto where = [&steps](u64 i) {
    return "record " + std::to_string(i) + " (step " + std::to_string(steps) + "): ";
  };
  for (u64 i = 0; i < shorter; ++i) {
    log_record const x = a[i];
    log_record const y = b[i];
    if (x.words().size() != y.words().size() ||
        !std::equal(x.words().begin(), x.words().end(), y.words().begin())) {
      return log_difference{i, steps, false, where(i) + detail::explain(x, y)};
    }
    steps += x.kind() == record_kind::step ? 1 : 0;
  }
  if (a.n_records() != b.n_records()) {
    bool const first_ends = a.n_records() < b.n_records();
    log_record const more = first_ends ? b[shorter] : a[shorter];
    return log_difference{shorter, steps, false,
                          where(shorter) + "the " + (first_ends ? "first" : "second") +
                              " log ends, the other goes on with a " + name_of(more.kind())};
  }
  return std::nullopt;
}

}  // namespace trace
}  // namespace warmset::inline v0
