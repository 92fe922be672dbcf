// SPDX-License-Identifier: Apache-2.0
// The rule of each predictor, on steps made for it.

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>

#include <algorithm>
#include <deque>
#include <limits>
#include <vector>

#include <warmset/predict/named.hpp>

using namespace warmset;

namespace {

geometry const three_layers = geometry::uniform(3, 32, 4, 64);

struct said {
  std::vector<routed_id> experts;
  std::vector<u16> confidence;
  layer_id layer{u32_max};
};

using ids = std::vector<u32>;

/// Its experts live as long as the program.
routing_snapshot at(u32 row, ids const& experts, u32 sequence = 0) {
  static std::deque<ids> kept;
  routing_snapshot s;
  s.layer = {row};
  s.row = row;
  s.sequence = sequence;
  s.experts = kept.emplace_back(experts);
  return s;
}

template <class P>
said ask(P const& p, routing_snapshot const& s, u32 width = 4) {
  hint out[64];
  said result;
  u32 const n = p.predict(s, width, out);
  for (u32 i = 0; i < n; ++i) {
    result.experts.push_back(out[i].expert);
    result.confidence.push_back(out[i].confidence);
    result.layer = out[i].layer;
  }
  return result;
}

template <class P>
P opened(P p) {
  p.open(three_layers);
  return p;
}

using list = std::vector<routed_id>;

}  // namespace

TEST_CASE("previous_step: the layer ahead's last set, of the same sequence, in its order") {
  auto p = opened(predict::previous_step<>(2));
  CHECK(ask(p, at(0, {1})).experts.empty());
  p.learn(at(1, {9, 3, 7}, 0));
  p.learn(at(1, {20, 21}, 1));
  CHECK(ask(p, at(0, {1}, 0)).experts == list{9, 3, 7});
  CHECK(ask(p, at(0, {1}, 1)).experts == list{20, 21});
  CHECK(ask(p, at(0, {1}, 2)).experts == list{9, 3, 7});  // shares a place
  CHECK(ask(p, at(0, {1}), 2).experts == list{9, 3});
  CHECK(ask(p, at(2, {1})).experts.empty());  // layer 0 of the next token has not been routed
  p.learn(at(0, {5}));
  CHECK(ask(p, at(2, {1})).experts == list{5});
  CHECK(ask(p, at(2, {1})).layer == layer_id{0});

  SECTION("confidence is how often the hint of that rank came true") {
    for (u32 i = 0; i < 500; ++i) {
      p.learn(at(1, {9, i % 2 == 0 ? 3u : 4u}, 0));
    }
    said const s = ask(p, at(0, {1}, 0));
    CHECK(s.confidence.at(0) > 64'000);
    CHECK(s.confidence.at(1) < 1'000);
  }
}

TEST_CASE("transition: learns which experts follow which, and keeps sequences apart") {
  auto p = opened(predict::transition<1>(2));
  for (u32 i = 0; i < 100; ++i) {  // two sequences in turns; each has pairs of its own
    u32 const s = i % 2;
    u32 const a = i / 2 % 4;
    p.learn(at(0, {a + 8 * s}, s));
    p.learn(at(0, {a + 8 * (1 - s)}, 1 - s));
    p.learn(at(1, {a + 16}, s));
    p.learn(at(1, {31 - a}, 1 - s));
    p.learn(at(2, {1}, s));
    p.learn(at(2, {1}, 1 - s));
  }
  for (u32 a = 0; a < 4; ++a) {  // what follows expert a of sequence 0 and of 1
    said const s = ask(p, at(0, {a}), 2);
    REQUIRE(s.experts.size() == 2);
    CHECK((s.experts[0] == routed_id(a + 16) || s.experts[0] == routed_id(31 - a)));
    CHECK((s.experts[1] == routed_id(a + 16) || s.experts[1] == routed_id(31 - a)));
    CHECK(s.layer == layer_id{1});
  }
  CHECK(ask(p, at(1, {16}), 1).experts == list{1});

  SECTION("a later habit wins over an earlier one") {
    for (u32 i = 0; i < 200; ++i) {
      p.learn(at(0, {1}));
      p.learn(at(1, {25}));
    }
    said const s = ask(p, at(0, {1}), 1);
    CHECK(s.experts == list{25});
    CHECK(s.confidence.at(0) > 32'768);
  }
}

TEST_CASE("transition: two layers ahead, and past the last layer to the next token") {
  auto p = opened(predict::transition<2>());
  for (u32 i = 0; i < 60; ++i) {
    u32 const a = i % 4;
    p.learn(at(0, {a}));
    p.learn(at(1, {i * 7 % 32}));
    p.learn(at(2, {a + 10}));
  }
  for (u32 a = 0; a < 4; ++a) {
    CHECK(ask(p, at(0, {a}), 1).experts == list{routed_id(a + 10)});
    CHECK(ask(p, at(0, {a}), 1).layer == layer_id{2});
  }
  CHECK(ask(p, at(1, {7}), 1).layer == layer_id{0});
}

TEST_CASE("predictors: the wide step of a prompt teaches nothing") {
  ids everything;
  for (u32 e = 0; e < 32; ++e) {
    everything.push_back(e);
  }
  auto const check = [&](auto p) {
    INFO(p.name);
    for (u32 i = 0; i < 50; ++i) {
      for (u32 row = 0; row < 3; ++row) {
        routing_snapshot s = at(row, {i % 3, 4 + row, i % 5 + 10, 20});
        s.token = i % 7;
        p.learn(s);
      }
    }
    routing_snapshot now = at(0, {1, 4, 12, 20});
    now.token = 3;
    said const before = ask(p, now, 8);
    routing_snapshot wide = at(0, everything);
    wide.in_phase = phase::prefill;
    for (u32 row = 0; row < 3; ++row) {
      wide.row = row;
      p.learn(wide);
    }
    said const after = ask(p, now, 8);
    CHECK(!before.experts.empty());
    CHECK(after.experts == before.experts);
    CHECK(after.confidence == before.confidence);
  };
  check(opened(predict::previous_step<>()));
  check(opened(predict::transition<1>()));
  check(opened(predict::token_table<>()));
}

TEST_CASE("token_table: a token's own experts, the layer's where it is unknown") {
  auto p = opened(predict::token_table<>());
  auto const learn = [&](u32 token, ids const& experts) {
    for (u32 row = 0; row < 3; ++row) {
      routing_snapshot s = at(row, experts);
      s.token = token;
      p.learn(s);
    }
  };
  auto const hinted = [&](u32 token, u32 row = 0, u32 width = 2) {
    routing_snapshot s = at(row, {0});
    s.token = token;
    return ask(p, s, width).experts;
  };
  for (u32 i = 0; i < 20; ++i) {
    learn(1, {3, 4});
    learn(2, {5, 6});
    learn(100 + i, {9, 10});
    learn(200 + i, {9, 10});
  }
  CHECK(hinted(1) == list{3, 4});
  CHECK(hinted(2) == list{5, 6});
  CHECK(hinted(7777) == list{9, 10});
  CHECK(hinted(routing_snapshot::no_token) == list{9, 10});
  CHECK(hinted(1, 2) == list{9, 10});  // layer 0 of the next token: nobody knows it

  SECTION("the memory is what it was given, a power of two of places") {
    auto small = opened(predict::token_table<>(1'000));
    CHECK(small.n_places() == 8);  // 3 · 32 + 3 + 8 = 107 bytes a place
    predict::token_table<> none(106);
    CHECK_THROWS_MATCHES(none.open(three_layers), config_error,
                         Catch::Matchers::Message(
                             "token_table: 106 bytes are less than the 107 that one token of this "
                             "model takes"));
    predict::token_table<> one(107);
    one.open(three_layers);
    CHECK(one.n_places() == 1);
  }
  SECTION("a token that comes back holds its place, one that does not loses it") {
    auto one = opened(predict::token_table<>(107));
    auto const step = [&](u32 token, u32 expert) {
      for (u32 row = 0; row < 3; ++row) {
        routing_snapshot s = at(row, {expert});
        s.token = token;
        one.learn(s);
      }
    };
    auto const knows = [&](u32 token, u32 expert) {
      routing_snapshot s = at(0, {0});
      s.token = token;
      said const x = ask(one, s, 1);
      return x.experts == list{routed_id(expert)} && x.confidence[0] > 50'000;
    };
    for (u32 i = 0; i < 12; ++i) {
      step(1, 3);
    }
    step(2, 4);
    step(5, 6);
    CHECK(knows(1, 3));
    for (u32 i = 0; i < 30; ++i) {
      step(2, 4);
    }
    CHECK(knows(2, 4));
    CHECK(!knows(1, 3));
  }
}

TEST_CASE("router_lookahead: the side branch's ids or largest logits") {
  auto p = opened(predict::router_lookahead<>());
  std::vector<routed_id> const branch{7, -1, 7, 31, 32, 2};
  routing_snapshot s = at(0, {0});
  s.lookahead = branch;
  CHECK(ask(p, s, 8).experts == list{7, 31, 2});
  CHECK(ask(p, s, 2).experts == list{7, 31});

  std::vector<float> logits(32, -8.f);
  logits[5] = 2.5f;
  logits[9] = -1.f;
  logits[20] = 2.5f;
  s.lookahead = {};
  s.logits = logits;
  CHECK(ask(p, s, 3).experts == list{5, 20, 9});
  // whatever masks an expert: the others are ranked by their logits, and it comes after them or not at all
  for (float mask :
       {-1e4f, -1e9f, -1e20f, -9e29f, -1e30f, -3.4e38f, -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    INFO(mask);
    std::vector<float> masked(32, mask);
    std::vector<float> const real{.5f, 1, 2, 4, 3, -1, 1e-7f, 0, -0.f};
    std::copy(real.begin(), real.end(), masked.begin() + 1);
    s.logits = masked;
    CHECK(ask(p, s, 9).experts == list{4, 5, 3, 2, 1, 7, 8, 9, 6});
    CHECK(ask(p, s, 32).experts.size() == (mask > -1e30f ? 32u : 9u));
  }
  logits.pop_back();  // not of this layer's width
  s.logits = logits;
  CHECK(ask(p, s, 3).experts.empty());

  auto narrow = opened(predict::router_lookahead<2>());
  s.lookahead = branch;
  CHECK(ask(narrow, s, 8).experts == list{7, 31});

  for (u32 i = 0; i < 300; ++i) {
    p.learn(s);
    p.learn(at(1, {7, 2}));
  }
  said const x = ask(p, s, 8);
  CHECK(x.confidence.at(0) > 64'000);               // 7 always came
  CHECK(x.confidence.at(1) < 1'000);                // 31 never
  CHECK(x.confidence.at(2) == x.confidence.at(1));  // 2 always came, but confidence does not rise
}

TEST_CASE("activation_match: like states, like experts") {
  auto p = opened(predict::activation_match<>(2));
  constexpr u32 width = 96;
  auto const state = [](u32 kind, u32 noise) {
    std::vector<float> a(width);
    for (u32 i = 0; i < width; ++i) {
      a[i] = static_cast<float>((i * 37 + kind * 101) % 64) - 32 +
             static_cast<float>((i * 13 + noise * 7) % 5) - 2;
    }
    return a;
  };
  for (u32 i = 0; i < 60; ++i) {
    for (u32 sequence = 0; sequence < 2; ++sequence) {  // in turns, layer by layer
      std::vector<float> const a = state((i + sequence) % 3, i);
      routing_snapshot s = at(0, {1}, sequence);
      s.activation = a;
      p.learn(s);
    }
    for (u32 sequence = 0; sequence < 2; ++sequence) {
      p.learn(at(1, {(i + sequence) % 3 * 4, (i + sequence) % 3 * 4 + 1}, sequence));
    }
  }
  for (u32 kind = 0; kind < 3; ++kind) {
    std::vector<float> a = state(kind, 99);
    for (float& x : a) {
      x *= 1000;  // length says nothing
    }
    routing_snapshot s = at(0, {1});
    s.activation = a;
    said const x = ask(p, s, 2);
    CHECK(x.experts == list{routed_id(kind * 4), routed_id(kind * 4 + 1)});
    CHECK(x.confidence.at(0) > 60'000);
  }
  CHECK(ask(p, at(0, {1})).experts.empty());
}

TEST_CASE("oracle and adversarial: all of the future, none of it") {
  ids const future{5, 30, 2};
  auto knows = opened(predict::oracle<>());
  knows.tell(1, future);
  said const all = ask(knows, at(0, {1}), 8);
  CHECK(all.experts == list{5, 30, 2});
  CHECK(all.confidence == std::vector<u16>(3, 65'535));
  CHECK(ask(knows, at(1, {1})).experts.empty());

  auto harms = opened(predict::adversarial<>());
  for (u32 e = 0; e < 32; ++e) {
    harms.learn(at(1, {31 - e}));  // 31 is the oldest
  }
  harms.tell(1, future);
  CHECK(ask(harms, at(0, {1}), 4).experts == list{31, 29, 28, 27});
  CHECK(ask(harms, at(0, {1}), 64).experts.size() == 29);
}

TEST_CASE("random: every expert as often as the others, and another seed another sequence") {
  auto p = opened(predict::random<>(1));
  auto other = opened(predict::random<>(2));
  std::vector<u32> count(32, 0);
  u32 equal = 0;
  for (u32 i = 0; i < 8'000; ++i) {
    p.learn(at(0, {1}));
    other.learn(at(0, {1}));
    list const a = ask(p, at(0, {1}), 4).experts;
    for (routed_id e : a) {
      ++count[static_cast<u32>(e)];
    }
    equal += a == ask(other, at(0, {1}), 4).experts ? 1 : 0;
  }
  for (u32 c : count) {
    CHECK(c > 850);
    CHECK(c < 1'150);
  }
  CHECK(equal < 100);
}

TEST_CASE("predictors: sequences out of range are refused with a sentence") {
  using Catch::Matchers::Message;
  CHECK_THROWS_MATCHES(
      predict::transition<1>(0), config_error,
      Message("a predictor of 0 sequences that take turns; between 1 and 64 are possible"));
  CHECK_THROWS_MATCHES(
      predict::previous_step<>(65), config_error,
      Message("a predictor of 65 sequences that take turns; between 1 and 64 are possible"));
  CHECK_THROWS(predict::router_lookahead<>(0));
  CHECK_THROWS(predict::activation_match<>(65));
}
