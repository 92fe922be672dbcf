// SPDX-License-Identifier: Apache-2.0
#include "retention.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include <warmset/trace/bytes.hpp>

#include "../common/file.hpp"
#include "kernels.hpp"

namespace warmset_decode {

using namespace warmset;

namespace {

constexpr char head_magic[] = "WRETAIN\n";
constexpr char samples_magic[] = "WSAMPLE\n";
constexpr u32 known_version = 1;
constexpr std::size_t header_bytes = 48;
constexpr u32 most_shift = 30;
constexpr i64 most_sum = 0x7FFF'FFFF;

[[noreturn]] void fail(std::string const& name, std::string const& what) {
  throw warmset_tools::file_error(name + ": " + what);
}

std::string hexadecimal(u64 number) {
  std::string digits(16, '0');
  for (std::size_t i = 16; i-- != 0; number >>= 4) {
    digits[i] = "0123456789abcdef"[number & 15];
  }
  return digits;
}

std::string facts_text(u64 fingerprint, u32 layers, u32 experts, u32 hidden) {
  return "geometry " + hexadecimal(fingerprint) + ", " + std::to_string(layers) + " layers of " +
         std::to_string(experts) + " experts, " + std::to_string(hidden) + " hidden";
}

template <class T>
void take(trace::detail::byte_cursor& in, std::vector<T>& to, std::size_t n) {
  std::byte const* const from = in.take_bytes("a matrix", n * sizeof(T));
  to.resize(n);
  for (std::size_t i = 0; i < n; ++i) {
    to[i] = static_cast<T>(trace::detail::load_le<std::make_unsigned_t<T>>(from + i * sizeof(T)));
  }
}

}  // namespace

float input_scale(model const& m, u32 row) {
  double squares = 0;
  for (float w : m.layers[row].expert_norm) {
    squares += double{w} * double{w};
  }
  double const root = std::sqrt(squares / m.numbers.hidden);
  double const most = input_bound / (8 * root);
  int const exponent = std::isfinite(most) && most > 0 ? std::ilogb(most) : 0;
  return std::ldexp(1.0f, std::clamp(exponent, -30, 30));
}

retention_head::retention_head(std::string const& path, model const& m) : name_(path) {
  std::vector<std::byte> const bytes = warmset_tools::read_file(path);
  architecture const& a = m.numbers;
  u64 const layer_bytes = 4 + u64{4} * a.experts + u64{2} * a.experts * a.hidden;
  if (bytes.size() < header_bytes + 8 || std::memcmp(bytes.data(), head_magic, 8) != 0) {
    fail(path, "not a retention head");
  }
  trace::detail::byte_cursor in("retention head", bytes);
  (void)in.take<u64>("magic");
  u32 const version = in.take<u32>("version");
  u32 const layers = in.take<u32>("layers");
  u64 const size = in.take<u64>("size");
  u64 const fingerprint = in.take<u64>("fingerprint");
  u32 const hidden = in.take<u32>("hidden");
  u32 const experts = in.take<u32>("experts");
  (void)in.take<u64>("reserved");
  if (version != known_version) {
    fail(path, "version is " + std::to_string(version) + "; version " +
                   std::to_string(known_version) + " is read");
  }
  if (size != bytes.size()) {
    fail(path, "a head of " + std::to_string(size) + " bytes in a file of " +
                   std::to_string(bytes.size()));
  }
  std::span<std::byte const> const summed(bytes.data(), bytes.size() - 8);
  if (trace::checksum(summed) != trace::detail::load_le<u64>(bytes.data() + summed.size())) {
    fail(path, "the checksum does not match");
  }
  std::string const theirs = facts_text(fingerprint, layers, experts, hidden);
  std::string const ours = facts_text(m.geometry().fingerprint(), a.layers, a.experts, a.hidden);
  if (theirs != ours) {
    fail(path,
         "fitted to another model (" + theirs + ") than " + m.file_name() + " (" + ours + ")");
  }
  if (bytes.size() != header_bytes + layer_bytes * a.layers + 8) {
    fail(path, std::to_string(bytes.size()) + " bytes are not a head's of this model");
  }
  for (u32 row = 0; row < a.layers; ++row) {
    layer l;
    l.shift = in.take<u32>("shift");
    take(in, l.bias, a.experts);
    take(in, l.weights, std::size_t{a.experts} * a.hidden);
    layers_.push_back(std::move(l));
  }
  check(m);
}

retention_head::retention_head(std::string const& name, model const& m, std::vector<layer> layers)
    : name_(name), layers_(std::move(layers)) {
  check(m);
}

void retention_head::check(model const& m) const {
  architecture const& a = m.numbers;
  if (layers_.size() != a.layers) {
    fail(name_,
         std::to_string(layers_.size()) + " layers for a model of " + std::to_string(a.layers));
  }
  for (u32 row = 0; row < a.layers; ++row) {
    layer const& l = layers_[row];
    std::string const where = "layer " + std::to_string(row) + ": ";
    if (l.shift > most_shift) {
      fail(name_, where + "a shift of " + std::to_string(l.shift) + " is more than " +
                      std::to_string(most_shift));
    }
    if (l.bias.size() != a.experts || l.weights.size() != std::size_t{a.experts} * a.hidden) {
      fail(name_, where + "a matrix of another shape than the router's");
    }
    for (u32 e = 0; e < a.experts; ++e) {
      i64 most = std::abs(i64{l.bias[e]});
      for (u32 i = 0; i < a.hidden; ++i) {
        most += input_bound * std::abs(i64{l.weights[std::size_t{e} * a.hidden + i]});
      }
      if (most > most_sum) {
        fail(name_, where + "keys of expert " + std::to_string(e) + " can exceed 32 bits");
      }
    }
  }
}

void retention_head::keys(u32 row, std::span<i16 const> input, std::span<i32> out) const noexcept {
  layer const& l = layers_[row];
  kernels::multiply_i16(l.weights.data(), input.data(), out.data(), out.size(), input.size());
  for (std::size_t e = 0; e < out.size(); ++e) {
    out[e] = (l.bias[e] + out[e]) >> l.shift;
  }
}

retention_samples::retention_samples(model const& m) : model_(m) {}

void retention_samples::expect(std::size_t n) {
  architecture const& a = model_.numbers;
  first_ = n_tokens_;
  n_tokens_ += n;
  inputs_.resize(n_tokens_ * a.layers * a.hidden);
  ids_.resize(n_tokens_ * a.layers * a.k);
}

void retention_samples::set(u32 row, std::size_t i, std::span<i16 const> input,
                            std::span<routed_id const> ids) noexcept {
  u64 const at = (first_ + i) * model_.numbers.layers + row;
  std::copy(input.begin(), input.end(), inputs_.data() + at * model_.numbers.hidden);
  std::transform(ids.begin(), ids.end(), ids_.data() + at * model_.numbers.k,
                 [](routed_id id) { return static_cast<u16>(id); });
}

std::span<i16 const> retention_samples::input(u64 token, u32 row) const noexcept {
  u32 const n = model_.numbers.hidden;
  return {inputs_.data() + (token * model_.numbers.layers + row) * n, n};
}

std::span<u16 const> retention_samples::ids(u64 token, u32 row) const noexcept {
  u32 const n = model_.numbers.k;
  return {ids_.data() + (token * model_.numbers.layers + row) * n, n};
}

std::vector<std::byte> retention_samples::bytes() const {
  architecture const& a = model_.numbers;
  std::size_t const input_bytes = std::size_t{2} * a.hidden;
  std::size_t const ids_bytes = std::size_t{2} * a.k;
  std::vector<std::byte> out(header_bytes + n_tokens_ * a.layers * (input_bytes + ids_bytes));
  std::byte* at = out.data();
  auto const put = [&at](auto value) {
    trace::detail::store_le(at, value);
    at += sizeof value;
  };
  std::memcpy(at, samples_magic, 8);
  at += 8;
  put(known_version);
  put(a.layers);
  put(u64{out.size()});
  put(model_.geometry().fingerprint());
  put(a.hidden);
  put(a.experts);
  put(u64{a.k});
  for (u64 t = 0; t < n_tokens_; ++t) {
    for (u32 row = 0; row < a.layers; ++row) {
      trace::detail::store_column(at, input(t, row));
      trace::detail::store_column(at + input_bytes, ids(t, row));
      at += input_bytes + ids_bytes;
    }
  }
  return out;
}

}  // namespace warmset_decode
