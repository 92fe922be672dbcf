// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The cache with every named bundle, its observers, laws and persistence. The host backend and the adaptors
/// (move/) and traces (trace/) have headers of their own, so that an engine does not pay for them.

#include "cache.hpp"
#include "concurrent.hpp"
#include "observe/laws.hpp"
#include "table/bundles.hpp"
#include "table/persist.hpp"
