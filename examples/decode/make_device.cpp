// SPDX-License-Identifier: Apache-2.0
#include <warmset/core/error.hpp>

#include "device.hpp"

namespace warmset_decode {

std::unique_ptr<device> make_device(model const& m, device_options const& options,
                                    instruments* tools) {
  if (options.device == "cpu") {
    return make_cpu_device(m, options, tools);
  }
#if defined(WARMSET_DECODE_HAS_CUDA)
  if (options.device == "cuda") {
    return make_cuda_device(m, options, tools);
  }
#else
  if (options.device == "cuda") {
    throw warmset::config_error(
        "--device cuda: this program was built without CUDA (cmake -DWARMSET_CUDA=ON)");
  }
#endif
  throw warmset::config_error("there is no device '", options.device.c_str(), "'");
}

}  // namespace warmset_decode
