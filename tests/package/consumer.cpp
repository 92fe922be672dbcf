// SPDX-License-Identifier: Apache-2.0
#if __has_include("warmset/warmset.hpp")
#include "warmset/warmset.hpp"
#else
#include "warmset/core/config.hpp"
#endif

int main() { return WARMSET_VERSION_MAJOR == 0 ? 0 : 1; }
