// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "../core/sentence.hpp"
#include "ledger.hpp"
#include "pool_bytes.hpp"
#include "references.hpp"

namespace warmset::inline v0::gate {

/// How much a cache asks for on one device.
class size_request {
 public:
  enum class kind : u8 { disabled, bytes, slots, automatic };

  /// Nothing: what a draft model, or any other context that nobody sized, gets. A size is inherited only
  /// where the caller hands it over.
  constexpr size_request() noexcept = default;
  static constexpr size_request of_bytes(u64 n) noexcept { return {kind::bytes, n}; }
  /// Per layer.
  static constexpr size_request of_slots(u32 n) noexcept { return {kind::slots, n}; }
  /// Whatever the device's budget has left.
  static constexpr size_request automatic() noexcept { return {kind::automatic, 0}; }

  constexpr kind what() const noexcept { return kind_; }
  constexpr u64 number() const noexcept { return number_; }

 private:
  constexpr size_request(kind k, u64 n) noexcept : kind_(k), number_(n) {}
  kind kind_ = kind::disabled;
  u64 number_ = 0;
};

/// What becomes of a request that its device cannot hold.
enum class shortage : u8 {
  refuse,    ///< nothing is reserved anywhere
  largest,   ///< the largest size that fits; where not one slot per layer does, a config_error
  baseline,  ///< no cache on that device
};

/// One context's share of one device: the layers that are there, and how much they get.
struct device_share {
  u32 device;
  geometry const* model;  ///< of the layers on this device
  size_request size;
};

/// What holds for all devices of one reservation.
struct reservation_terms {
  shortage when_short = shortage::refuse;
  u64 min_expert_bytes = 0;  ///< layers with smaller experts stay out
  pool_extras extras{};
};

/// What a request came to on one device.
struct device_report {
  u32 device;
  u32 slots;      ///< per layer; 0 = no cache here
  u64 requested;  ///< bytes; of an automatic size, what was left
  u64 effective;  ///< bytes of slots, scratch, tails and alignment
  u64 available;  ///< bytes that the device had left, headroom apart
  u32 layers_covered;
  u32 layers_total;
  reason
      why;  ///< none = as asked. `over_budget`, `in_use`, `wrong_device`, `limited` (the model is
            ///< smaller than the request), `below_minimum` (no layer has experts that large),
            ///< `unsupported` (disabled)

  /// Whether the device got what was asked; of bytes, less than one slot per layer may stay over.
  constexpr bool is_as_requested() const noexcept { return why == reason::none; }
  /// `uncovered` where layers of the model stay out: worth a warning.
  constexpr reason coverage() const noexcept {
    return layers_covered == layers_total ? reason::none : reason::uncovered;
  }
};

/// The report as one sentence for a person.
inline sentence describe(device_report const& r) noexcept {
  sentence s{"device ",   r.device,      ": ",        r.requested,   " bytes requested, ",
             r.effective, " reserved, ", r.available, " available, "};
  s.append(r.slots, " slots per layer, ", r.layers_covered, " of ", r.layers_total, " layers; ",
           name_of(r.why));
  return s;
}

/// The layers of a model whose experts have at least so many bytes.
template <class Geometry>
Geometry covered_by(Geometry const& model, u64 min_expert_bytes) {
  auto layers = model.layers();
  layers.clear();
  for (auto const& layer : model.layers()) {
    if (layer.expert_bytes() >= min_expert_bytes) {
      layers.push_back(layer);
    }
  }
  return Geometry{static_cast<decltype(layers)&&>(layers)};
}

/// The memory of all pools of one context, taken once and before anybody has authority over them; each
/// device against its own budget. Holds it until release or the destructor. Destroyed while something refers to
/// it, it leaves its bytes reserved and its `users` in place for good: who let it go too early loses memory, and
/// nobody is given memory that is in use.
///
/// The constructor throws config_error for an automatic size on a device whose bytes nobody knows, for a
/// request of 0, and for shortage::largest where not one slot per layer fits; bad_alloc. Under
/// shortage::refuse one device that cannot hold its share refuses all: `holds()` is false, nothing is taken,
/// and `short_of()` is the report that names the device. Not synchronised.
class reservation {
 public:
  template <class Terms = reservation_terms>
  reservation(ledger& memory, u32 context, array_view<device_share const> shares,
              Terms const& terms = {})
      : memory_(&memory), context_(context) {
    reports_.reserve(shares.size());
    for (device_share const& share : shares) {
      reports_.push_back(size_of(share, terms));
    }
    users_ = new references;
    holds_ = take(terms.when_short);
  }
  reservation(reservation const&) = delete;
  reservation& operator=(reservation const&) = delete;
  ~reservation() {
    if (users_->count() == 0) {
      give_back();
      delete users_;
    }
  }

  /// Whether memory is held; false as well where every share is disabled.
  bool holds() const noexcept { return holds_; }
  array_view<device_report const> reports() const noexcept { return reports_; }
  /// The first report that is not as requested, or null.
  device_report const* short_of() const noexcept {
    for (device_report const& r : reports_) {
      if (!r.is_as_requested()) {
        return &r;
      }
    }
    return nullptr;
  }

  /// Who refers to this memory: authorities that were published over it, caches, whatever else holds it.
  references& users() noexcept { return *users_; }

  /// Gives the memory back. Refused with `in_use` while anything refers to it.
  status release() noexcept {
    status const result = users_->release();
    if (result) {
      give_back();
    }
    return result;
  }

 private:
  template <class Terms>
  device_report size_of(device_share const& share, Terms const& terms) const {
    using kind = size_request::kind;
    device_report r{share.device, 0, 0, 0, 0, 0, static_cast<u32>(share.model->layers().size()),
                    reason::none};
    if (share.device >= memory_->n_devices()) {
      r.why = reason::wrong_device;
      return r;
    }
    r.available = memory_->left(share.device);
    if (share.size.what() == kind::disabled) {
      r.why = reason::unsupported;
      return r;
    }
    if (memory_->has({context_, share.device})) {
      r.why = reason::in_use;
      return r;
    }
    auto const model = covered_by(*share.model, terms.min_expert_bytes);
    r.layers_covered = static_cast<u32>(model.layers().size());
    if (r.layers_covered == 0) {
      r.why = reason::below_minimum;
      return r;
    }
    pool_bytes const bytes{model, terms.extras};
    u64 wanted_slots = share.size.number();
    switch (share.size.what()) {
    case kind::automatic:
      if (!memory_->is_known(share.device)) {
        throw config_error("an automatic size needs the bytes of device ", share.device,
                           ", and nobody says them");
      }
      r.requested = r.available;
      wanted_slots = bytes.largest(r.requested);
      break;
    case kind::bytes:
      r.requested = share.size.number();
      wanted_slots = bytes.largest(r.requested);
      break;
    default:
      r.requested = wanted_slots == 0 ? 0 : bytes.of(static_cast<u32>(wanted_slots));
      break;
    }
    if (wanted_slots == 0) {
      throw config_error("device ", share.device, ": ", r.requested,
                         " bytes come to 0 slots per layer; one takes ", bytes.of(1),
                         " bytes, scratch and tails included; ", r.available, " are available");
    }
    r.slots = static_cast<u32>(min_of(wanted_slots, u64{bytes.most_slots()}));
    r.effective = bytes.of(r.slots);
    if (r.effective > r.available) {
      shrink(r, bytes, terms.when_short);
    } else if (share.size.what() != kind::automatic && r.slots == bytes.most_slots() &&
               (wanted_slots > r.slots || r.requested > r.effective)) {
      r.why = reason::limited;
    }
    return r;
  }

  static void shrink(device_report& r, pool_bytes const& bytes, shortage when_short) {
    r.why = reason::over_budget;
    r.slots = when_short == shortage::largest ? bytes.largest(r.available) : 0;
    r.effective = r.slots == 0 ? 0 : bytes.of(r.slots);
    if (when_short == shortage::largest && r.slots == 0) {
      throw config_error("device ", r.device, " has ", r.available,
                         " bytes left; one slot per layer takes ", bytes.of(1), " bytes");
    }
  }

  /// Takes every share, or none.
  bool take(shortage when_short) noexcept {
    bool ok = true;
    bool any = false;
    for (device_report& r : reports_) {
      if (r.slots != 0) {
        if (status const taken = memory_->take({context_, r.device}, r.effective); taken) {
          any = true;
          continue;
        } else {
          r.why = taken.why;
          r.slots = 0;
          r.effective = 0;
        }
      }
      bool const is_choice = r.why == reason::unsupported || r.why == reason::below_minimum ||
                             (r.why == reason::over_budget && when_short == shortage::baseline);
      ok = ok && is_choice;
    }
    if (ok && any) {
      return true;
    }
    for (device_report& r : reports_) {
      if (r.slots != 0) {
        memory_->give_back({context_, r.device});
        r.slots = 0;
        r.effective = 0;
      }
    }
    return false;
  }
  void give_back() noexcept {
    if (holds_) {
      for (device_report const& r : reports_) {
        if (r.slots != 0) {
          memory_->give_back({context_, r.device});
        }
      }
      holds_ = false;
    }
  }

  ledger* memory_;
  u32 context_;
  std::vector<device_report> reports_;
  references* users_ = nullptr;  // on the heap: it may have to stay
  bool holds_ = false;
};

}  // namespace warmset::inline v0::gate
