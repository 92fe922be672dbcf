// SPDX-License-Identifier: Apache-2.0
#include "every_bundle.hpp"

WARMSET_MODEL_SHARE(5)
