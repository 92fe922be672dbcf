// SPDX-License-Identifier: Apache-2.0
#include "sequences.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "../common/token_lists.hpp"
#include "../common/file.hpp"
#include "../common/usage_error.hpp"

namespace warmset_llama {

using warmset_tools::usage_error;

void text_options::add_to(CLI::App& app) {
  app.add_option("model", model, "A GGUF file of a Mixture-of-Experts model that llama.cpp runs")
      ->required();
  app.add_option("--prompt", prompts, "A text to go on with; may be given several times")
      ->allow_extra_args(false);
  app.add_option("--text", texts,
                 "A file whose text is given token by token after its prompt; may be given several "
                 "times")
      ->allow_extra_args(false);
  app.add_option("--tokens", tokens_path,
                 "Token ids instead of texts: a file of JSON lines with `tokens`");
  app.add_option("--sequences", lines, "With --tokens: lines to take, from 0: all, A or A-B")
      ->capture_default_str();
  app.add_option("--prompt-tokens", prompt_tokens,
                 "With --text and --tokens: tokens of a sequence that are its prompt (default: 128)");
  app.add_option("--length", length, "With --text and --tokens: most tokens of a sequence")
      ->capture_default_str();
  app.add_option("--generate", generate, "With --prompt: tokens to generate")
      ->capture_default_str();
  app.add_option("--batch", batch, "Prompt tokens that are computed together")
      ->capture_default_str();
  app.add_option("--threads", threads,
                 "Threads of llama.cpp (default: the number of processors)");
  app.add_flag("--all-outputs", all_outputs,
               "Ask for the logits of every token of a prompt; without it the last layer computes the "
               "last token alone");
}

void text_options::check() {
  threads = threads != 0 ? threads : std::max(1u, std::thread::hardware_concurrency());
  auto const in_range = [](u32 v, u32 least, u32 most, char const* option) {
    if (v < least || v > most) {
      throw usage_error(fmt::format("{}: {} is not between {} and {}", option, v, least, most));
    }
  };
  in_range(length, 1, 1u << 20, "--length");
  in_range(generate, 0, 1u << 20, "--generate");
  in_range(batch, 1, 8192, "--batch");
  in_range(threads, 1, 512, "--threads");
  in_range(prompt_tokens.value_or(1), 1, 1u << 20, "--prompt-tokens");
  if (prompts.empty() && texts.empty() && tokens_path.empty()) {
    throw usage_error("nothing to compute: give --prompt, --text or --tokens");
  }
}

namespace {

/// Checks that a sequence fits, and cuts nothing.
void add(std::vector<sequence>& to, sequence s, model const& m) {
  if (s.tokens.empty()) {
    throw usage_error(s.label + ": the text is empty");
  }
  if (s.length() > m.context()) {
    throw usage_error(fmt::format("{}: {} tokens are more than the model's context of {}", s.label,
                                  s.length(), m.context()));
  }
  to.push_back(std::move(s));
}

}  // namespace

std::vector<sequence> read_sequences(text_options const& o, model const& m) {
  std::vector<sequence> all;
  for (std::size_t i = 0; i < o.prompts.size(); ++i) {
    sequence s{fmt::format("prompt {}", i), m.tokenize(o.prompts[i]), 0, o.generate};
    s.n_prompt = static_cast<u32>(s.tokens.size());
    add(all, std::move(s), m);
  }
  auto const given = [&](std::string label, std::vector<u32> tokens) {
    tokens.resize(std::min<std::size_t>(tokens.size(), o.length));
    u32 const n = std::min(o.prompt_tokens.value_or(128), static_cast<u32>(tokens.size()));
    add(all, {std::move(label), std::move(tokens), n, 0}, m);
  };
  for (std::string const& path : o.texts) {
    std::vector<std::byte> const bytes = warmset_tools::read_file(path);
    given(path.substr(path.find_last_of('/') + 1),
          m.tokenize({reinterpret_cast<char const*>(bytes.data()), bytes.size()}));
  }
  if (!o.tokens_path.empty()) {
    for (warmset_tools::token_list& list : warmset_tools::read_token_lists(
             o.tokens_path, o.lines, m.vocabulary(), warmset::u32_max)) {
      given(std::move(list.label), std::move(list.tokens));
    }
  }
  return all;
}

u32 longest(std::vector<sequence> const& all) noexcept {
  u32 most = 1;
  for (sequence const& s : all) {
    most = std::max(most, s.length());
  }
  return most;
}

std::size_t count_decodes(std::vector<sequence> const& all, u32 batch) noexcept {
  std::size_t n = 0;
  for (sequence const& s : all) {
    n += (s.n_prompt + batch - 1) / batch + s.length() - s.n_prompt;
  }
  return n;
}

std::vector<std::string> compute(model const& m, context& c, std::vector<sequence> const& all,
                                 text_options const& o, listeners const& who) {
  std::vector<std::string> texts;
  u32 number = 0;
  auto const decode = [&](u32 position, warmset::phase p, std::span<u32 const> tokens,
                          bool is_read = true) {
    pass const now{number, position, p, tokens,
                   o.all_outputs ? outputs::all : is_read ? outputs::last : outputs::none};
    if (who.before) {
      who.before(now);
    }
    c.decode(tokens, position, now.wanted);
    if (who.after) {
      who.after(now, c);
    }
  };
  for (sequence const& s : all) {
    c.clear();
    std::span<u32 const> const tokens(s.tokens);
    for (u32 at = 0; at < s.n_prompt;) {
      u32 const n = std::min(o.batch, s.n_prompt - at);
      decode(at, warmset::phase::prefill, tokens.subspan(at, n), at + n == s.n_prompt);
      at += n;
    }
    u32 at = s.n_prompt;
    for (; at < tokens.size(); ++at) {
      decode(at, warmset::phase::decode, tokens.subspan(at, 1));
    }
    texts.emplace_back();
    u32 last_row = o.all_outputs ? (s.n_prompt - 1) % o.batch : 0;
    last_row = s.n_prompt < tokens.size() ? 0 : last_row;
    for (u32 made = 0; made < s.n_generate; ++made, ++at) {
      std::span<float const> const row = c.logits(last_row);
      last_row = 0;
      u32 const next =
          static_cast<u32>(std::max_element(row.begin(), row.end()) - row.begin());
      if (m.ends_text(next)) {
        break;
      }
      texts.back() += m.piece(next);
      decode(at, warmset::phase::decode, {&next, 1});
    }
    ++number;
  }
  return texts;
}

}  // namespace warmset_llama
