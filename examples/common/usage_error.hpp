// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

namespace warmset_tools {

/// Options that cannot work, alone or with the trace at hand. The message is one line.
class usage_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace warmset_tools
