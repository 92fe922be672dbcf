// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

/// The arithmetic of the forward pass on the CPU: single precision, row-major matrices of n columns.
///
/// Sums have a fixed order (sixteen partial sums, then their sum), so that results do not depend on the compiler's
/// choice of vectors, and equal inputs give equal bits wherever the weights lie.
namespace warmset_decode::kernels {

/// out[r] = W[r] · x.
void multiply(float const* w, float const* x, float* out, std::size_t rows, std::size_t n) noexcept;
/// The same for Q8_0: blocks of a half-precision scale and 32 signed bytes. n is a multiple of 32.
void multiply_q8(std::byte const* w, float const* x, float* out, std::size_t rows,
                 std::size_t n) noexcept;

/// The same in integers. Nothing overflows where the sum of |w| * |x| of a row does not.
void multiply_i16(std::int16_t const* w, std::int16_t const* x, std::int32_t* out, std::size_t rows,
                  std::size_t n) noexcept;
/// out = x * scale, rounded half up and cut off at +- bound. What is no number becomes 0.
void to_fixed_point(float const* x, float scale, int bound, std::int16_t* out,
                    std::size_t n) noexcept;

/// out = x / rms(x) * weight.
void rms_norm(float const* x, float const* weight, float* out, std::size_t n,
              float epsilon) noexcept;
/// Turns the pairs (x[i], x[i + n/2]) of one head by the angles whose cosines and sines are given: n/2 of each.
void rotate(float* x, float const* cosines, float const* sines, std::size_t n) noexcept;
/// x = exp(x) / sum exp(x).
void softmax(float* x, std::size_t n) noexcept;
/// gate = silu(gate) * up.
void silu_times(float* gate, float const* up, std::size_t n) noexcept;
/// x += scale * y.
void add_scaled(float* x, float const* y, float scale, std::size_t n) noexcept;
/// Attention of one query head over `steps` keys and values, `stride` apart. `scores` has room for `steps` numbers.
void attend(float const* query, float const* keys, float const* values, std::size_t steps,
            std::size_t stride, std::size_t n, float* scores, float* out) noexcept;

}  // namespace warmset_decode::kernels
