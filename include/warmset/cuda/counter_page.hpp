// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>

#include "../core/intent.hpp"
#include "../core/lanes.hpp"
#include "../core/outcome_words.hpp"
#include "../signal/words.hpp"

/// How the counters of a device reach the host while graphs run: the bodies of both sides. Needs no toolkit, so that a test
/// on the host runs what a kernel runs.
namespace warmset::inline v0::cuda {

/// The counters of a device's pools as its last publication left them, under a sequence lock: a line with the sequence
/// word, then one record for each pool and phase. Refers to words that are somebody else's, zero before the first
/// publication and aligned to a line; one side publishes, any thread of the host reads.
struct counter_page {
  u32* words;
  u32 n_pools;

  static constexpr u64 words_of(u32 n_pools) noexcept {
    return signal::words_per_line + u64{n_pools} * n_phases * outcome_words::n;
  }
  WARMSET_HD u32 n_records() const noexcept { return n_pools * n_phases; }
  /// Odd while a publication is under way, 0 before the first.
  WARMSET_HD u32* sequence() const noexcept { return words; }
  WARMSET_HD u32* record_words() const noexcept { return words + signal::words_per_line; }

  /// Takes the records of one publication, by pool and phase. `unsupported` where there was none yet, `busy` where the
  /// publisher came in between `tries` times; what was read is then of no meaning. Waits for nothing.
  template <signal::memory_words Words = signal::host_words>
  warmset::status read(outcome* into, u32 tries = 64) const noexcept {
    u32 const n = n_records() * outcome_words::n;
    for (u32 i = 0; i < tries; ++i) {
      u32 const before = Words::load_acquire(sequence());
      if (before == 0) {
        return {reason::unsupported};
      }
      if (before % 2 != 0) {
        continue;
      }
      for (u32 at = 0; at < n; ++at) {
        u32 const word = Words::load_acquire(record_words() + at);
        std::memcpy(reinterpret_cast<unsigned char*>(into) + std::size_t{at} * sizeof word, &word, sizeof word);
      }
      if (Words::load(sequence()) == before) {
        return done;
      }
    }
    return {reason::busy};
  }
};

/// Publishes all records of a device's pools. What was cut short is made good by the next one.
///
/// @param records  by pool and phase: as many as the page has
WARMSET_SIDE_OF_WORDS
template <signal::memory_words Words, lane_group Group>
WARMSET_HD void publish_counters(Group const& g, counter_page const& page, outcome const* records) {
  g.leader([&] { Words::store(page.sequence(), Words::load(page.sequence()) | 1); });
  auto const* const from = reinterpret_cast<u32 const*>(records);
  // release: whoever reads one of these sees the odd number
  g.for_each(page.n_records() * outcome_words::n,
             [&](u32 i) { Words::store_release(page.record_words() + i, from[i]); });
  g.leader([&] {
    u32 const next = Words::load(page.sequence()) + 1;
    Words::store_release(page.sequence(), next != 0 ? next : 2);  // 0 says that there was none
  });
}

}  // namespace warmset::inline v0::cuda
