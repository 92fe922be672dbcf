// SPDX-License-Identifier: Apache-2.0
#include "warmset/warmset.hpp"

int second_version();

int second_version() { return WARMSET_VERSION_MINOR; }
