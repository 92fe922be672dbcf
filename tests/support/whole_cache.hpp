// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a test asks of a whole cache.

#include <vector>

#include <catch2/catch_test_macros.hpp>

#include <warmset/cache.hpp>
#include <warmset/observe/laws.hpp>

namespace warmset_test {

/// Audits every pool and checks the laws of the counters.
template <class Cache>
void require_sound(Cache& c) {
  using namespace warmset;
  if (audit_result const a = c.audit(); !a) {
    FAIL(name_of(a.broken) << " at " << a.where);
  }
  if (law_result const l = check_laws(c.observer().total(), c.slot_counts()); !l) {
    FAIL(name_of(l.broken) << ": " << l.left << " against " << l.right);
  }
}

/// The block of one pool.
template <class Cache>
std::vector<unsigned char> bytes_of(Cache& c, warmset::u32 pool) {
  auto const* const from = static_cast<unsigned char const*>(c.pools()[pool].block());
  return {from, from + c.pools()[pool].block_bytes()};
}

/// The blocks of all pools, one after the other.
template <class Cache>
std::vector<unsigned char> bytes_of(Cache& c) {
  std::vector<unsigned char> all;
  for (warmset::u32 pool = 0; pool < c.pools().size(); ++pool) {
    std::vector<unsigned char> const one = bytes_of(c, pool);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

}  // namespace warmset_test
