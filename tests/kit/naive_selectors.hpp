// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include <warmset/policy/select/clock.hpp>
#include <warmset/policy/select/hot_protected.hpp>
#include <warmset/policy/select/fifo_list.hpp>
#include <warmset/policy/select/lru_list.hpp>
#include <warmset/policy/select/s3_fifo.hpp>
#include <warmset/policy/select/sieve.hpp>
#include <warmset/policy/select/slru.hpp>

#include "state.hpp"

namespace warmset::kit {

/// A selector's rule in plain lists: the expectation that real ones are compared with.
class naive_selector {
 public:
  using memory = selector_memory;
  using predicate = std::function<bool(u32)>;

  virtual ~naive_selector() = default;
  /// Offers the first n candidates, or all there are, and leaves in `m` what having offered them did.
  virtual std::vector<u32> offer(memory& m, u32 capacity, predicate const& may_go, std::size_t n) const = 0;
  virtual void touched(memory& m, u32 capacity, u32 slot, expert_key key) const = 0;
  virtual void removed(memory& m, u32 slot, expert_key key) const = 0;

 protected:
  static bool contains(std::vector<u32> const& list, u32 x) {
    return std::find(list.begin(), list.end(), x) != list.end();
  }
  /// Queue after queue, oldest first.
  static std::vector<u32> in_order(memory const& m, predicate const& may_go, std::size_t n) {
    std::vector<u32> offered;
    for (auto const& queue : m.queues) {
      std::copy_if(queue.begin(), queue.end(), std::back_inserter(offered), may_go);
    }
    offered.resize(std::min(offered.size(), n));
    return offered;
  }
  static void erase(memory& m, u32 slot) {
    for (auto& queue : m.queues) {
      std::erase(queue, slot);
    }
    m.uses.erase(slot);
  }
};

class naive_lru final : public naive_selector {
 public:
  std::vector<u32> offer(memory& m, u32, predicate const& may_go, std::size_t n) const override {
    return in_order(m, may_go, n);
  }
  void touched(memory& m, u32, u32 slot, expert_key) const override {
    erase(m, slot);
    m.queues[0].push_back(slot);
  }
  void removed(memory& m, u32 slot, expert_key) const override { erase(m, slot); }
};

class naive_fifo final : public naive_selector {
 public:
  std::vector<u32> offer(memory& m, u32, predicate const& may_go, std::size_t n) const override {
    return in_order(m, may_go, n);
  }
  void touched(memory& m, u32, u32 slot, expert_key) const override {
    if (!contains(m.queues[0], slot)) {
      m.queues[0].push_back(slot);
    }
  }
  void removed(memory& m, u32 slot, expert_key) const override { erase(m, slot); }
};

class naive_clock final : public naive_selector {
 public:
  explicit naive_clock(u32 bits) : most_((1u << bits) - 1) {}

  std::vector<u32> offer(memory& m, u32 capacity, predicate const& may_go, std::size_t n) const override {
    std::size_t candidates = 0;
    for (u32 slot = 0; slot < capacity; ++slot) {
      candidates += may_go(slot) ? 1 : 0;
    }
    std::vector<u32> offered;
    u32 hand = m.hand < capacity ? m.hand : 0;
    while (offered.size() < std::min(n, candidates)) {
      if (may_go(hand) && !contains(offered, hand)) {
        if (m.uses.at(hand) != 0) {
          --m.uses.at(hand);
        } else {
          offered.push_back(hand);
          m.hand = (hand + 1) % capacity;
        }
      }
      hand = (hand + 1) % capacity;
    }
    return offered;
  }
  void touched(memory& m, u32, u32 slot, expert_key) const override {
    m.uses[slot] = m.uses.contains(slot) ? std::min(m.uses[slot] + 1, most_) : 0;
  }
  void removed(memory& m, u32 slot, expert_key) const override { m.uses.erase(slot); }

 private:
  u32 most_;
};

class naive_sieve final : public naive_selector {
 public:
  std::vector<u32> offer(memory& m, u32, predicate const& may_go, std::size_t n) const override {
    auto const& queue = m.queues[0];
    auto const candidates = static_cast<std::size_t>(std::count_if(queue.begin(), queue.end(), may_go));
    std::vector<u32> offered;
    auto hand = std::find(queue.begin(), queue.end(), m.hand);
    while (offered.size() < std::min(n, candidates)) {
      hand = hand == queue.end() ? queue.begin() : hand;
      u32 const slot = *hand++;
      if (!may_go(slot) || contains(offered, slot)) {
        continue;
      }
      if (m.uses.at(slot) != 0) {
        m.uses.at(slot) = 0;
      } else {
        offered.push_back(slot);
        m.hand = hand == queue.end() ? no_slot.value : *hand;
      }
    }
    return offered;
  }
  void touched(memory& m, u32, u32 slot, expert_key) const override {
    if (contains(m.queues[0], slot)) {
      m.uses[slot] = 1;
    } else {
      m.queues[0].push_back(slot);
      m.uses[slot] = 0;
    }
  }
  void removed(memory& m, u32 slot, expert_key) const override {
    if (m.hand == slot) {
      auto const next = std::find(m.queues[0].begin(), m.queues[0].end(), slot) + 1;
      m.hand = next == m.queues[0].end() ? no_slot.value : *next;
    }
    erase(m, slot);
  }
};

class naive_s3_fifo final : public naive_selector {
 public:
  std::vector<u32> offer(memory& m, u32 capacity, predicate const& may_go, std::size_t n) const override {
    while (m.ghost.size() > capacity) {
      m.ghost.erase(m.ghost.begin());
    }
    auto& small_queue = m.queues[0];
    auto& main_queue = m.queues[1];
    std::size_t held = small_queue.size();
    std::size_t const full = capacity < 20 ? 1 : capacity / 10;
    std::vector<u32> offered;
    auto const left = [&](u32 slot) { return may_go(slot) && !contains(offered, slot); };
    while (offered.size() < n) {
      auto const in_small = std::find_if(small_queue.begin(), small_queue.end(), left);
      bool const any_in_main = std::any_of(main_queue.begin(), main_queue.end(), left);
      if (in_small == small_queue.end() && !any_in_main) {
        break;
      }
      if (in_small != small_queue.end() && (held >= full || !any_in_main)) {
        u32 const slot = *in_small;
        --held;
        if (m.uses.at(slot) > 1) {
          m.uses.at(slot) = 0;
          small_queue.erase(in_small);
          main_queue.push_back(slot);
        } else {
          offered.push_back(slot);
        }
        continue;
      }
      u32 const slot = main_queue.front();
      std::rotate(main_queue.begin(), main_queue.begin() + 1, main_queue.end());
      if (!left(slot)) {
        continue;
      }
      if (m.uses.at(slot) > 0) {
        --m.uses.at(slot);
      } else {
        offered.push_back(slot);
      }
    }
    return offered;
  }
  void touched(memory& m, u32, u32 slot, expert_key key) const override {
    if (m.uses.contains(slot)) {
      m.uses[slot] = std::min(m.uses[slot] + 1, 3u);
      return;
    }
    m.uses[slot] = 0;
    m.queues[std::erase(m.ghost, key) != 0 ? 1 : 0].push_back(slot);
  }
  void removed(memory& m, u32 slot, expert_key key) const override {
    if (contains(m.queues[0], slot)) {
      m.ghost.push_back(key);
    }
    erase(m, slot);
  }
};

class naive_slru final : public naive_selector {
 public:
  explicit naive_slru(u32 percent) : percent_(percent) {}

  std::vector<u32> offer(memory& m, u32, predicate const& may_go, std::size_t n) const override {
    return in_order(m, may_go, n);
  }
  void touched(memory& m, u32 capacity, u32 slot, expert_key) const override {
    bool const again = contains(m.queues[0], slot) || contains(m.queues[1], slot);
    erase(m, slot);
    m.queues[again ? 1 : 0].push_back(slot);
    std::size_t room = capacity * percent_ / 100;
    if (room == capacity) {
      --room;
    }
    if (room == 0) {
      room = 1;
    }
    while (m.queues[1].size() > room) {
      m.queues[0].push_back(m.queues[1].front());
      m.queues[1].erase(m.queues[1].begin());
    }
  }
  void removed(memory& m, u32 slot, expert_key) const override { erase(m, slot); }

 private:
  u32 percent_;
};

class naive_hot_protected final : public naive_selector {
 public:
  explicit naive_hot_protected(u32 uses) : limit_(uses) {}

  std::vector<u32> offer(memory& m, u32, predicate const& may_go, std::size_t n) const override {
    return in_order(m, may_go, n);
  }
  void touched(memory& m, u32, u32 slot, expert_key) const override {
    u32 const uses = m.uses.contains(slot) ? std::min(m.uses[slot] + 1, limit_ + 1) : 0;
    erase(m, slot);
    m.uses[slot] = uses;
    m.queues[uses > limit_ ? 1 : 0].push_back(slot);
  }
  void removed(memory& m, u32 slot, expert_key) const override { erase(m, slot); }

 private:
  u32 limit_;
};

/// Per selector with a list: its naive rule, and its memory read out of a block link by link.
template <class Selector>
struct naive_rule;

namespace detail {
/// The indices of a queue, oldest first; too many of them where the links run in a circle.
template <class Ends, class Newer>
std::vector<u32> read_queue(Ends const& ends, std::size_t n, Newer const& newer) {
  std::vector<u32> queue;
  for (u32 link = ends.oldest; link != 0 && queue.size() <= n; link = newer(link - 1)) {
    queue.push_back(link - 1);
  }
  return queue;
}
template <class View>
auto newer_slot(View const& t) {
  return [&t](u32 slot) { return t.selector_slot(slot).newer; };
}
/// One number of each slot that holds a demanded expert.
template <class View, class Number>
void read_uses(selector_memory& m, View const& t, Number const& number) {
  for (u32 s = 0; s < t.header().n_slots; ++s) {
    auto const state = slot_word::state(t.word(s));
    if ((state == slot_state::reserved || state == slot_state::resident) &&
        (t.word(s) & slot_word::unused) == 0) {
      m.uses[s] = number(t.selector_slot(s));
    }
  }
}
}  // namespace detail

template <>
struct naive_rule<select::lru_list> {
  static auto make() { return std::make_shared<naive_lru>(); }
  template <class View>
  static void read(selector_memory& m, View const& t) {
    m.queues = {detail::read_queue(t.selector_pool(), t.header().n_slots, detail::newer_slot(t))};
  }
};

template <>
struct naive_rule<select::fifo_list> {
  static auto make() { return std::make_shared<naive_fifo>(); }
  template <class View>
  static void read(selector_memory& m, View const& t) {
    m.queues = {detail::read_queue(t.selector_pool(), t.header().n_slots, detail::newer_slot(t))};
  }
};

template <u32 Bits>
struct naive_rule<select::clock<Bits>> {
  static auto make() { return std::make_shared<naive_clock>(Bits); }
  template <class View>
  static void read(selector_memory& m, View const& t) {
    m.hand = t.selector_pool().hand;
    detail::read_uses(m, t, [](auto const& slot) { return slot.uses - 1; });
  }
};

template <>
struct naive_rule<select::sieve> {
  static auto make() { return std::make_shared<naive_sieve>(); }
  template <class View>
  static void read(selector_memory& m, View const& t) {
    m.queues = {detail::read_queue(t.selector_pool().queue, t.header().n_slots, detail::newer_slot(t))};
    m.hand = t.selector_pool().hand - 1;  // none becomes no_slot
    detail::read_uses(m, t, [](auto const& slot) { return slot.marked; });
  }
};

template <>
struct naive_rule<select::s3_fifo> {
  static auto make() { return std::make_shared<naive_s3_fifo>(); }
  template <class View>
  static void read(selector_memory& m, View const& t) {
    auto const& pool = t.selector_pool();
    m.queues = {detail::read_queue(pool.small_queue, t.header().n_slots, detail::newer_slot(t)),
                detail::read_queue(pool.main_queue, t.header().n_slots, detail::newer_slot(t))};
    u32 const per_row = t.header().n_experts;
    auto const newer = [&t](u32 x) { return t.selector_expert(x).newer; };
    for (u32 const index : detail::read_queue(pool.ghost, t.expert_count(), newer)) {
      m.ghost.push_back({layer_id{index / per_row}, expert_id{index % per_row}});
    }
    detail::read_uses(m, t, [](auto const& slot) { return slot.uses; });
  }
};

template <u32 Percent>
struct naive_rule<select::slru<Percent>> {
  static auto make() { return std::make_shared<naive_slru>(Percent); }
  template <class View>
  static void read(selector_memory& m, View const& t) {
    auto const& pool = t.selector_pool();
    m.queues = {detail::read_queue(pool.probation, t.header().n_slots, detail::newer_slot(t)),
                detail::read_queue(pool.guarded, t.header().n_slots, detail::newer_slot(t))};
  }
};

template <u32 Uses>
struct naive_rule<select::hot_protected<Uses>> {
  static auto make() { return std::make_shared<naive_hot_protected>(Uses); }
  template <class View>
  static void read(selector_memory& m, View const& t) {
    auto const& pool = t.selector_pool();
    m.queues = {detail::read_queue(pool.cold, t.header().n_slots, detail::newer_slot(t)),
                detail::read_queue(pool.hot, t.header().n_slots, detail::newer_slot(t))};
    detail::read_uses(m, t, [](auto const& slot) { return slot.demands - 1; });
  }
};

template <class Selector>
concept has_naive_rule = requires { naive_rule<Selector>::make(); };

}  // namespace warmset::kit
