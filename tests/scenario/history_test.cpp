// SPDX-License-Identifier: Apache-2.0
// Histories that outlive a process.

#include <cstring>
#include <span>

#include <warmset/table/persist.hpp>
#include <warmset/table/profile.hpp>

#include "play.hpp"
#include "policy/play.hpp"

namespace warmset::scenario {
namespace {

constexpr u64 model = 0xB19;
constexpr u32 experts = 16;
constexpr u32 slots = 4;
using image = std::vector<unsigned char>;

/// One process: it may begin with what an earlier one has saved.
template <class Bundle>
class session {
 public:
  explicit session(image const& before = {}) : pool_(experts, slots) {
    if (!before.empty()) {
      REQUIRE(load(pool_.tested(), before, model));
      REQUIRE(audit(pool_.tested().view()));
      CHECK(pool_.tested().view().header().resident == 0);  // the bytes are gone, the history is not
    }
  }
  void d(u32 e) { (void)pool_.hits(e); }
  u32 heat(u32 e) { return view().heat(e, view().now(0, 0)); }
  u64 value(u32 e) { return view().value(e, view().now(0, 0)); }
  u32 age(u32 e) { return age_of(view().header().tick, view().expert(e).last); }
  image end() { return save(pool_.tested(), model); }
  table<Bundle>& tested() { return pool_.tested(); }
  table_writer<Bundle> const& view() { return pool_.tested().view(); }

 private:
  play::player<Bundle> pool_;
};

/// Heats of an expert that every session demands, and of one that the first alone did, after each session.
struct heats {
  std::vector<u32> always, once;
};
template <class Score>
heats after_sessions(u32 n) {
  heats seen;
  image kept;
  for (u32 i = 0; i < n; ++i) {
    session<plain<Score>> s{kept};
    for (u32 step = 0; step < 200; ++step) {
      s.d(0);
      s.d(i == 0 ? 1 : 2 + step % 9);
    }
    seen.always.push_back(s.heat(0));
    seen.once.push_back(s.heat(1));
    kept = s.end();
  }
  return seen;
}

/// A history of some length in a table.
template <class Bundle>
void live(session<Bundle>& s, u64 seed, u32 steps) {
  dice random{seed};
  for (u32 i = 0; i < steps; ++i)
    s.d(random.below(1 + random.below(experts)));
}

template <class Bundle>
image block_of(session<Bundle>& s) {
  auto const* const from = static_cast<unsigned char const*>(s.tested().block());
  return {from, from + s.tested().block_bytes()};
}

}  // namespace

TEST_CASE("B19 persisted history forgets and converges") {
  SECTION("a decayed count is in the second session what it is in the twentieth") {
    heats const decayed = after_sessions<score::decayed_count>(20);
    heats const epochs = after_sessions<score::epoch_count>(20);
    for (heats const& h : {decayed, epochs}) {
      for (std::size_t i = 1; i < h.always.size(); ++i) {
        CHECK(h.always[i] == h.always[0]);
        CHECK(h.once[i] == 0);
      }
      CHECK(h.once[0] > 4);
      CHECK(h.always[0] > 4);
      CHECK(h.always[0] < 32);  // a demand every second step, half-life 16
    }
  }
  SECTION("a count without decay grows with every session") {
    heats const h = after_sessions<score::lfu>(20);
    CHECK(h.always.back() == 20 * 200);
    CHECK(h.once.back() == 200);
  }
  SECTION("so it is where a profile is saved, loaded, and seeds a fresh cache") {
    using counted = plain<score::decayed_count>;
    geometry const g = geometry::uniform(2, experts, 2, 1000);
    image kept;
    u32 first = 0;
    for (u32 i = 0; i < 12; ++i) {
      cache<counted, move::immediate> c{g, budget::of_slots(slots)};
      heat_profile before(g);
      if (i != 0) {
        REQUIRE(before.load(kept));
        REQUIRE(seed(c, before));
        CHECK(profile_of(c) == before);
        CHECK(c.pools()[0].view().header().resident == 0);
      }
      for (routed_id step = 0; step < 400; ++step) {
        routed_id const id[] = {step % 2 == 0 ? 0 : i == 0 ? 1 : 2 + step % 9};
        (void)c.step(layer_id{1}, std::span<routed_id const>{id});
      }
      heat_profile const after = profile_of(c);
      u32 const always = after.find({layer_id{1}, expert_id{0}})->counts_256;
      first = i == 0 ? always : first;
      CHECK(always == first);
      CHECK(after.find({layer_id{1}, expert_id{1}})->counts() <= (i == 0 ? 12u : 0u));
      CHECK(after.find({layer_id{0}, expert_id{0}})->age == heat_profile::never);
      kept = after.save();
    }
    CHECK(first > 8 * 256);
    heat_profile other(geometry::uniform(2, experts + 1, 2, 1000));
    CHECK(other.load(kept).why == reason::wrong_geometry);
  }
  SECTION("sessions are one history: the clock that decays goes on where it stood") {
    session<plain<score::decayed_count>> whole;
    image kept;
    for (u32 i = 0; i < 10; ++i) {
      session<plain<score::decayed_count>> part{kept};
      for (u32 step = 0; step < 37; ++step) {
        u32 const e = (i * 37 + step) * step % 11;
        whole.d(e);
        part.d(e);
      }
      for (u32 e = 0; e < experts; ++e)
        CHECK(part.value(e) == whole.value(e));
      kept = part.end();
    }
  }
}

TEST_CASE("R51 a saved history fits one geometry, one composition and one version") {
  using counted = plain<score::decayed_count>;
  session<counted> source;
  live(source, 51, 500);
  image const good = source.end();

  SECTION("what is of another kind is refused with a reason, and nothing changes") {
    auto const refused = [](auto& into, image const& from, u64 fingerprint, reason why) {
      image const before = block_of(into);
      status const answer = load(into.tested(), from, fingerprint);
      CHECK(answer.why == why);
      CHECK((block_of(into) == before));
    };
    session<counted> other;
    live(other, 7, 100);
    refused(other, good, model + 1, reason::wrong_geometry);
    image version = good;
    ++version[4];  // image_header::format
    refused(other, version, model, reason::wrong_version);
    image cut = good;
    cut.resize(good.size() / 2);
    refused(other, cut, model, reason::wrong_size);
    session<plain<score::epoch_count>> composed;
    refused(composed, good, model, reason::wrong_policy);
  }
  SECTION("models that differ in experts, bytes or layers have other fingerprints") {
    u64 const prints[] = {geometry::uniform(2, 16, 4, 1000).fingerprint(), geometry::uniform(3, 16, 4, 1000).fingerprint(),
                          geometry::uniform(2, 17, 4, 1000).fingerprint(), geometry::uniform(2, 16, 3, 1000).fingerprint(),
                          geometry::uniform(2, 16, 4, 1001).fingerprint()};
    for (std::size_t a = 0; a < std::size(prints); ++a) {
      for (std::size_t b = 0; b < a; ++b)
        CHECK(prints[a] != prints[b]);
    }
  }
  SECTION("another number of layers does not fit, whatever the fingerprint says") {
    using shared = bundles::shared<counted>;
    table<shared> two(geometry::uniform(2, experts, 2, 1000).layers(), {8, 8});
    table<shared> three(geometry::uniform(3, experts, 2, 1000).layers(), {8, 8});
    image const saved = save(two, model);
    CHECK(load(three, saved, model).why == reason::wrong_size);
    CHECK(load(two, saved, model));
  }
  SECTION("what fits brings its scores, and ages that its new owner's clock does not change") {
    for (u32 const steps : {0u, 3u, 5000u}) {
      session<counted> into;
      live(into, 9, steps);
      REQUIRE(load(into.tested(), good, model));
      REQUIRE(audit(into.view()));
      for (u32 e = 0; e < experts; ++e) {
        CHECK(into.value(e) == source.value(e));
        CHECK(into.age(e) == source.age(e));
        CHECK(std::memcmp(&into.view().score_of(e), &source.view().score_of(e), sizeof(into.view().score_of(e))) == 0);
      }
      // and decides on as its source does, once the same experts are back
      session<counted> twin{good};
      live(into, 10, 300);
      live(twin, 10, 300);
      for (u32 e = 0; e < experts; ++e)
        CHECK(into.value(e) == twin.value(e));
    }
  }
}

}  // namespace warmset::scenario
