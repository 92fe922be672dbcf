// SPDX-License-Identifier: Apache-2.0
#include "policy.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "../common/usage_error.hpp"
#include "warmset/core/error.hpp"
#include "warmset/table/table.hpp"

namespace warmset_tools {

template <unsigned Part>
void append_bundles(std::vector<std::pair<unsigned, policy>>& to);
extern template void append_bundles<0>(std::vector<std::pair<unsigned, policy>>&);
extern template void append_bundles<1>(std::vector<std::pair<unsigned, policy>>&);
extern template void append_bundles<2>(std::vector<std::pair<unsigned, policy>>&);
extern template void append_bundles<3>(std::vector<std::pair<unsigned, policy>>&);

std::vector<policy> const& policies() {
  static std::vector<policy> const all = [] {
    std::vector<std::pair<unsigned, policy>> found;
    append_bundles<0>(found);
    append_bundles<1>(found);
    append_bundles<2>(found);
    append_bundles<3>(found);
    std::sort(found.begin(), found.end(),
              [](auto const& a, auto const& b) { return a.first < b.first; });
    std::vector<policy> in_order;
    for (auto& [index, p] : found) {
      in_order.push_back(std::move(p));
    }
    return in_order;
  }();
  return all;
}

namespace {

std::string known_policies() {
  std::string names;
  for (policy const& p : policies()) {
    names += p.name + ", ";
  }
  return names + "belady, belady_bypass, all";
}

/// A parameter `name=number` of a policy, into its numbers.
void set_parameter(chosen_policy& chosen, std::string_view text) {
  std::size_t const equals = text.find('=');
  std::string const name(text.substr(0, equals));
  std::vector<std::string> const none;
  std::vector<std::string> const& known =
      chosen.bundle == nullptr ? none : chosen.bundle->parameters;
  std::string const plain = chosen.name.substr(0, chosen.name.find(':'));
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    throw usage_error(
        known.empty() ? fmt::format("policy {} has no parameter, and '{}' is given", plain, text)
                      : fmt::format("policy {} has no parameter '{}'; it has {}", plain, name,
                                    fmt::join(known, ", ")));
  }
  std::string_view const digits =
      equals == std::string_view::npos ? std::string_view{} : text.substr(equals + 1);
  warmset::u64 value = 0;
  char const* const end = digits.data() + digits.size();
  auto const [stop, error] = std::from_chars(digits.data(), end, value);
  if (digits.empty() || error == std::errc::invalid_argument || stop != end) {
    throw usage_error(
        fmt::format("policy {}: {} is '{}', not a whole number", plain, name, digits));
  }
  for (parameter const& each : parameters) {
    if (name == each.name) {
      if (error != std::errc{} || value > each.largest()) {
        throw usage_error(fmt::format("policy {}: {} is '{}', more than {}", plain, name, digits, each.largest()));
      }
      each.set(chosen.numbers, value);
    }
  }
  try {
    warmset::check_numbers(chosen.numbers);
  } catch (warmset::config_error const& e) {
    throw usage_error(fmt::format("policy {}: {}", plain, e.what()));
  }
}

chosen_policy choose_policy(std::string_view text) {
  std::size_t const colon = text.find(':');
  std::string_view const name = text.substr(0, colon);
  chosen_policy chosen;
  chosen.name = std::string(text);
  if (name == "belady" || name == "belady_bypass") {
    chosen.what =
        name == "belady" ? chosen_policy::kind::belady : chosen_policy::kind::belady_bypass;
  } else {
    auto const at = std::find_if(policies().begin(), policies().end(),
                                 [name](policy const& p) { return p.name == name; });
    if (at == policies().end()) {
      throw usage_error(fmt::format("unknown policy '{}'; there are {}", name, known_policies()));
    }
    chosen.bundle = &*at;
    chosen.numbers = at->numbers;
  }
  for (std::size_t from = colon; from != std::string_view::npos;) {
    std::size_t const next = text.find(':', from + 1);
    set_parameter(chosen, text.substr(from + 1, next - from - 1));
    from = next;
  }
  return chosen;
}

}  // namespace

void check_pool(std::vector<chosen_policy> const& chosen, pool_size const& size) {
  for (chosen_policy const& p : chosen) {
    if (p.bundle != nullptr && p.bundle->needs_slots && size.slots == 0) {
      throw usage_error(fmt::format(
          "policy {}: its admission installs wherever a slot is free, and one pool of bytes always has a free one; give --slots",
          p.name));
    }
  }
}

warmset::trace::capacity capacity_of(pool_size const& size, std::size_t n_layers) {
  if (size.slots == 0) {
    return warmset::trace::capacity::shared_bytes(size.budget_bytes);
  }
  return size.pool == pool_kind::per_layer
             ? warmset::trace::capacity::slots_per_layer(size.slots)
             : warmset::trace::capacity::shared_slots(warmset::u64{size.slots} * n_layers);
}

std::vector<chosen_policy> choose_policies(std::string_view text) {
  std::vector<chosen_policy> result;
  auto const add = [&result](chosen_policy p) {
    for (chosen_policy const& other : result) {
      if (other.name == p.name) {
        return;
      }
    }
    result.push_back(std::move(p));
  };
  for (std::size_t from = 0; from <= text.size();) {
    std::size_t const comma = std::min(text.find(',', from), text.size());
    std::string_view const one = text.substr(from, comma - from);
    if (one == "all") {
      for (policy const& p : policies()) {
        if (!p.admits_some) {
          add(choose_policy(p.name));
        }
      }
      add(choose_policy("belady"));
      add(choose_policy("belady_bypass"));
    } else {
      add(choose_policy(one));
    }
    from = comma + 1;
  }
  return result;
}

}  // namespace warmset_tools
