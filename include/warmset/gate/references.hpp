// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/result.hpp"

namespace warmset::inline v0::gate {

/// How many still refer to a thing that may be released once: a reservation, a source of weights. It is not
/// released while anything does, and nothing refers to it afterwards. Not synchronised: for the thread that
/// sets up and tears down.
class references {
 public:
  references() = default;
  references(references const&) = delete;
  references& operator=(references const&) = delete;

  /// One more refers to it. Refused with `no_memory` once it was released.
  status hold() noexcept {
    if (released_) {
      return {reason::no_memory};
    }
    ++n_;
    return done;
  }
  /// One less; each success of hold is ended once.
  void let_go() noexcept {
    WARMSET_ASSERT(n_ != 0, "let_go without hold");
    n_ -= n_ != 0 ? 1 : 0;
  }
  /// Refused with `in_use` while anything refers to it. What it means is the owner's: this only decides.
  status release() noexcept {
    if (n_ != 0) {
      return {reason::in_use};
    }
    released_ = true;
    return done;
  }

  u32 count() const noexcept { return n_; }
  bool is_released() const noexcept { return released_; }

 private:
  u32 n_ = 0;
  bool released_ = false;
};

}  // namespace warmset::inline v0::gate
