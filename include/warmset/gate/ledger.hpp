// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../core/array_view.hpp"
#include "../core/error.hpp"
#include "../core/fixed_array.hpp"
#include "../core/result.hpp"

namespace warmset::inline v0::gate {

/// Who owns pools: one context (the main model, a draft model) on one device. Each has memory, pools and a
/// cache of its own; none reaches another's.
struct owner_key {
  u32 context;
  u32 device;
  friend constexpr bool operator==(owner_key, owner_key) = default;
};

inline constexpr u64 unknown_bytes = u64_max;

/// What the caches may take of one device. Budgets of devices are never added up.
struct device_budget {
  u64 bytes = unknown_bytes;  ///< unknown: nobody has looked; an automatic size is then an error
  u64 headroom = 0;  ///< of these bytes, what must stay free: prefill scratch, the driver, others
};

/// Bytes that owners have reserved, device by device. Allocates in the constructor only, which throws
/// config_error for no device. Not synchronised: for the thread that sets up and tears down. O(owners).
class ledger {
 public:
  /// @param max_owners  how many (context, device) there may be at once
  explicit ledger(array_view<device_budget const> devices, u32 max_owners = 16)
      : devices_(devices.size()), owners_(max_owners) {
    if (devices.empty() || max_owners == 0) {
      throw config_error("a ledger of ", devices.size(), " devices and ", max_owners,
                         " owners is not possible");
    }
    for (std::size_t i = 0; i < devices.size(); ++i) {
      devices_[i] = devices[i];
    }
  }
  ledger(ledger const&) = delete;
  ledger& operator=(ledger const&) = delete;

  u32 n_devices() const noexcept { return static_cast<u32>(devices_.size()); }
  /// Whether somebody has said how much the device has.
  bool is_known(u32 device) const noexcept { return devices_[device].bytes != unknown_bytes; }
  u64 headroom(u32 device) const noexcept { return devices_[device].headroom; }

  u64 reserved(u32 device) const noexcept {
    u64 sum = 0;
    for (entry const& e : owners_) {
      sum += e.is_taken && e.key.device == device ? e.bytes : 0;
    }
    return sum;
  }
  /// What may still be reserved on this device. All of 64 bits where its size is unknown.
  u64 left(u32 device) const noexcept {
    device_budget const& d = devices_[device];
    return is_known(device) ? saturating_sub(saturating_sub(d.bytes, d.headroom), reserved(device))
                            : unknown_bytes;
  }

  /// Takes bytes once for an owner. Refused with `wrong_device`, `in_use` (the owner has a reservation),
  /// `over_budget`, `limited` (no room for one more owner).
  status take(owner_key key, u64 bytes) noexcept {
    if (key.device >= n_devices()) {
      return {reason::wrong_device};
    }
    if (find(key) != nullptr) {
      return {reason::in_use};
    }
    if (bytes > left(key.device)) {
      return {reason::over_budget};
    }
    for (entry& e : owners_) {
      if (!e.is_taken) {
        e = {key, bytes, true};
        return done;
      }
    }
    return {reason::limited};
  }
  /// Gives an owner's bytes back; nothing where it has none.
  void give_back(owner_key key) noexcept {
    if (entry* const e = find(key); e != nullptr) {
      *e = {};
    }
  }
  /// Whether the owner has reserved.
  bool has(owner_key key) const noexcept {
    for (entry const& e : owners_) {
      if (e.is_taken && e.key == key) {
        return true;
      }
    }
    return false;
  }

 private:
  struct entry {
    owner_key key{};
    u64 bytes = 0;
    bool is_taken = false;
  };
  entry* find(owner_key key) noexcept {
    for (entry& e : owners_) {
      if (e.is_taken && e.key == key) {
        return &e;
      }
    }
    return nullptr;
  }

  fixed_array<device_budget> devices_;
  fixed_array<entry> owners_;
};

}  // namespace warmset::inline v0::gate
