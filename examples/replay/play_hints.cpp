// SPDX-License-Identifier: Apache-2.0
#include "play_hints.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "../common/usage_error.hpp"
#include "warmset/cache.hpp"
#include "warmset/table/bundles.hpp"

namespace warmset_tools {

namespace {

using namespace warmset;

/// The bundles that hints are played with: the usual baseline, two that count, and the recommended one.
using playable = bundles::list<bundles::of<score::lru>, bundles::of<score::lfru>,
                               bundles::of<score::decayed_count>, bundles::of<score::successor<>>>;

/// Takes hints, and keeps no slots for them: without any, it decides as the bundle itself.
template <class Bundle>
struct hinted : bundles::guarded<Bundle, guard::none> {};

template <class Bundle>
trace::speculative_report play(play_request const& request, chosen_predictor const& predictor,
                               trace::speculation const& how, trace::link_numbers const& link) {
  std::size_t const n_layers = request.recording.geometry().layers().size();
  u64 const slots = request.size.slots;
  // a hint for a layer further on keeps its slot for as many steps
  u64 const wanted =
      Bundle::pool::spans_layers ? u64{how.width} * (predictor.kind->horizon + 1) : how.width;
  u64 const room = Bundle::pool::spans_layers ? slots * n_layers : slots;
  tuning numbers = request.numbers;
  numbers.speculative_slots =
      static_cast<u32>(std::clamp<u64>(wanted, 1, std::max<u64>(1, room - 1)));
  cache<Bundle, trace::link_backend> cache(request.recording.geometry(),
                                           budget::of_slots(request.size.slots), numbers,
                                           trace::link_backend(link));
  any_predictor hints = predictor.kind->make();
  return trace::replay_speculatively(request.recording, request.which, cache, hints, how);
}

std::string playable_names() {
  std::string names;
  bundles::for_each(playable{}, [&]<class Bundle>() {
    names += (names.empty() ? "" : ", ") + std::string(Bundle::name);
  });
  return names;
}

}  // namespace

void check_hints(std::vector<chosen_policy> const& chosen, pool_size const& size) {
  if (size.slots == 0) {
    throw usage_error("--predictor needs slots: hints are not played in one pool of bytes");
  }
  for (chosen_policy const& p : chosen) {
    bool known = false;
    bundles::for_each(playable{}, [&]<class Bundle>() {
      known = known || (p.bundle != nullptr && p.bundle->name == Bundle::name);
    });
    if (!known) {
      throw usage_error(fmt::format("hints are not played with policy {}; there are {}", p.name,
                                    playable_names()));
    }
  }
}

trace::speculative_report play_hints(chosen_policy const& policy, play_request const& request,
                                     chosen_predictor const& predictor,
                                     trace::speculation const& how,
                                     trace::link_numbers const& link) {
  trace::speculative_report report;
  bundles::for_each(playable{}, [&]<class Bundle>() {
    if (policy.bundle->name == Bundle::name) {
      report = request.size.pool == pool_kind::shared
                   ? play<bundles::shared<hinted<Bundle>>>(request, predictor, how, link)
                   : play<hinted<Bundle>>(request, predictor, how, link);
    }
  });
  return report;
}

}  // namespace warmset_tools
