// SPDX-License-Identifier: Apache-2.0
#include "token_lists.hpp"

#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "arguments.hpp"
#include "file.hpp"
#include "usage_error.hpp"

namespace warmset_tools {

using warmset::u32;
using warmset::u64;

std::vector<token_list> read_token_lists(std::string const& path, std::string const& lines,
                                         u32 vocabulary, u32 context) {
  auto const fail = [&](std::size_t line, std::string const& what) {
    throw file_error(fmt::format("{}:{}: {}", path, line, what));
  };
  u32 first = 0;
  u32 last = warmset::u32_max;
  if (lines != "all") {
    std::size_t const dash = lines.find('-');
    first = whole_of(std::string_view(lines).substr(0, dash), "--sequences", 0,
                     warmset::u32_max - 1);
    last = dash == std::string::npos ? first
                                     : whole_of(std::string_view(lines).substr(dash + 1),
                                                "--sequences", first, warmset::u32_max - 1);
  }
  std::vector<std::byte> const bytes = read_file(path);
  std::string_view rest(reinterpret_cast<char const*>(bytes.data()), bytes.size());
  std::vector<token_list> found;
  for (std::size_t line = 1; !rest.empty(); ++line) {
    std::size_t const end = rest.find('\n');
    std::string_view const text = rest.substr(0, end);
    rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
    if (line - 1 < first || line - 1 > last || text.empty()) {
      continue;
    }
    nlohmann::json const j = nlohmann::json::parse(text, nullptr, false);
    if (!j.is_object() || !j.contains("tokens") || !j["tokens"].is_array() || j["tokens"].empty()) {
      fail(line, "no JSON object with a list of tokens");
    }
    token_list list;
    list.label = j.contains("d") && j["d"].is_string() ? j["d"].get<std::string>()
                                                       : std::to_string(line - 1);
    for (nlohmann::json const& t : j["tokens"]) {
      if (!t.is_number_unsigned() || t.get<u64>() >= vocabulary) {
        fail(line, fmt::format("a token is not between 0 and {}", vocabulary - 1));
      }
      list.tokens.push_back(t.get<u32>());
    }
    if (list.tokens.size() > context) {
      fail(line, fmt::format("{} tokens are more than the context of {}", list.tokens.size(),
                             context));
    }
    found.push_back(std::move(list));
  }
  if (found.empty()) {
    throw usage_error(lines == "all" ? fmt::format("{}: no token list in it", path)
                                     : fmt::format("--sequences: {} has no sequence {}", path, lines));
  }
  return found;
}

}  // namespace warmset_tools
