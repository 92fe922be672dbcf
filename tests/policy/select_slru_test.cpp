// SPDX-License-Identifier: Apache-2.0
#include "conformance.hpp"
#include "play.hpp"

#include <algorithm>
#include <list>

using namespace warmset;

namespace {

template <u32 Percent>
using bundle = bundles::of<score::lru, select::slru<Percent>>;

template <u32 Percent>
class textbook {
 public:
  explicit textbook(u32 capacity)
      : capacity_(capacity),
        protected_(capacity == 1 ? 1 : std::clamp(capacity * Percent / 100, 1u, capacity - 1)) {}

  bool hits(u32 id) {
    for (auto* const list : {&probation_, &guarded_}) {
      auto const at = std::find(list->begin(), list->end(), id);
      if (at != list->end()) {
        list->erase(at);
        guarded_.push_back(id);
        if (guarded_.size() > protected_) {
          probation_.push_back(guarded_.front());
          guarded_.pop_front();
        }
        return true;
      }
    }
    if (probation_.size() + guarded_.size() == capacity_) {
      (probation_.empty() ? guarded_ : probation_).pop_front();
    }
    probation_.push_back(id);
    return false;
  }

 private:
  std::list<u32> probation_, guarded_;  // least recently used first
  u32 capacity_, protected_;
};

}  // namespace

TEST_CASE("slru conforms", "[policy][select]") {
  conformance::check_selector<select::slru<>>(false);
  conformance::check_selector<select::slru<50>>(false);
  CHECK(std::string(select::slru<>::name) == "slru");
  CHECK(std::string(select::slru<50>::name) == "slru_50");
}

TEST_CASE("slru: both segments have a slot from two slots on", "[policy][select]") {
  CHECK(select::slru<>::protected_slots(1) == 1);
  CHECK(select::slru<>::protected_slots(2) == 1);
  CHECK(select::slru<>::protected_slots(3) == 2);
  CHECK(select::slru<>::protected_slots(42) == 33);
  CHECK(select::slru<1>::protected_slots(42) == 1);
  CHECK(select::slru<99>::protected_slots(42) == 41);
}

TEST_CASE("slru: a worked example", "[policy][select]") {
  play::player<bundle<80>> p(8, 3);
  CHECK(p.run("abca") == "...h");
  CHECK(p.order() == "bca");  // a is protected
  CHECK(p.run("b") == "h");
  CHECK(p.order() == "cab");
  CHECK(p.run("c") == "h");  // two are protected at most: a goes back to probation
  CHECK(p.order() == "abc");
  CHECK(p.run("dea") == "...");  // a stream of newcomers leaves the protected ones alone
  CHECK(p.order() == "abc");
}

TEST_CASE("slru: two slots hold a hot expert against a stream", "[policy][select]") {
  play::player<bundle<80>> p(26, 2);
  CHECK(p.run("aabcdefga") == ".h......h");
}

TEST_CASE("slru hits where two plain lists do", "[policy][select]") {
  play::check_against<bundle<80>, textbook<80>>();
  play::check_against<bundle<50>, textbook<50>>();
}

TEST_CASE("slru: fewer are protected once the pool has shrunk", "[policy][select]") {
  play::player<bundle<80>> p(16, 10);
  (void)p.run("abcdefghijabcdefgh");  // eight are protected
  auto const& pool = p.tested().view().selector_pool();
  CHECK(pool.n_guarded == 8);
  outcome out{};
  REQUIRE(resize<bundle<80>>(p.tested().view(), 5, out));
  CHECK(pool.n_guarded == 5);
  CHECK(audit(p.tested().view()));
  (void)p.run("k");
  CHECK(pool.n_guarded == 4);
  CHECK(audit(p.tested().view()));
}

TEST_CASE("slru: audit knows its state", "[policy][select]") {
  auto const breaks = [](auto plant) { play::check_audit<bundle<80>>("abcab", plant); };
  breaks([](auto const& t) { t.selector_slot(0).segment = 0; });
  breaks([](auto const& t) { t.selector_slot(0).segment = 1; });
  breaks([](auto const& t) { t.selector_slot(2).segment = 3; });
  breaks([](auto const& t) { t.selector_slot(3).older = 1; });
  breaks([](auto const& t) { t.selector_slot(1).newer = 1; });  // a circle
  breaks([](auto const& t) { ++t.selector_pool().n_guarded; });
  breaks([](auto const& t) { std::swap(t.selector_pool().probation, t.selector_pool().guarded); });
}
