// SPDX-License-Identifier: Apache-2.0
#include "warmset/warmset.hpp"

int second_version();

int main() { return second_version() == WARMSET_VERSION_MINOR ? 0 : 1; }
