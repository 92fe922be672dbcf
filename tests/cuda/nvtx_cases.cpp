// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>

#include <vector>

#include <warmset/cuda/nvtx.hpp>
#include <warmset/move/host.hpp>

#include "move/sites.hpp"

using namespace warmset;

#if defined(WARMSET_HAS_NVTX)

TEST_CASE("a backend with ranges of NVTX moves what it moves without", "[cuda]") {
  geometry const model = warmset_test::two_groups();
  auto const sites = warmset_test::make_sites(model, 6, 2);
  cuda::nvtx_tracing<move::host> b;
  b.open(model, sites);
  cuda::nvtx_scope const scope{"warmset test"};
  std::vector<transfer_order> orders;
  for (u32 slot = 0; slot < 8; ++slot) {
    orders.push_back({{slot}, {sites[0].layers[0], {slot * 2}}, 1});
  }
  b.start(0, orders);
  b.poll();
  b.poll();
  for (transfer_order const& o : orders) {
    CHECK(b.arrivals(0)[o.slot.value] == arrival::word(1, transfer::arrived));
    CHECK(b.inner().read(0, o.slot, o.expert, 1, 0).fault == move::read_fault::none);
  }
  b.close();
  CHECK(b.inner().ledger().transfers.completed == 8);
}

#endif
