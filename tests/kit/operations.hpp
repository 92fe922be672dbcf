// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include <warmset/core/intent.hpp>

#include "under_test.hpp"

namespace warmset::kit {

/// One operation on a table, as data: sequences of them are generated, shrunk, printed and run again.
struct operation {
  enum class kind : u8 {
    demand,       ///< ids of row a, phase b
    hints,        ///< ids of row a, for the layer's step + b - 1, at most c loads
    arrive,       ///< the transfer number a (modulo those in flight) ends; b = 1: it failed; b = 2: a stale word
    commit_kept,  ///< commits the plan that was kept last, if any
    release,      ///< ends the hold number a (modulo those open)
    resize,       ///< capacity a
    invalidate,   ///< row a; n_rows or above: all
    pin,          ///< expert b of row a
    unpin,
    pass,         ///< other pools of the model take a ticks
  };
  enum class fate : u8 { commit, drop, keep, twice };

  kind what;
  u32 a = 0, b = 0, c = 0;
  fate then = fate::commit;
  bool hold = false;  ///< lease the slots afterwards
  id_type type = id_type::i32;
  std::vector<i64> ids;
};

using operations = std::vector<operation>;

/// The sequence as C++ that compiles inside a test.
inline std::string as_code(operations const& sequence) {
  constexpr char const* kinds[] = {"demand", "hints",      "arrive", "commit_kept", "release",
                                   "resize", "invalidate", "pin",    "unpin",       "pass"};
  constexpr char const* fates[] = {"commit", "drop", "keep", "twice"};
  constexpr char const* types[] = {"i32", "u16", "u32"};
  std::ostringstream out;
  out << "kit::operations const sequence{\n";
  for (operation const& o : sequence) {
    out << "    {op::kind::" << kinds[static_cast<u32>(o.what)] << ", " << o.a << ", " << o.b << ", " << o.c
        << ", op::fate::" << fates[static_cast<u32>(o.then)] << ", " << (o.hold ? "true" : "false")
        << ", kit::id_type::" << types[static_cast<u32>(o.type)] << ", {";
    for (std::size_t i = 0; i < o.ids.size(); ++i) {
      out << (i == 0 ? "" : ", ") << o.ids[i];
    }
    out << "}},\n";
  }
  out << "};\n";
  return out.str();
}

/// A seeded generator of 64-bit integers (splitmix64): the same sequence on every platform.
class integers {
 public:
  explicit integers(u64 seed) noexcept : state_(seed) {}

  u64 next() noexcept {
    u64 z = state_ += 0x9E37'79B9'7F4A'7C15ull;
    z = (z ^ z >> 30) * 0xBF58'476D'1CE4'E5B9ull;
    z = (z ^ z >> 27) * 0x94D0'49BB'1331'11EBull;
    return z ^ z >> 31;
  }
  /// Below `n`; 0 for n = 0.
  u32 below(u64 n) noexcept { return n == 0 ? 0 : static_cast<u32>(next() % n); }
  bool one_in(u32 n) noexcept { return below(n) == 0; }

 private:
  u64 state_;
};

/// How often each operation comes, in shares of their sum.
struct weights {
  u32 demand = 40, hints = 25, arrive = 40, commit_kept = 3, release = 12, resize = 2, invalidate = 1,
      pin = 2, unpin = 3, pass = 1;
};

/// Sequences of operations over a table of one configuration. Ids are skewed towards low ones, so that hits,
/// evictions and heat all occur; wide steps, overflow, padding, foreign ids and duplicates come at times.
class generator {
 public:
  generator(table_config config, bool hints, u64 seed, weights w = {})
      : config_(config), hints_(hints), weights_(w), random_(seed) {}

  operation next() {
    using kind = operation::kind;
    u32 const shares[] = {weights_.demand, hints_ ? weights_.hints : 0, weights_.arrive,
                          weights_.commit_kept, weights_.release, weights_.resize, weights_.invalidate,
                          weights_.pin, weights_.unpin, weights_.pass};
    u32 sum = 0;
    for (u32 const share : shares) {
      sum += share;
    }
    u32 at = random_.below(sum);
    u32 which = 0;
    while (at >= shares[which]) {
      at -= shares[which++];
    }
    operation o{static_cast<kind>(which), 0, 0, 0, operation::fate::commit, false, id_type::i32, {}};
    switch (o.what) {
      case kind::demand:
        o.a = random_.below(config_.n_rows);
        o.b = random_.below(2);
        o.then = fate();
        o.hold = random_.one_in(3);
        o.type = static_cast<id_type>(random_.below(3));
        o.ids = ids(o.type);
        break;
      case kind::hints:
        o.a = random_.below(config_.n_rows);
        o.b = random_.one_in(8) ? random_.below(2) : 2 + random_.below(2);
        o.c = random_.one_in(4) ? random_.below(3) : 1000;
        o.then = fate();
        o.ids = ids(id_type::i32);
        break;
      case kind::arrive:
        o.a = random_.below(64);
        o.b = random_.one_in(6) ? 1 : random_.one_in(12) ? 2 : 0;
        break;
      case kind::release: o.a = random_.below(64); break;
      case kind::resize:
        o.a = random_.one_in(3) ? config_.reserved : random_.below(config_.reserved + 2);
        break;
      case kind::invalidate: o.a = random_.below(config_.n_rows + 1); break;
      case kind::pin:
      case kind::unpin:
        o.a = random_.below(config_.n_rows);
        o.b = random_.below(config_.n_experts + 1);
        break;
      case kind::pass: o.a = random_.below(1000); break;
      case kind::commit_kept: break;
    }
    return o;
  }

  operations sequence(u32 n) {
    operations list;
    list.reserve(n);
    for (u32 i = 0; i < n; ++i) {
      list.push_back(next());
    }
    return list;
  }

 private:
  operation::fate fate() {
    return random_.one_in(12) ? static_cast<operation::fate>(1 + random_.below(3)) : operation::fate::commit;
  }

  std::vector<i64> ids(id_type type) {
    u32 n = 1 + random_.below(config_.k);
    if (random_.one_in(10)) {
      n = random_.below(2 * config_.n_experts + 40);  // wide: other paths, overflow, or nothing at all
    } else if (random_.one_in(6)) {
      n = random_.below(config_.capacity + 3);
    }
    std::vector<i64> list;
    for (u32 i = 0; i < n; ++i) {
      if (random_.one_in(40)) {
        constexpr i64 foreign[] = {0, 1, 5, 40'000};
        list.push_back(i64{config_.n_experts} + foreign[random_.below(4)]);
      } else if (type == id_type::i32 && random_.one_in(40)) {
        list.push_back(random_.one_in(2) ? -1 : -40'000);
      } else {
        u32 const range = 1 + random_.below(config_.n_experts);
        list.push_back((random_.below(range) + drift_) % config_.n_experts);
      }
    }
    drift_ += random_.one_in(200) ? 1 : 0;
    return list;
  }

  table_config config_;
  bool hints_;
  weights weights_;
  integers random_;
  u32 drift_ = 0;
};

/// Delta debugging: a subsequence that still fails and from which no single operation or id can be taken
/// away. `fails` must be deterministic.
inline operations shrink(operations sequence, std::function<bool(operations const&)> const& fails) {
  for (std::size_t chunk = (sequence.size() + 1) / 2; chunk != 0;) {
    bool removed = false;
    for (std::size_t at = 0; at < sequence.size();) {
      operations shorter(sequence.begin(), sequence.begin() + static_cast<std::ptrdiff_t>(at));
      std::size_t const end = std::min(at + chunk, sequence.size());
      shorter.insert(shorter.end(), sequence.begin() + static_cast<std::ptrdiff_t>(end), sequence.end());
      if (fails(shorter)) {
        sequence = std::move(shorter);
        removed = true;
      } else {
        at += chunk;
      }
    }
    chunk = chunk > 1 ? (chunk + 1) / 2 : removed ? 1 : 0;
  }
  for (std::size_t at = 0; at < sequence.size(); ++at) {
    for (std::size_t i = 0; i < sequence[at].ids.size();) {
      operations shorter = sequence;
      shorter[at].ids.erase(shorter[at].ids.begin() + static_cast<std::ptrdiff_t>(i));
      if (fails(shorter)) {
        sequence = std::move(shorter);
      } else {
        ++i;
      }
    }
  }
  return sequence;
}

}  // namespace warmset::kit

#if defined(WARMSET_HAS_RAPIDCHECK)
#include <rapidcheck.h>

namespace warmset::kit {

/// Short sequences for RapidCheck, which shrinks them itself: a seed chooses each operation.
inline rc::Gen<operations> arbitrary_operations(table_config config, bool hints) {
  return rc::gen::map(rc::gen::container<std::vector<u64>>(rc::gen::arbitrary<u64>()),
                      [=](std::vector<u64> const& seeds) {
                        operations list;
                        for (u64 const seed : seeds) {
                          list.push_back(generator(config, hints, seed).next());
                        }
                        return list;
                      });
}

}  // namespace warmset::kit
#endif
