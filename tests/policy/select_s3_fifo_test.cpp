// SPDX-License-Identifier: Apache-2.0
#include "conformance.hpp"
#include "play.hpp"

#include <algorithm>
#include <deque>

using namespace warmset;

namespace {

using bundle = bundles::of<score::lru, select::s3_fifo>;

/// Algorithm 1 of the paper; the small queue is a tenth of the capacity, at least one, and the ghost has as
/// many entries as the cache.
class textbook {
 public:
  explicit textbook(u32 capacity) : capacity_(capacity) {}

  bool hits(u32 id) {
    for (auto* const queue : {&small_queue_, &main_queue_}) {
      for (entry& e : *queue) {
        if (e.id == id) {
          e.uses = std::min(e.uses + 1, 3);
          return true;
        }
      }
    }
    auto const remembered = std::find(ghost_.begin(), ghost_.end(), id);
    bool const to_main = remembered != ghost_.end();
    if (to_main) {
      ghost_.erase(remembered);
    }
    while (small_queue_.size() + main_queue_.size() == capacity_) {
      evict_or_move();
    }
    (to_main ? main_queue_ : small_queue_).push_back({id, 0});
    return false;
  }

 private:
  struct entry {
    u32 id;
    int uses;
  };

  void evict_or_move() {
    std::size_t const tenth = std::max(capacity_ / 10, 1u);
    if (small_queue_.size() >= tenth || main_queue_.empty()) {
      entry const oldest = small_queue_.front();
      small_queue_.pop_front();
      if (oldest.uses > 1) {
        main_queue_.push_back({oldest.id, 0});
      } else {
        ghost_.push_back(oldest.id);
        if (ghost_.size() > capacity_) {
          ghost_.pop_front();
        }
      }
    } else {
      entry const oldest = main_queue_.front();
      main_queue_.pop_front();
      if (oldest.uses > 0) {
        main_queue_.push_back({oldest.id, oldest.uses - 1});
      }
    }
  }

  std::deque<entry> small_queue_, main_queue_;
  std::deque<u32> ghost_;
  u32 capacity_;
};

}  // namespace

TEST_CASE("s3_fifo conforms", "[policy][select]") {
  conformance::check_selector<select::s3_fifo>(false);
  CHECK(select::s3_fifo::small_slots(1) == 1);
  CHECK(select::s3_fifo::small_slots(19) == 1);
  CHECK(select::s3_fifo::small_slots(42) == 4);
}

TEST_CASE("s3_fifo: a worked example", "[policy][select]") {
  play::player<bundle> p(8, 3);
  auto const& pool = p.tested().view().selector_pool();
  CHECK(p.run("abcd") == "....");  // a goes and is remembered
  CHECK(p.order() == "bcd");
  CHECK((pool.n_small == 3 && pool.n_ghost == 1));
  CHECK(p.run("a") == ".");  // b goes; a enters the main queue
  CHECK((pool.n_small == 2 && pool.n_ghost == 1));
  CHECK(p.order() == "cda");
  CHECK(p.run("cce") == "hh.");  // c moves on to the main queue, d goes
  CHECK((pool.n_small == 1 && pool.n_ghost == 2));
  CHECK(p.order() == "eac");
  CHECK(p.run("aad") == "hh.");  // e goes; d was remembered: main queue a c d, small queue empty
  CHECK((pool.n_small == 0 && pool.n_ghost == 2));
  CHECK(p.order() == "cda");
  CHECK(p.run("f") == ".");  // a loses a use and goes to the new end, c goes without being remembered
  CHECK((pool.n_small == 1 && pool.n_ghost == 2));
  CHECK(p.order() == "fda");
}

TEST_CASE("s3_fifo: what a step demands is passed", "[policy][select]") {
  play::player<bundle> p(8, 3);
  (void)p.run("abc");
  u32 const step[] = {0, 3, 4};  // a hits; b and c go
  (void)p.step(step);
  CHECK(p.order() == "ade");
  CHECK(p.run("b") == ".");  // was remembered: a goes
  CHECK(p.order() == "deb");
}

TEST_CASE("s3_fifo: used ones of a short small queue pass through a main queue that has no candidate",
          "[policy][select]") {
  select::s3_fifo const selector;
  conformance::small_pool<select::s3_fifo> pool(20);  // two slots fill the small queue
  auto const touch = [&](u32 s) {
    pool.held[s] = 1;
    selector.on_touch(pool, s);
  };
  touch(0);
  selector.on_remove(pool, 0);
  touch(0);  // remembered, so that it is in the main queue
  pool.blocked[0] = 1;
  for (u32 i = 0; i < 3; ++i) {
    touch(1);
  }
  REQUIRE((pool.pool.n_small == 1 && pool.pool.n_ghost == 0));
  select::s3_fifo::walk_state walk{};
  CHECK(selector.next(one_lane{}, pool, walk) == slot_id{1});
  CHECK(selector.next(one_lane{}, pool, walk) == no_slot);
  selector.apply(pool, walk);
  CHECK((pool.pool.n_small == 0 && pool.own[1].uses == 0));
  selector.on_remove(pool, 1);
  CHECK(pool.pool.n_ghost == 0);  // it went from the main queue
}

TEST_CASE("s3_fifo: the ghost is as long as the pool", "[policy][select]") {
  play::player<bundle> p(26, 3);
  auto const& pool = p.tested().view().selector_pool();
  (void)p.run("abcdefg");  // a to d went
  CHECK(pool.n_ghost == 4);  // one more than three until the next eviction looks
  (void)p.run("b");        // remembered: e goes
  CHECK(pool.n_small == 2);
  (void)p.run("a");        // forgotten
  CHECK(pool.n_small == 2);
  CHECK(audit(p.tested().view()));
}

TEST_CASE("s3_fifo: the ghost outlives residency and a saved table", "[policy][select]") {
  play::player<bundle> p(8, 3);
  (void)p.run("abcd");
  outcome out{};
  invalidate<bundle>(p.tested().view(), 0, out);
  auto const& pool = p.tested().view().selector_pool();
  CHECK((pool.n_small == 0 && pool.n_ghost == 4));
  CHECK(audit(p.tested().view()));
  auto const image = save(p.tested(), 7);
  play::player<bundle> other(8, 3);
  REQUIRE(load(other.tested(), image, 7));
  CHECK(other.tested().view().selector_pool().n_ghost == 4);
  (void)other.run("b");
  CHECK((other.tested().view().selector_pool().n_small == 0));
}

TEST_CASE("s3_fifo hits where the paper's algorithm does", "[policy][select]") {
  play::check_against<bundle, textbook>();
}

TEST_CASE("s3_fifo: audit knows its state", "[policy][select]") {
  auto const breaks = [](auto plant) { play::check_audit<bundle>("abcdefabb", plant); };
  breaks([](auto const& t) { t.selector_slot(0).uses = 4; });
  breaks([](auto const& t) { t.selector_slot(0).queue = 0; });
  breaks([](auto const& t) { t.selector_slot(0).queue = 3; });
  breaks([](auto const& t) { t.selector_slot(0).newer = 99; });
  breaks([](auto const& t) { std::swap(t.selector_pool().small_queue, t.selector_pool().main_queue); });
  breaks([](auto const& t) { ++t.selector_pool().n_small; });
  breaks([](auto const& t) { ++t.selector_pool().n_ghost; });
  breaks([](auto const& t) { t.selector_pool().ghost.oldest = 99; });
  breaks([](auto const& t) { t.selector_expert(7).older = 1; });
  breaks([](auto const& t) { t.selector_expert(t.expert_index(0)).newer = 1; });  // resident and remembered
}
