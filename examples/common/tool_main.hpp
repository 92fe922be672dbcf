// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace warmset_tools {

/// The status of a program: what `main_of` returns, or 2 with one line on stderr where it throws.
int tool_main(char const* name, int (*main_of)(int, char**), int argc, char** argv);

/// Makes a closed pipe an error that is told, and leaves no file behind. Else it ends the program.
void tell_closed_pipes() noexcept;

}  // namespace warmset_tools
