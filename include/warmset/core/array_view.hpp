// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>

#include "integers.hpp"

namespace warmset::inline v0 {

/// Contiguous elements that somebody else owns: a pointer and a length. Converts from and to std::span, whose
/// header the engine's side of the library does without: it costs a translation unit a tenth of a second.
template <class T>
class array_view {
 public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;
  using iterator = T*;

  constexpr array_view() noexcept = default;
  constexpr array_view(T* data, std::size_t size) noexcept : data_(data), size_(size) {}
  template <std::size_t N>
  constexpr array_view(T (&elements)[N]) noexcept : data_(elements), size_(N) {}
  /// Of any container whose data() points at elements of this type.
  template <class Container>
    requires requires(Container&& c) {
      requires std::is_convertible_v<std::remove_pointer_t<decltype(c.data())> (*)[], T (*)[]>;
      { c.size() };
    }
  constexpr array_view(Container&& c) noexcept : data_(c.data()), size_(c.size()) {}

  constexpr T* data() const noexcept { return data_; }
  constexpr std::size_t size() const noexcept { return size_; }
  constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr T* begin() const noexcept { return data_; }
  constexpr T* end() const noexcept { return data_ + size_; }
  constexpr T& operator[](std::size_t i) const noexcept { return data_[i]; }
  constexpr T& front() const noexcept { return data_[0]; }
  constexpr T& back() const noexcept { return data_[size_ - 1]; }
  /// The n elements from `first` on; both must lie inside.
  constexpr array_view subspan(std::size_t first, std::size_t n) const noexcept { return {data_ + first, n}; }
  constexpr array_view subspan(std::size_t first) const noexcept { return {data_ + first, size_ - first}; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

/// What routed ids may be handed over in: anything contiguous of integers of at most 32 bits, such as
/// std::vector, std::array, std::span, array_view.
template <class Ids>
concept id_range = requires(Ids const& ids) {
  requires std::is_integral_v<std::remove_cvref_t<decltype(*ids.data())>>;
  requires sizeof(*ids.data()) <= sizeof(u32);
  { ids.size() };
};

}  // namespace warmset::inline v0
