// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "virtual_driver.hpp"

namespace warmset::inline v0 {
namespace move {

/// One of several owners of a virtual driver, which ends with the last of them. One thread.
class shared_driver {
 public:
  shared_driver() = default;
  static shared_driver make(std::vector<link_model> const& links,
                            std::vector<virtual_device> const& devices = {virtual_device{}}) {
    shared_driver d;
    d.driver_ = new virtual_driver(links, devices);
    d.driver_->add_owner();
    return d;
  }
  shared_driver(shared_driver const& other) noexcept : driver_(other.driver_) {
    if (driver_ != nullptr) {
      driver_->add_owner();
    }
  }
  shared_driver(shared_driver&& other) noexcept : driver_(other.driver_) {
    other.driver_ = nullptr;
  }
  shared_driver& operator=(shared_driver other) noexcept {
    std::swap(driver_, other.driver_);
    return *this;
  }
  ~shared_driver() {
    if (driver_ != nullptr && driver_->drop_owner()) {
      delete driver_;
    }
  }

  explicit operator bool() const noexcept { return driver_ != nullptr; }
  virtual_driver& operator*() const noexcept { return *driver_; }
  virtual_driver* operator->() const noexcept { return driver_; }

 private:
  virtual_driver* driver_ = nullptr;
};

/// A block of a driver that is released when its owner ends.
class owned_block {
 public:
  owned_block() = default;
  owned_block(shared_driver driver, block_id block) noexcept
      : driver_(std::move(driver)), block_(block) {}
  owned_block(owned_block&& other) noexcept
      : driver_(std::move(other.driver_)), block_(other.block_) {}
  owned_block& operator=(owned_block&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(block_, other.block_);
    return *this;
  }
  ~owned_block() {
    if (driver_) {
      (void)driver_->release(block_);  // refused: it stays charged, as the driver's ledger shows
    }
  }

  block_id id() const noexcept { return block_; }
  std::span<std::byte> bytes() noexcept { return driver_->memory().peek(block_); }
  std::span<std::byte const> bytes() const noexcept { return driver_->memory().peek(block_); }

 private:
  shared_driver driver_;
  block_id block_ = no_block;
};

}  // namespace move
}  // namespace warmset::inline v0
