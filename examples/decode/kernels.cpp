// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

#include <cmath>
#include <cstring>

#include "common/gguf.hpp"

namespace warmset_decode::kernels {

namespace {

constexpr std::size_t lanes = 16;

float sum_of(float const (&part)[lanes]) noexcept {
  float sum = 0;
  for (float p : part) {
    sum += p;
  }
  return sum;
}

float dot(float const* a, float const* b, std::size_t n) noexcept {
  float part[lanes] = {};
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    for (std::size_t j = 0; j < lanes; ++j) {
      part[j] += a[i + j] * b[i + j];
    }
  }
  for (std::size_t j = 0; i + j < n; ++j) {
    part[j] += a[i + j] * b[i + j];
  }
  return sum_of(part);
}

float dot_q8(std::byte const* row, float const* x, std::size_t n) noexcept {
  float part[lanes] = {};
  for (std::size_t i = 0; i < n; i += 32, row += 34) {
    std::uint16_t half;
    std::memcpy(&half, row, sizeof half);
    float const scale = gguf::to_float(half);
    auto const* const q = reinterpret_cast<signed char const*>(row + 2);
    for (std::size_t half_block = 0; half_block < 32; half_block += lanes) {
      for (std::size_t j = 0; j < lanes; ++j) {
        part[j] += scale * static_cast<float>(q[half_block + j]) * x[i + half_block + j];
      }
    }
  }
  return sum_of(part);
}

}  // namespace

void multiply(float const* w, float const* x, float* out, std::size_t rows,
              std::size_t n) noexcept {
  for (std::size_t r = 0; r < rows; ++r) {
    out[r] = dot(w + r * n, x, n);
  }
}

void multiply_q8(std::byte const* w, float const* x, float* out, std::size_t rows,
                 std::size_t n) noexcept {
  std::size_t const row_bytes = n / 32 * 34;
  for (std::size_t r = 0; r < rows; ++r) {
    out[r] = dot_q8(w + r * row_bytes, x, n);
  }
}

void multiply_i16(std::int16_t const* w, std::int16_t const* x, std::int32_t* out, std::size_t rows,
                  std::size_t n) noexcept {
  for (std::size_t r = 0; r < rows; ++r) {
    std::int32_t sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
      sum += std::int32_t{w[r * n + i]} * x[i];
    }
    out[r] = sum;
  }
}

void to_fixed_point(float const* x, float scale, int bound, std::int16_t* out,
                    std::size_t n) noexcept {
  float const most = static_cast<float>(bound);
  for (std::size_t i = 0; i < n; ++i) {
    float v = x[i] * scale;
    v = v > -most ? v : -most;
    v = v < most ? v : most;
    v = x[i] == x[i] ? v : 0;
    // Truncation of a positive number: as floor, but of one instruction.
    out[i] = static_cast<std::int16_t>(static_cast<int>(v + (most + 0.5f)) - bound);
  }
}

void rms_norm(float const* x, float const* weight, float* out, std::size_t n,
              float epsilon) noexcept {
  float const scale = 1.0f / std::sqrt(dot(x, x, n) / static_cast<float>(n) + epsilon);
  for (std::size_t i = 0; i < n; ++i) {
    out[i] = x[i] * scale * weight[i];
  }
}

void rotate(float* x, float const* cosines, float const* sines, std::size_t n) noexcept {
  std::size_t const half = n / 2;
  for (std::size_t i = 0; i < half; ++i) {
    float const a = x[i];
    float const b = x[i + half];
    x[i] = a * cosines[i] - b * sines[i];
    x[i + half] = a * sines[i] + b * cosines[i];
  }
}

void softmax(float* x, std::size_t n) noexcept {
  float most = x[0];
  for (std::size_t i = 1; i < n; ++i) {
    most = x[i] > most ? x[i] : most;
  }
  float sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    x[i] = std::exp(x[i] - most);
    sum += x[i];
  }
  for (std::size_t i = 0; i < n; ++i) {
    x[i] /= sum;
  }
}

void silu_times(float* gate, float const* up, std::size_t n) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    gate[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
  }
}

void add_scaled(float* x, float const* y, float scale, std::size_t n) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    x[i] += scale * y[i];
  }
}

void attend(float const* query, float const* keys, float const* values, std::size_t steps,
            std::size_t stride, std::size_t n, float* scores, float* out) noexcept {
  float const scale = 1.0f / std::sqrt(static_cast<float>(n));
  for (std::size_t t = 0; t < steps; ++t) {
    scores[t] = dot(query, keys + t * stride, n) * scale;
  }
  softmax(scores, steps);
  for (std::size_t i = 0; i < n; ++i) {
    out[i] = 0;
  }
  for (std::size_t t = 0; t < steps; ++t) {
    add_scaled(out, values + t * stride, scores[t], n);
  }
}

}  // namespace warmset_decode::kernels
