// SPDX-License-Identifier: Apache-2.0
#include "tool_main.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include <fmt/format.h>

namespace warmset_tools {

int tool_main(char const* name, int (*main_of)(int, char**), int argc, char** argv) {
  std::string what;
  try {
    int const status = main_of(argc, argv);
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) {
      return status;
    }
    what = std::string("stdout: ") + std::strerror(errno);  // nobody has read what was said
  } catch (std::bad_alloc const&) {
    what = "out of memory";
  } catch (std::exception const& e) {
    what = e.what();
  }
  std::fflush(stdout);
  std::replace(what.begin(), what.end(), '\n', ' ');
  // Where stderr takes no line, nobody is there to be told.
  std::fputs(fmt::format("{}: error: {}\n", name, what).c_str(), stderr);
  return 2;
}

void tell_closed_pipes() noexcept {
#if defined(SIGPIPE)
  std::signal(SIGPIPE, SIG_IGN);
#endif
}

}  // namespace warmset_tools
