// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

using namespace trace_test;

namespace {

// One layout each: a trace of `layers` layers whose experts have this many bytes.

trace::recording tinymoe(u32 layers, u32 experts, u64 bytes) {
  std::string text = R"({"format":"routing-jsonl-1","model":"tiny","layers":)" + std::to_string(layers) +
                     R"(,"experts":)" + std::to_string(experts) + R"(,"top_k":1,"expert_bytes":)" +
                     std::to_string(bytes) + "}\n";
  for (u32 l = 0; l < layers; ++l) {
    text += R"({"s":0,"d":"prose","p":0,"f":"d","l":)" + std::to_string(l) + R"(,"e":[0]})" + "\n";
  }
  return trace::read_tinymoe(text);
}

trace::recording bigmoe(u32 layers, u32 experts, u64 bytes) {
  std::string text = "# route_trace v1\n# model=tiny.gguf arch=tiny n_layer=" + std::to_string(layers) +
                     " n_expert=" + std::to_string(experts) + " n_expert_used=1\n";
  for (u32 l = 0; l < layers; ++l) {
    text += "# layer=" + std::to_string(l) + " expert_bytes=" + std::to_string(bytes) + " dense_bytes=0\n";
  }
  text += "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n";
  for (u32 l = 0; l < layers; ++l) {
    text += "0,1,0," + std::to_string(l) + ",0,0,1,0," + std::to_string(bytes) + "\n";
  }
  return trace::read_bigmoe(text);
}

trace::recording rtb1(u32 layers, u32 experts, u64 bytes) {
  std::string file = "RTB1";
  for (u32 const value : {layers, experts, 1u, 1u, 1u, 1u}) {
    for (int i = 0; i < 4; ++i) {
      file += static_cast<char>(value >> (8 * i));
    }
  }
  file += std::string(layers * 2, '\0');
  trace::rtb1_options options;
  options.expert_bytes = bytes;
  return trace::read_rtb1(trace::bytes_of(file), options);
}

struct layout {
  char const* name;
  trace::recording (*read)(u32 layers, u32 experts, u64 bytes);
};
constexpr layout layouts[] = {{"tinymoe", tinymoe}, {"bigmoe", bigmoe}, {"rtb1", rtb1}};

}  // namespace

TEST_CASE("what no geometry can be is a format_error in every layout") {
  u64 const most = geometry::max_expert_bytes;
  for (layout const& in : layouts) {
    CAPTURE(in.name);
    for (u64 const bytes : {most + 1, u64{1} << 48, (u64{1} << 48) + 1, u64{1} << 63, u64_max}) {
      CAPTURE(bytes);
      std::optional<trace::format_error> const e = format_error_of([&] { return in.read(2, 8, bytes); });
      REQUIRE(e);
      CHECK(std::string(e->what()).find(std::to_string(bytes)) != std::string::npos);
    }
    // 17 layers of 2^16 - 1 experts of 2^40 bytes are more than a model's 2^60
    std::optional<trace::format_error> const e = format_error_of([&] { return in.read(17, 65'535, most); });
    REQUIRE(e);
    CHECK(std::string(e->what()).find("more than 1152921504606846976 bytes") != std::string::npos);
  }
}

TEST_CASE("the largest geometry survives Warmset's own format from every layout") {
  u64 const most = geometry::max_expert_bytes;
  for (layout const& in : layouts) {
    CAPTURE(in.name);
    for (auto const& [layers, experts, bytes] :
         {std::tuple{2u, 8u, most}, std::tuple{16u, 65'535u, most}, std::tuple{2u, 8u, (u64{1} << 32) + 1}}) {
      trace::recording const r = in.read(layers, experts, bytes);
      CHECK(r.geometry().total_bytes() == u64{layers} * experts * bytes);
      CHECK(trace::read_warmset(trace::write_warmset(r)).geometry() == r.geometry());
    }
  }
}

TEST_CASE("a damaged size in Warmset's own format is a format_error") {
  trace::recording const r = tinymoe(2, 8, 0x0123'4567);
  std::vector<std::byte> const good = trace::write_warmset(r);
  u32 found = 0;
  for (std::size_t at = 0; at + 8 <= good.size(); ++at) {
    if (trace::detail::load_le<u64>(good.data() + at) != 0x0123'4567) {
      continue;
    }
    ++found;
    for (std::size_t byte = 0; byte < 8; ++byte) {
      std::vector<std::byte> bad = good;
      bad[at + byte] ^= std::byte{0x80};
      CHECK(format_error_of([&] { return trace::read_warmset(bad); }));
    }
  }
  CHECK(found == 2);
}
