// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/device_pool.hpp"
#include "warmset/core/outcome_words.hpp"

/// What the kernels of a device's pool do, done by a lane group of the host.
namespace steps {

template <class Policy>
class host_pool {
 public:
  host_pool() : host_pool(rows(Policy::pool::spans_layers), pool<Policy>::sizes(), {.scratch_slots = 16}) {}
  host_pool(std::vector<layer_geometry> rows, pool_size sizes, tuning numbers)
      : rows_(std::move(rows)),
        owner_(rows_, sizes, numbers),
        source_(rows_, odd_banks()),
        arrivals_(owner_.view().shape().n_slots),
        queue_(std::make_unique<queue>()),
        hint_queue_(std::make_unique<queue>()),
        quick_(std::make_unique<quick_memory>()),
        workspace_(std::make_unique<workspace_of<Policy>>()),
        plan_(std::make_unique<plan_of<Policy>>()),
        kept_(std::make_unique<plan_of<Policy>>()),
        view{const_cast<void*>(owner_.block()), owner_.parts(), owner_.view().shape(), arrivals_.data(), kept_.get(),
             out, queue_.get(), nullptr, source_.n_banks(), piece_bytes,
             pieces_of(odd_banks()), 0, owner_.view().shape().n_slots} {
    table_shape const shape = view.shape;
    for (u32 bank = 0; bank < source_.n_banks(); ++bank) {
      std::vector<unsigned char const*>& from = pointers_.emplace_back();
      for (u32 row = 0; row < rows_.size(); ++row) {
        from.push_back(source_.tensor(row, bank).data());
      }
      memory_.emplace_back(source_.bytes(bank) * (shape.n_slots + shape.n_scratch), 0xEE);
    }
    for (u32 bank = 0; bank < source_.n_banks(); ++bank) {
      unsigned char* const slots = memory_[bank].data();
      banks_.push_back({pointers_[bank].data(), slots, slots + shape.n_slots * source_.bytes(bank), source_.bytes(bank)});
    }
    view.banks = banks_.data();
  }

  /// The next step, as the kernels of a graph carry it out.
  template <lane_group Group>
  void step(Group const& lanes, cuda::device_input in, std::vector<i32> const& ids, std::vector<i32>& slots) {
    u32 const n = static_cast<u32>(ids.size());
    if (!cuda::quick_on_device<Policy>(lanes, view, in, ids.data(), n, slots.data(), *quick_, *workspace_, *plan_,
                                       [&] { return view.table(); })) {
      cuda::step_on_device<Policy>(lanes, view, in, ids.data(), n, slots.data(), *workspace_, *plan_);
    }
    cuda::learn_on_device<Policy>(lanes, view);
  }

  /// Hints for the next step of a row, and their copies.
  template <lane_group Group>
  void advise(Group const& lanes, cuda::hint_input in, std::vector<i32> const& ids) {
    cuda::hints_on_device<Policy>(lanes, hint_view(), in, ids.data(), static_cast<u32>(ids.size()), *workspace_, *plan_);
  }
  cuda::pool_view<Policy> hint_view() const {
    cuda::pool_view<Policy> beside = view;
    beside.queue = hint_queue_.get();
    return beside;
  }

  /// Carries the copies out with `n_workers`, one after the other.
  void fetch(u32 n_workers) { fetch(view, n_workers, cuda::plain_gather{}); }
  template <class Adaptor>
  void fetch(cuda::pool_view<Policy> const& of, u32 n_workers, Adaptor const& adaptor) {
    for (u32 worker = 0; worker < n_workers; ++worker) {
      cuda::gather<Policy>(
          of, worker, n_workers, adaptor,
          [](unsigned char* to, unsigned char const* from, u64 bytes) { std::memcpy(to, from, bytes); },
          [](u32& left) { return --left == 0; });
    }
  }

  /// Whether every bank of the answer has the bytes of the id that asked.
  bool has_bytes_of(u32 row, i32 expert, i32 slot) const {
    for (u32 bank = 0; bank < source_.n_banks(); ++bank) {
      u64 const bytes = source_.bytes(bank);
      if (std::memcmp(memory_[bank].data() + static_cast<u64>(slot) * bytes,
                      source_.tensor(row, bank).data() + static_cast<u64>(expert) * bytes, bytes) != 0) {
        return false;
      }
    }
    return true;
  }

  /// Whether the readers of a row find the bytes of the id that asked, wherever they lie.
  bool serves(u32 row, i32 expert, i32 answer) const {
    cuda::served_experts const served{banks_.data(), arrivals_.data(), row, view.shape.n_slots, view.first_slot,
                                      view.first_scratch};
    for (u32 bank = 0; bank < source_.n_banks(); ++bank) {
      u64 const bytes = source_.bytes(bank);
      if (std::memcmp(served.bytes(bank, static_cast<u32>(expert), answer),
                      source_.tensor(row, bank).data() + static_cast<u64>(expert) * bytes, bytes) != 0) {
        return false;
      }
    }
    return true;
  }
  outcome counted() const { return out[0] + out[1]; }
  u32 n_fetched(cuda::pool_view<Policy> const& of) const { return of.queue->n; }

  table<Policy>& owner() { return owner_; }
  u32 n_rows() const { return static_cast<u32>(rows_.size()); }
  u32 fault() const { return queue_->fault; }

 private:
  using queue = cuda::fetch_queue<Policy::max_experts>;
  std::vector<layer_geometry> rows_;
  table<Policy> owner_;
  sources source_;
  std::vector<u32> arrivals_;
  std::unique_ptr<queue> queue_;
  std::unique_ptr<queue> hint_queue_;
  std::unique_ptr<quick_memory> quick_;
  std::unique_ptr<workspace_of<Policy>> workspace_;
  std::unique_ptr<plan_of<Policy>> plan_;
  std::unique_ptr<plan_of<Policy>> kept_;
  std::vector<std::vector<unsigned char const*>> pointers_;
  std::vector<std::vector<unsigned char>> memory_;
  std::vector<cuda::bank_addresses> banks_;

 public:
  outcome out[n_phases]{};
  cuda::pool_view<Policy> view;
};

}  // namespace steps
