// SPDX-License-Identifier: Apache-2.0
#include "conformance.hpp"
#include "play.hpp"

#include <map>

using namespace warmset;

namespace {

template <u32 Uses>
using bundle = bundles::of<score::lru, select::hot_protected<Uses>>;

/// Looks for the victim among all residents.
template <u32 Uses>
class textbook {
 public:
  explicit textbook(u32 capacity) : capacity_(capacity) {}

  bool hits(u32 id) {
    ++now_;
    if (auto const at = resident_.find(id); at != resident_.end()) {
      at->second = {at->second.uses + 1, now_};
      return true;
    }
    if (resident_.size() == capacity_) {
      auto victim = resident_.end();
      for (bool const among_all : {false, true}) {
        for (auto at = resident_.begin(); at != resident_.end(); ++at) {
          if ((among_all || at->second.uses <= Uses) &&
              (victim == resident_.end() || at->second.last < victim->second.last)) {
            victim = at;
          }
        }
        if (victim != resident_.end()) {
          break;
        }
      }
      resident_.erase(victim);
    }
    resident_[id] = {0, now_};
    return false;
  }

 private:
  struct entry {
    u32 uses, last;
  };
  std::map<u32, entry> resident_;
  u32 capacity_, now_ = 0;
};

}  // namespace

TEST_CASE("hot_protected conforms", "[policy][select]") {
  conformance::check_selector<select::hot_protected<>>(false);
  conformance::check_selector<select::hot_protected<0>>(false);
  CHECK(std::string(select::hot_protected<>::name) == "hot_protected");
  CHECK(std::string(select::hot_protected<12>::name) == "hot_protected_12");
}

TEST_CASE("hot_protected: a worked example", "[policy][select]") {
  play::player<bundle<1>> p(8, 3);
  CHECK(p.run("abca") == "...h");
  CHECK(p.order() == "bca");  // one use is not hot
  CHECK(p.run("ab") == "hh");
  CHECK(p.order() == "cba");  // a is
  CHECK(p.run("bcc") == "hhh");
  CHECK(p.order() == "abc");  // all are hot: plain LRU
  CHECK(p.run("d") == ".");
  CHECK(p.order() == "dbc");
  CHECK(p.run("a") == ".");   // refilled, it begins at no use
  CHECK(p.order() == "abc");
}

TEST_CASE("hot_protected: four uses each and more, and there is a victim", "[policy][select][B25][R19]") {
  play::player<bundle<4>> p(8, 2);
  CHECK(p.run("aaaaaaaaaabbbbbbbbbbc") == ".hhhhhhhhh.hhhhhhhhh.");
  CHECK(p.order() == "cb");
  CHECK(p.run("ac") == "..");
}

TEST_CASE("hot_protected hits where a search of all residents does", "[policy][select]") {
  play::check_against<bundle<4>, textbook<4>>();
  play::check_against<bundle<0>, textbook<0>>();
  play::check_against<bundle<1>, textbook<1>>();
}

TEST_CASE("hot_protected: audit knows its state", "[policy][select]") {
  auto const breaks = [](auto plant) { play::check_audit<bundle<1>>("abcaab", plant); };
  breaks([](auto const& t) { t.selector_slot(0).demands = 0; });
  breaks([](auto const& t) { t.selector_slot(0).demands = 1; });
  breaks([](auto const& t) { t.selector_slot(1).demands = 4; });
  breaks([](auto const& t) { t.selector_slot(3).newer = 1; });
  breaks([](auto const& t) { t.selector_slot(1).newer = 3; });  // a circle
  breaks([](auto const& t) { std::swap(t.selector_pool().cold, t.selector_pool().hot); });
}
