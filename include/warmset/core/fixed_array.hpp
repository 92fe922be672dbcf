// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace warmset::inline v0 {

/// An array on the heap whose length is set once: owns its elements, which keep their address when it is moved.
/// What a std::vector of them would add, growing, costs every translation unit its compilation. Throws
/// bad_alloc where it allocates, and only there.
template <class T>
class fixed_array {
 public:
  fixed_array() noexcept = default;
  /// `n` value-initialised elements.
  explicit fixed_array(std::size_t n) : data_(new T[n]()), size_(n) {}
  /// One element.
  static fixed_array of_one(T const& value) { return fixed_array(new T[1]{value}, 1); }

  fixed_array(fixed_array&& other) noexcept : data_(other.data_), size_(other.size_) {
    other.data_ = nullptr;
    other.size_ = 0;
  }
  fixed_array& operator=(fixed_array&& other) noexcept {
    T* const data = data_;
    std::size_t const size = size_;
    data_ = other.data_;
    size_ = other.size_;
    other.data_ = data;
    other.size_ = size;
    return *this;
  }
  ~fixed_array() { delete[] data_; }

  T* data() noexcept { return data_; }
  T const* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  T* begin() noexcept { return data_; }
  T* end() noexcept { return data_ + size_; }
  T const* begin() const noexcept { return data_; }
  T const* end() const noexcept { return data_ + size_; }
  T& operator[](std::size_t i) noexcept { return data_[i]; }
  T const& operator[](std::size_t i) const noexcept { return data_[i]; }

 private:
  fixed_array(T* data, std::size_t size) noexcept : data_(data), size_(size) {}

  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace warmset::inline v0
