// SPDX-License-Identifier: Apache-2.0
// Loads two shared libraries with the same kernels into one process, where the dynamic linker may merge what both export,
// and lets them run in turn. Ends with 4 where there is no GPU: both are loaded all the same.
#include <dlfcn.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: %s <library> <function> <library> <function>\n", argv[0]);
    return 2;
  }
  using function = int();
  function* run[2] = {};
  for (int i = 0; i < 2; ++i) {
    void* const library = dlopen(argv[1 + 2 * i], RTLD_NOW | RTLD_GLOBAL);
    void* const symbol = library != nullptr ? dlsym(library, argv[2 + 2 * i]) : nullptr;
    if (symbol == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      return 1;
    }
    run[i] = reinterpret_cast<function*>(symbol);
  }
  for (int i = 0; i < 6; ++i) {
    if (int const result = run[i % 2](); result == 4) {
      std::puts("skipped: no GPU; both libraries are loaded");
      return 4;
    } else if (result != 0) {
      std::fprintf(stderr, "library %d fails in line %d\n", i % 2 + 1, result);
      return 1;
    }
  }
  std::puts("both libraries ran");
  return 0;
}
