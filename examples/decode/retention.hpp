// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <warmset/core/ids.hpp>
#include <warmset/core/integers.hpp>

#include "model.hpp"

namespace warmset_decode {

using warmset::i16;
using warmset::i32;
using warmset::u16;

/// Largest magnitude of a router input in fixed point: 12 bits and a sign.
inline constexpr i32 input_bound = 4095;

/// The scale, a power of two, at which a layer's router input becomes fixed point. Eight times the root mean square of the
/// layer's norm weights still fits. The same for everyone who reads the model.
float input_scale(model const& m, u32 row);

/// A retention head: one matrix per layer, a second router, that says from the router's input how soon each expert is used
/// again. Its keys are integers: for an input q in fixed point, the key of expert e is (bias[e] + W[e] · q) >> shift.
/// examples/retention fits it; docs/retention.md has the file, byte by byte.
class retention_head {
 public:
  struct layer {
    u32 shift = 0;
    std::vector<i32> bias;     ///< [experts]
    std::vector<i16> weights;  ///< [experts][hidden]
  };

  /// Reads a head for this model. No key of it can overflow. Throws warmset_tools::file_error, which names the file,
  /// where it is none, damaged, or for another geometry.
  retention_head(std::string const& path, model const& m);
  /// A head of these layers, of which the same must hold. Throws warmset_tools::file_error with that name.
  retention_head(std::string const& name, model const& m, std::vector<layer> layers);

  /// Keys of all experts, for the input in fixed point of `hidden` numbers. O(experts x hidden).
  void keys(u32 row, std::span<i16 const> input, std::span<i32> out) const noexcept;

  std::string const& name() const noexcept { return name_; }
  std::vector<layer> const& layers() const noexcept { return layers_; }

 private:
  void check(model const& m) const;

  std::string name_;
  std::vector<layer> layers_;
};

/// What a head is fitted to: the router's inputs in fixed point and the experts it chose, for each token and layer.
class retention_samples {
 public:
  explicit retention_samples(model const& m);

  /// `n` more tokens are to come, all layers of each.
  void expect(std::size_t n);
  /// The sample of a layer, for the i-th of the tokens expected last.
  void set(u32 row, std::size_t i, std::span<i16 const> input,
           std::span<warmset::routed_id const> ids) noexcept;

  u64 n_tokens() const noexcept { return n_tokens_; }
  std::span<i16 const> input(u64 token, u32 row) const noexcept;
  std::span<u16 const> ids(u64 token, u32 row) const noexcept;

  /// As a file: a header, then [token][layer] of [hidden] i16 and [k] u16.
  std::vector<std::byte> bytes() const;

 private:
  model const& model_;
  u64 n_tokens_ = 0;
  u64 first_ = 0;            ///< of the tokens expected last
  std::vector<i16> inputs_;  ///< [token][layer][hidden]
  std::vector<u16> ids_;     ///< [token][layer][k]
};

}  // namespace warmset_decode
