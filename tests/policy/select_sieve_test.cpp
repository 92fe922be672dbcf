// SPDX-License-Identifier: Apache-2.0
#include "conformance.hpp"
#include "play.hpp"

#include <list>

using namespace warmset;

namespace {

using bundle = bundles::of<score::lru, select::sieve>;

/// The paper's algorithm: head = newest, the hand goes from the tail to the head.
class textbook {
 public:
  explicit textbook(u32 capacity) : capacity_(capacity) {}

  bool hits(u32 id) {
    for (entry& e : queue_) {
      if (e.id == id) {
        e.visited = true;
        return true;
      }
    }
    if (queue_.size() == capacity_) {
      auto at = hand_ == queue_.end() ? std::prev(queue_.end()) : hand_;
      while (at->visited) {
        at->visited = false;
        at = at == queue_.begin() ? std::prev(queue_.end()) : std::prev(at);
      }
      hand_ = at == queue_.begin() ? queue_.end() : std::prev(at);
      queue_.erase(at);
    }
    queue_.push_front({id, false});
    return false;
  }

 private:
  struct entry {
    u32 id;
    bool visited;
  };
  std::list<entry> queue_;
  std::list<entry>::iterator hand_ = queue_.end();
  u32 capacity_;
};

}  // namespace

TEST_CASE("sieve conforms", "[policy][select]") { conformance::check_selector<select::sieve>(false); }

TEST_CASE("sieve: a worked example", "[policy][select]") {
  play::player<bundle> p(8, 3);
  CHECK(p.run("abca") == "...h");
  CHECK(p.order() == "bca");
  CHECK(p.run("d") == ".");  // a loses its mark and stays in place, b goes; the hand stands at c
  CHECK(p.order() == "cda");
  CHECK(p.run("ce") == "h.");  // c is passed, d goes; the hand is past the newest
  CHECK(p.order() == "ace");   // and begins at the oldest
  CHECK(p.run("aceb") == "hhh.");  // all marked: once round, then the oldest
  CHECK(p.order() == "ceb");
}

TEST_CASE("sieve: what a step demands is passed, what is lost takes the hand along", "[policy][select]") {
  play::player<bundle> p(8, 3);
  (void)p.run("abc");
  u32 const step[] = {0, 3, 4};  // a hits; b and c go
  (void)p.step(step);
  CHECK(p.order() == "dea");
  (void)p.run("b");  // d goes, the hand stands at e
  CHECK(p.order() == "eba");
  outcome out{};
  invalidate<bundle>(p.tested().view(), 0, out);
  CHECK(p.order().empty());
  CHECK(audit(p.tested().view()));
  (void)p.run("fgh");
  CHECK(p.order() == "fgh");
}

TEST_CASE("sieve hits where the paper's algorithm does", "[policy][select]") {
  play::check_against<bundle, textbook>();
}

// libCacheSim 0.3.5, Sieve, on the same stream
TEST_CASE("sieve misses as often as libCacheSim's", "[policy][select]") {
  using play::misses_on_reference_stream;
  CHECK(misses_on_reference_stream<select::sieve>(2) == 26'792);
  CHECK(misses_on_reference_stream<select::sieve>(3) == 23'504);
  CHECK(misses_on_reference_stream<select::sieve>(8) == 17'320);
  CHECK(misses_on_reference_stream<select::sieve>(42) == 8'198);
}

TEST_CASE("sieve: audit knows its state", "[policy][select]") {
  auto const breaks = [](auto plant) { play::check_audit<bundle>("abcab", plant); };
  breaks([](auto const& t) { t.selector_slot(0).marked = 2; });
  breaks([](auto const& t) { t.selector_slot(3).marked = 1; });
  breaks([](auto const& t) { t.selector_slot(1).newer = 0; });
  breaks([](auto const& t) { t.selector_slot(2).newer = 1; });  // a circle
  breaks([](auto const& t) { t.selector_slot(1).newer = 99; });
  breaks([](auto const& t) { t.selector_pool().queue.oldest = 2; });
  breaks([](auto const& t) { t.selector_pool().hand = 4; });
  breaks([](auto const& t) { t.selector_pool().hand = 99; });
}
