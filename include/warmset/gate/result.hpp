// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pass.hpp"

namespace warmset::inline v0::gate {

/// Why a group refused. The epoch is the group's at that moment.
struct refused {
  reason why;
  u32 group;
  u32 epoch;
  bool retryable;
  friend constexpr bool operator==(refused, refused) = default;
};

/// Some targets were done and some failed; at least one failed.
struct partial {
  u32 ok;
  u32 failed;
  friend constexpr bool operator==(partial, partial) = default;
};

/// All targets were done. No target is ready as well: there was nothing to do.
struct ready {
  u32 ok;
  friend constexpr bool operator==(ready, ready) = default;
};

/// There is nothing to act on yet: nobody has been given the authority, or no snapshot is out.
struct not_published {
  friend constexpr bool operator==(not_published, not_published) = default;
};

/// What became of an operation on one or many groups: exactly one of the four above. Converts to nothing,
/// so that "not published" is no 0 and 144 failures are no success.
class result {
 public:
  constexpr result(not_published) noexcept {}
  constexpr result(refused r) noexcept : kind_(kind::refused), refused_(r) {}
  constexpr result(ready r) noexcept : kind_(kind::counted), ok_(r.ok) {}

  /// Of targets one by one: ready where none failed, else partial.
  static constexpr result of(u32 ok, u32 failed) noexcept {
    result r{ready{ok}};
    r.failed_ = failed;
    return r;
  }

  constexpr bool is_ready() const noexcept { return kind_ == kind::counted && failed_ == 0; }

  /// Calls the one of four functions that takes the alternative.
  template <class NotPublished, class Refused, class Partial, class Ready>
  constexpr auto match(NotPublished&& a, Refused&& b, Partial&& c, Ready&& d) const {
    if (kind_ == kind::not_published) {
      return a(not_published{});
    }
    if (kind_ == kind::refused) {
      return b(refused_);
    }
    return failed_ != 0 ? c(partial{ok_, failed_}) : d(ready{ok_});
  }

  friend constexpr bool operator==(result const&, result const&) = default;
  /// Against one alternative.
  friend constexpr bool operator==(result const& r, partial p) noexcept {
    return r == of(p.ok, p.failed);
  }

 private:
  enum class kind : u8 { not_published, refused, counted };
  kind kind_ = kind::not_published;
  refused refused_{};
  u32 ok_ = 0;
  u32 failed_ = 0;
};

/// Adds up what single targets came to.
class tally {
 public:
  constexpr void add(refused const& r) noexcept {
    if (failed_++ == 0) {
      first_ = r;
    }
    all_alike_ = all_alike_ && r.why == first_.why;
  }
  constexpr void add_ok() noexcept { ++ok_; }

  constexpr u32 ok() const noexcept { return ok_; }
  constexpr u32 failed() const noexcept { return failed_; }
  /// The first refusal; meaningless where none failed.
  constexpr refused first() const noexcept { return first_; }
  /// The first refusal where all targets were refused for one reason, else counts.
  constexpr result total() const noexcept {
    return ok_ == 0 && failed_ != 0 && all_alike_ ? result{first_} : result::of(ok_, failed_);
  }

 private:
  u32 ok_ = 0;
  u32 failed_ = 0;
  bool all_alike_ = true;
  refused first_{};
};

}  // namespace warmset::inline v0::gate
