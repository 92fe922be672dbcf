// SPDX-License-Identifier: Apache-2.0
// Instruments allocate when they are made, and not when they are used.

#include <vector>

#include <catch2/catch_test_macros.hpp>

#include <warmset/observe/export_json.hpp>
#include <warmset/observe/export_log.hpp>
#include <warmset/observe/export_prometheus.hpp>
#include <warmset/observe/phase_table.hpp>
#include <warmset/observe/snapshot_page.hpp>

#include "support/count_allocations.hpp"

namespace warmset {

TEST_CASE("taking, judging and exporting allocate nothing") {
  geometry const model = geometry::uniform(3, 16, 2, 1000);
  observe::counting observer;
  observer.open(model);
  health_setup setup = health_setup::of(model);
  setup.n_groups = 3;
  health_monitor monitor{setup, {.window_steps = 1}};
  std::vector<group_health> groups(3);
  recall predictions{model};
  phase_table table{4};
  snapshot now{model};
  snapshot read{model};
  snapshot_page page{model};
  std::vector<char> memory(200'000);
  export_label const labels[] = {{"model", "m"}};
  std::vector<i32> const hints{1, 2, 3};
  u32 const used[] = {1, 9};
  access_kind const how[] = {access_kind::first_use, access_kind::load};
  time_span const spans[] = {{time_row::experts, 1, 2}, {time_row::dense, 0, 1}};

  unsigned long const before = warmset_test::n_allocations();
  std::size_t written = 0;
  for (u32 i = 0; i < 100; ++i) {
    outcome& o = observer.record(i % 3, phase::decode);
    ++o.steps;
    ++o.hints_offered;
    ++o.hints_dropped[static_cast<u32>(reason::guard)];
    observer.close(i % 3, phase::decode);
    (void)now.take(observer);
    (void)page.publish(now);
    (void)page.read(read);
    groups[i % 3].refuses = i % 2 == 0 ? reason::no_authority : reason::none;
    monitor.update(read.sum(), groups);
    predictions.predicted(i % 3, hints);
    predictions.copied(i % 3, expert_id{1});
    predictions.used(i % 3, phase::decode, used, how);
    (void)table.add_step(0, 3, spans);
    export_source<total_span> const from{now, &monitor.report(), &predictions, labels, i % 2 == 0};
    buffer_sink sink{memory.data(), memory.size()};
    write_json(from, sink);
    write_log_line(from, sink);
    write_prometheus(from, sink);
    written += sink.size();
  }
  CHECK(warmset_test::n_allocations() == before);
  CHECK(written > 100'000);
  CHECK(monitor.report().step == 100);
  snapshot const copy = now;  // the counter counts
  CHECK(warmset_test::n_allocations() > before);
  CHECK(copy.n_layers() == 3);
}

}  // namespace warmset
