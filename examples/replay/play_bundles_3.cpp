// SPDX-License-Identifier: Apache-2.0
#include "play_bundles.hpp"

template void warmset_tools::append_bundles<3>(std::vector<std::pair<unsigned, policy>>&);
