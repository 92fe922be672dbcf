// SPDX-License-Identifier: Apache-2.0
#include "conformance.hpp"
#include "play.hpp"

#include <deque>

using namespace warmset;

namespace {

template <u32 Bits>
using bundle = bundles::of<score::lru, select::clock<Bits>>;

/// FIFO with reinsertion, as textbooks have it.
template <u32 Bits>
class textbook {
 public:
  explicit textbook(u32 capacity) : capacity_(capacity) {}

  bool hits(u32 id) {
    for (entry& e : fifo_) {
      if (e.id == id) {
        e.uses += e.uses < (1 << Bits) - 1 ? 1 : 0;
        return true;
      }
    }
    while (fifo_.size() == capacity_) {
      entry oldest = fifo_.front();
      fifo_.pop_front();
      if (oldest.uses-- > 0) {
        fifo_.push_back(oldest);
      }
    }
    fifo_.push_back({id, 0});
    return false;
  }

 private:
  struct entry {
    u32 id;
    int uses;
  };
  std::deque<entry> fifo_;
  u32 capacity_;
};

}  // namespace

TEST_CASE("clock conforms", "[policy][select]") {
  conformance::check_selector<select::clock<1>>(false);
  conformance::check_selector<select::clock<2>>(false);
  CHECK(std::string(select::clock<>::name) == "clock");
  CHECK(std::string(select::clock<2>::name) == "clock_2");
}

TEST_CASE("clock: a worked example", "[policy][select]") {
  play::player<bundle<1>> p(8, 3);
  CHECK(p.run("abca") == "...h");
  CHECK(p.order() == "bca");  // a has its second chance
  CHECK(p.run("d") == ".");   // the hand passes a and takes b
  CHECK(p.order() == "cad");
  CHECK(p.run("aab") == "hh.");  // c goes; one bit counts one use
  CHECK(p.order() == "dba");
  CHECK(p.run("de") == "h.");  // a and d are passed, b goes
  CHECK(p.order() == "ade");
}

TEST_CASE("clock: two bits count three uses", "[policy][select]") {
  play::player<bundle<2>> p(8, 3);
  CHECK(p.run("abcaaaaa") == "...hhhhh");
  CHECK(p.run("defg") == "....");  // a is passed in d's, f's; three uses in all
  CHECK(p.run("a") == "h");
  CHECK(p.order() == "fga");
}

TEST_CASE("clock: what a step demands is passed", "[policy][select]") {
  play::player<bundle<1>> p(8, 3);
  (void)p.run("abc");
  u32 const step[] = {0, 3, 4};  // a hits; b and c go
  (void)p.step(step);
  CHECK(p.order() == "dea");
}

TEST_CASE("clock: a hand beyond a pool that has shrunk stands for the first slot", "[policy][select]") {
  play::player<bundle<1>> p(8, 4);
  (void)p.run("abcdefg");
  CHECK(p.order() == "defg");
  CHECK(p.tested().view().selector_pool().hand == 3);
  outcome out{};
  REQUIRE(resize<bundle<1>>(p.tested().view(), 2, out));
  CHECK(p.order() == "ef");
  CHECK(audit(p.tested().view()));
  CHECK(p.run("h") == ".");
  CHECK(p.order() == "fh");
}

TEST_CASE("clock hits where FIFO with reinsertion does", "[policy][select]") {
  play::check_against<bundle<1>, textbook<1>>();
  play::check_against<bundle<2>, textbook<2>>();
  play::check_against<bundle<5>, textbook<5>>();
}

// libCacheSim 0.3.5, Clock(init_freq=0, n_bit_counter=1 and 2), on the same stream
TEST_CASE("clock misses as often as libCacheSim's", "[policy][select][R20]") {
  using play::misses_on_reference_stream;
  CHECK(misses_on_reference_stream<select::clock<1>>(2) == 26'792);
  CHECK(misses_on_reference_stream<select::clock<1>>(8) == 19'923);
  CHECK(misses_on_reference_stream<select::clock<1>>(42) == 8'389);
  CHECK(misses_on_reference_stream<select::clock<2>>(2) == 26'720);
  CHECK(misses_on_reference_stream<select::clock<2>>(8) == 19'186);
  CHECK(misses_on_reference_stream<select::clock<2>>(42) == 8'131);
}

TEST_CASE("clock: audit knows its state", "[policy][select]") {
  auto const breaks = [](auto plant) { play::check_audit<bundle<1>>("abcab", plant); };
  breaks([](auto const& t) { t.selector_slot(0).uses = 0; });
  breaks([](auto const& t) { t.selector_slot(1).uses = 3; });
  breaks([](auto const& t) { t.selector_slot(3).uses = 1; });
  breaks([](auto const& t) { t.selector_pool().hand = 4; });
}
