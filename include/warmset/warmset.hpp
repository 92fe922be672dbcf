// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Everything that a host compiler can read: the cache, its policies, backends, observers and traces.

#include "cache.hpp"
#include "concurrent.hpp"
#include "observe/laws.hpp"
#include "table/bundles.hpp"
#include "table/persist.hpp"
