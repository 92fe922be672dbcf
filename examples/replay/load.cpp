// SPDX-License-Identifier: Apache-2.0
#include "load.hpp"

#include <algorithm>
#include <new>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "file.hpp"

namespace warmset_tools {

loaded_trace load_trace(std::string const& path) {
  std::vector<std::byte> const bytes = read_file(path);
  try {
    warmset::trace::recording recording = warmset::trace::read(bytes);
    return {path, *warmset::trace::recognise(bytes), std::move(recording)};
  } catch (warmset::trace::format_error const& e) {
    throw file_error(fmt::format("{}:{}: {}", path, e.at(), e.what()));
  } catch (warmset::config_error const& e) {
    throw file_error(fmt::format("{}:0: {}", path, e.what()));
  } catch (std::bad_alloc const&) {
    throw file_error(fmt::format("{}:0: the trace does not fit in memory", path));
  } catch (std::length_error const&) {
    throw file_error(fmt::format("{}:0: the trace does not fit in memory", path));
  }
}

warmset::trace::recording in_ascending_order(warmset::trace::recording const& r) {
  warmset::trace::contents c;
  c.geometry = r.geometry();
  c.expert_bytes_assumed = r.expert_bytes_assumed();
  c.model = r.model();
  c.source = r.source();
  c.blocks = r.blocks();
  c.ids.assign(r.ids().begin(), r.ids().end());
  c.labels = r.labels();
  for (warmset::trace::block const& b : c.blocks) {
    auto row = c.ids.begin() + static_cast<std::ptrdiff_t>(b.ids_at);
    for (warmset::u64 i = 0; i < b.n_token_rows(); ++i, row += b.k) {
      std::sort(row, row + b.k);
    }
  }
  return warmset::trace::recording(std::move(c));
}

}  // namespace warmset_tools
