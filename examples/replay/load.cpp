// SPDX-License-Identifier: Apache-2.0
#include "load.hpp"

#include <algorithm>
#include <new>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "../common/file.hpp"

namespace warmset_tools {

namespace {

/// What f makes of the contents of a file; what it throws is told with the file's name.
template <class F>
auto read_with(std::string const& path, F&& f) {
  std::vector<std::byte> const bytes = read_file(path);
  try {
    return f(bytes);
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

}  // namespace

loaded_trace load_trace(std::string const& path) {
  return read_with(path, [&path](std::vector<std::byte> const& bytes) {
    warmset::trace::recording recording = warmset::trace::read(bytes);
    return loaded_trace{path, *warmset::trace::recognise(bytes), std::move(recording)};
  });
}

void add_tokens(loaded_trace& trace, std::string const& path) {
  trace.recording = read_with(path, [&trace](std::vector<std::byte> const& bytes) {
    return warmset::trace::with_tokens(std::move(trace.recording), warmset::trace::text_of(bytes));
  });
}

warmset::trace::recording in_ascending_order(warmset::trace::recording const& r) {
  warmset::trace::contents c;
  c.geometry = r.geometry();
  c.expert_bytes_assumed = r.expert_bytes_assumed();
  c.model = r.model();
  c.source = r.source();
  c.blocks = r.blocks();
  c.ids.assign(r.ids().begin(), r.ids().end());
  c.tokens.assign(r.tokens().begin(), r.tokens().end());
  c.labels = r.labels();
  for (warmset::trace::block const& b : c.blocks) {
    auto row = c.ids.begin() + static_cast<std::ptrdiff_t>(b.ids_at);
    for (warmset::u64 i = 0; i < b.n_token_rows(); ++i, row += b.k) {
      std::sort(row, row + b.k);
    }
  }
  return warmset::trace::recording(std::move(c));
}

warmset::trace::recording one_id_per_step(warmset::trace::recording const& r,
                                          warmset::trace::selection const& which) {
  warmset::trace::contents c;
  std::vector<warmset::layer_geometry> layers = r.geometry().layers();
  for (warmset::layer_geometry& layer : layers) {
    layer.k = 1;
  }
  c.geometry = warmset::geometry(std::move(layers));
  c.expert_bytes_assumed = r.expert_bytes_assumed();
  c.model = r.model();
  c.source = r.source();
  for_each_event(r, which, [&](warmset::trace::event const& e) {
    warmset::trace::block b;
    b.sequence = e.sequence;
    b.first_position = e.position;
    b.phase = e.phase;
    b.first_row = e.row;
    b.n_rows = 1;
    b.k = 1;
    for (std::size_t i = 0; i < e.ids.size(); ++i) {
      if (e.ids[i] != warmset::trace::padding) {
        c.ids.push_back(e.ids[i]);
        ++b.n_steps;
        if (!e.tokens.empty()) {
          c.tokens.push_back(e.tokens[i / e.k]);
        }
      }
    }
    if (b.n_steps != 0) {
      c.blocks.push_back(b);
    }
  });
  return warmset::trace::recording(std::move(c));
}

}  // namespace warmset_tools
