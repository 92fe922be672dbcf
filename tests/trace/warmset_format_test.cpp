// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <cstring>
#include <filesystem>

#include <catch2/generators/catch_generators.hpp>

using namespace trace_test;

namespace {

trace::contents sample() {
  trace::contents c;
  c.geometry = geometry({{layer_id{1}, 8, 2, {10, 20}}, {layer_id{4}, 6, 2, {40}}});
  c.model = "sample";
  c.source = "made for a test";
  trace::block prompt;
  prompt.sequence = 7;
  prompt.phase = phase::prefill;
  prompt.n_rows = 2;
  prompt.n_steps = 1;
  prompt.n_tokens = 3;
  prompt.k = 2;
  trace::block decode = prompt;
  decode.phase = phase::decode;
  decode.first_position = 3;
  decode.n_tokens = 1;
  decode.n_steps = 2;
  c.blocks = {prompt, decode};
  c.ids = {0, 1, 2, 3, 7, 6, 0, 1, 2, 3, 5, trace::padding, 1, 2, 3, 4, 5, 6, 0, 5};
  c.residency.assign(20, trace::recorded_access::hit);
  c.residency[11] = trace::recorded_access::repeat;
  c.lookahead_width = 3;
  c.lookahead.assign(30, trace::padding);
  c.lookahead[3] = 5;
  c.weights.assign(20, 0.25f);
  c.labels = {{7, "prose"}};
  return c;
}

/// The same with the input tokens of both blocks: three of a step, and one of each of two.
trace::contents sample_with_tokens() {
  trace::contents c = sample();
  c.tokens = {70'001, 2, 2, 0, trace::token_bound - 1};
  return c;
}

std::string written(trace::contents c) {
  std::vector<std::byte> const bytes = trace::write_warmset(trace::recording(std::move(c)));
  return std::string(trace::text_of(bytes));
}

trace::recording read_text(std::string const& s) {
  return trace::read_warmset(trace::bytes_of(s));
}

std::string patched(std::string s, std::size_t at, u64 value, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    s.at(at + i) = static_cast<char>(value >> (8 * i));
  }
  return s;
}

/// With a checksum that is right again.
std::string resealed(std::string s) {
  u64 const sum = trace::checksum(trace::bytes_of(std::string_view(s).substr(0, s.size() - 8)));
  return patched(s, s.size() - 8, sum, 8);
}

}  // namespace

TEST_CASE("warmset: a recording survives the round trip with all its columns") {
  bool const with_tokens = GENERATE(false, true);
  trace::contents const parts = with_tokens ? sample_with_tokens() : sample();
  trace::recording const a{parts};
  std::string const bytes = written(parts);
  trace::recording const b = read_text(bytes);
  CHECK(b.geometry() == a.geometry());
  CHECK(b.model() == a.model());
  CHECK(b.source() == a.source());
  CHECK(b.blocks() == a.blocks());
  CHECK(b.labels() == a.labels());
  CHECK(std::equal(a.ids().begin(), a.ids().end(), b.ids().begin(), b.ids().end()));
  CHECK(std::equal(a.residency().begin(), a.residency().end(), b.residency().begin(),
                   b.residency().end()));
  CHECK(std::equal(a.lookahead().begin(), a.lookahead().end(), b.lookahead().begin(),
                   b.lookahead().end()));
  CHECK(std::equal(a.weights().begin(), a.weights().end(), b.weights().begin(), b.weights().end()));
  CHECK(b.tokens().size() == (with_tokens ? 5u : 0u));
  CHECK(std::equal(a.tokens().begin(), a.tokens().end(), b.tokens().begin(), b.tokens().end()));
  CHECK(trace::text_of(trace::write_warmset(b)) == bytes);
}

TEST_CASE("warmset: a recording without events or columns survives too") {
  trace::contents c;
  c.geometry = geometry::uniform(1, 4, 2, 10);
  trace::recording const r = read_text(written(c));
  CHECK(r.n_events() == 0);
  CHECK(r.residency().empty());
  CHECK(r.weights().empty());
  CHECK(r.lookahead_width() == 0);
}

TEST_CASE("warmset: a long column of tokens survives, summed while it is copied") {
  trace::contents c;
  c.geometry = geometry::uniform(1, 4, 1, 10);
  trace::block b;
  b.n_rows = 1;
  b.n_steps = 5001;
  b.k = 1;
  c.blocks = {b};
  c.ids.assign(5001, 3);
  for (u32 i = 0; i < 5001; ++i) {
    c.tokens.push_back(i * 7919 % trace::token_bound);
  }
  std::string const good = written(c);
  trace::recording const r = read_text(good);
  CHECK(std::equal(c.tokens.begin(), c.tokens.end(), r.tokens().begin(), r.tokens().end()));
  std::string const damaged = patched(good, good.size() - 12'000, 0x5A5A, 2);
  REQUIRE(damaged != good);
  auto const error = format_error_of([&] { return read_text(damaged); });
  REQUIRE(error.has_value());
  CHECK(error->at() == good.size() - 8);
}

TEST_CASE("warmset: files from before the tokens read, and are written again as they were") {
  std::filesystem::path const seeds =
      std::filesystem::path(WARMSET_SOURCE_DIR) / "tests/fuzz/corpus/warmset_trace";
  for (char const* name :
       {"assumed-bytes", "lookahead", "no-events", "residency-and-weights", "input-tokens"}) {
    INFO(name);
    std::vector<std::byte> const bytes = warmset_tools::read_file((seeds / name).string());
    trace::recording const r = trace::read_warmset(bytes);
    CHECK(r.tokens().empty() == (std::string_view(name) != "input-tokens"));
    CHECK(trace::write_warmset(r) == bytes);
  }
}

TEST_CASE("warmset: the bytes are those of the documentation") {
  std::string const s = written(sample());
  CHECK(s.substr(0, 8) == "WARMSET\n");
  CHECK(s[8] == 1);
  CHECK(static_cast<unsigned char>(s[16]) + 256u * static_cast<unsigned char>(s[17]) == s.size());
  CHECK(s.size() % 8 == 0);
  CHECK(s.substr(80 + 2 * 16 + 3 * 8 + 2 * 32 + 8, 6) == "sample");
  // Tokens are a flag and the last column, of 5 u32 and 4 bytes of padding.
  std::string const t = written(sample_with_tokens());
  CHECK(t.size() == s.size() + 24);
  CHECK(s[12] == 3);
  CHECK(t[12] == 11);
  CHECK(t.substr(24, s.size() - 32) == s.substr(24, s.size() - 32));
  CHECK(t.substr(s.size() - 8, 8) == std::string("\x71\x11\x01\0\2\0\0\0", 8));
  // From an independent calculation of the documented rule.
  CHECK(trace::checksum({}) == 0xDAAA'9AD1'FCA1'A52Eull);
  CHECK(trace::checksum(trace::bytes_of("warmset")) == 0x1382'C331'5C75'054Cull);
  std::string counting;
  for (char c = 0; c < 77; ++c) {
    counting += c;
  }
  CHECK(trace::checksum(trace::bytes_of(counting)) == 0x1F6D'58DF'069A'5CFBull);
}

TEST_CASE("warmset: malformed inputs name byte, field and value") {
  std::string const good = written(sample());
  std::size_t const layers = 80;
  std::size_t const blocks = 80 + 2 * 16 + 3 * 8;
  std::size_t const labels = blocks + 2 * 32;
  std::size_t const ids = labels + 8 + 32;
  u32 const most = 0xFFFF'FFFF;
  std::vector<malformed> cases = {
      {"empty", "", 0, "empty"},
      {"cut off in the header", good.substr(0, 30), 16, "size is"},
      {"cut off in the magic", good.substr(0, 5), 0, "magic needs 8 bytes"},
      {"wrong magic", patched(good, 0, 'w', 1), 0, "magic"},
      {"version", patched(good, 8, 2, 4), 8, "version is 2"},
      {"flags", patched(good, 12, 16, 4), 12, "flags are 16"},
      {"a flag without its column", resealed(patched(good, 12, 11, 4)), good.size() - 8,
       "tokens needs 20 bytes"},
      {"size", patched(good, 16, 1, 8), 16, "size is 1"},
      {"cut off", good.substr(0, good.size() - 8), 16, "size is"},
      {"damage", patched(good, ids, 3, 1), good.size() - 8, "checksum"},
      {"damaged checksum", patched(good, good.size() - 1, 0x55, 1), good.size() - 8, "checksum"},
      {"no layers", patched(good, 40, 0, 4), 40, "layers is 0"},
      {"huge layers", patched(good, 40, most, 4), 40, "layers is 4294967295"},
      {"many layers", resealed(patched(good, 40, 65535, 4)), 80, "layers needs"},
      {"huge banks", resealed(patched(good, 44, most, 4)), 112, "banks needs"},
      {"banks left", resealed(patched(good, 44, 4, 4)), 44, "banks is 4"},
      {"huge blocks", resealed(patched(good, 48, most, 4)), blocks, "blocks needs"},
      {"huge labels", resealed(patched(good, 52, most, 4)), labels, "labels needs"},
      {"huge ids", resealed(patched(good, 32, ~u64{0}, 8)), 32, "ids, but the blocks hold 20"},
      {"huge look-ahead", resealed(patched(good, 56, most, 4)), ids + 40 + 24, "look-ahead needs"},
      {"huge model", resealed(patched(good, 60, most, 4)), labels + 8, "model needs"},
      {"reserved", resealed(patched(good, 70, 1, 1)), 68, "reserved"},
      {"fingerprint", resealed(patched(good, 24, 1, 1)), 24, "fingerprint"},
      {"k of a layer", resealed(patched(good, layers + 8, 0, 4)), layers, "k = 0"},
      {"layers out of order", resealed(patched(good, layers + 16, 1, 4)), layers, "layer 1"},
      {"banks of a layer", resealed(patched(good, layers + 12, 9, 4)), layers + 12, "9 banks"},
      {"phase", resealed(patched(good, blocks + 8, 2, 4)), blocks, "phase"},
      {"rows", resealed(patched(good, blocks + 16, 3, 4)), blocks, "rows 0 + 3"},
      {"row overflow", resealed(patched(good, blocks + 12, most, 4)), blocks, "rows 4294967295"},
      {"no steps", resealed(patched(good, blocks + 20, 0, 4)), blocks, "none may be 0"},
      {"k changes", resealed(patched(good, blocks + 32 + 28, 3, 4)), blocks + 32, "k is 3"},
      {"id out of range", resealed(patched(good, ids + 2, 8, 2)), ids + 2, "expert 8"},
      {"id out of the second layer's range", resealed(patched(good, ids + 12, 6, 2)), ids + 12,
       "expert 6"},
      {"id twice", resealed(patched(good, ids + 2, 0, 2)), ids + 2, "twice"},
      {"residency", resealed(patched(good, ids + 40 + 3, 3, 1)), ids + 40 + 3, "residency 3"},
      {"padding", resealed(patched(good, ids + 40 + 20, 1, 1)), ids + 40 + 20, "padding"},
      {"look-ahead out of range", resealed(patched(good, ids + 64 + 6, 9, 2)), ids + 64 + 6,
       "expert 9"},
  };
  check_malformed(cases, trace::format_error::unit::byte, read_text);

  std::string const full = written(sample_with_tokens());
  std::size_t const tokens = good.size() - 8;
  std::vector<malformed> const token_cases = {
      {"token", resealed(patched(full, tokens + 8, most, 4)), tokens + 8, "input token 4294967295"},
      {"last token", resealed(patched(full, tokens + 16, u64{1} << 31, 4)), tokens + 16,
       "input token 2147483648"},
      {"padding after tokens", resealed(patched(full, tokens + 21, 1, 1)), tokens + 21, "padding"},
      {"damaged token", patched(full, tokens, 3, 1), full.size() - 8, "checksum"},
      {"a column without its flag", resealed(patched(full, 12, 3, 4)), tokens, "32 bytes follow"},
      {"cut off in the tokens",
       resealed(patched(full.substr(0, tokens + 8) + std::string(8, '\0'), 16, tokens + 16, 8)),
       tokens, "tokens needs 20 bytes"},
  };
  check_malformed(token_cases, trace::format_error::unit::byte, read_text);
}

TEST_CASE("warmset: every prefix and every flipped bit is refused, without a crash") {
  std::string const good = written(sample_with_tokens());
  for (std::size_t n = 0; n < good.size(); ++n) {
    CHECK(format_error_of([&] { return read_text(good.substr(0, n)); }).has_value());
    for (int bit = 0; bit < 8; ++bit) {
      std::string s = good;
      s[n] = static_cast<char>(s[n] ^ (1 << bit));
      CHECK(format_error_of([&] { return read_text(s); }).has_value());
      if (n < good.size() - 8) {
        format_error_of([&] { return read_text(resealed(s)); });  // may be another good file
      }
    }
  }
}

TEST_CASE("read: the layout is recognised by the first bytes") {
  CHECK(trace::recognise(trace::bytes_of("WARMSET\nxx")) == trace::layout::warmset);
  CHECK(trace::recognise(trace::bytes_of("RTB1")) == trace::layout::rtb1);
  CHECK(trace::recognise(trace::bytes_of("# route_trace v1")) == trace::layout::bigmoe);
  CHECK(trace::recognise(trace::bytes_of("{\"format\"")) == trace::layout::tinymoe);
  CHECK_FALSE(trace::recognise(trace::bytes_of("PK\3\4")).has_value());
  CHECK_FALSE(trace::recognise({}).has_value());
  CHECK(trace::read(trace::bytes_of(written(sample()))).model() == "sample");
  auto const error = format_error_of([] { return trace::read(trace::bytes_of("PK\x03\x04")); });
  REQUIRE(error.has_value());
  CHECK(std::string_view(error->what()).find("PK??") != std::string_view::npos);
  CHECK(format_error_of([] { return trace::read({}); }).has_value());
}
