#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_headers.py has to find each kind of violation where it is planted, and nothing where nothing is wrong.

    selftest.py <include directory>

Every plant goes into a temporary copy of the real headers, with a few small headers beside them.
"""

import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_headers  # noqa: E402

SCENERY = [
    "core/z_core.hpp", "policy/concepts_z.hpp", "policy/z_bundle.hpp", "policy/score/z_concept.hpp",
    "policy/score/z_one.hpp", "policy/score/z_two.hpp", "policy/guard/z_concept.hpp", "policy/guard/z_guard.hpp",
    "policy/select/z_select.hpp", "predict/z.hpp", "gate/z.hpp", "table/z.hpp", "move/z.hpp", "signal/z.hpp",
    "cuda/z.hpp", "cuda/z.cuh", "observe/z.hpp", "trace/z.hpp",
]

# (header, lines, words of the violation or None where it has to be accepted)
PLANTS = [
    ("core/z_core.hpp", '#include "warmset/table/z.hpp"', "core may not include table"),
    ("core/z_core.hpp", '#include "../table/z.hpp"', "core may not include table"),
    ("core/z_core.hpp", '#include <warmset/table/z.hpp>', "core may not include table"),
    ("core/z_core.hpp", '// #include "warmset/table/z.hpp"', None),
    ("core/z_core.hpp", '/*\n#include "warmset/table/z.hpp"\n*/', None),
    ("core/z_core.hpp", "#include <zstd.h>", "not of the standard library"),
    ("core/z_core.hpp", "#include <cuda_runtime.h>", "CUDA headers belong"),
    ("core/z_core.hpp", "#include <cuda/std/array>", "CUDA headers belong"),
    ("core/z_core.hpp", "#include <type_traits>", None),
    ("core/z_core.hpp", '#include "warmset/core/nowhere.hpp"', "does not exist"),
    ("policy/score/z_one.hpp", "struct s { [[no_unique_address]] int a; };", "no_unique_address"),
    ("table/z.hpp", "struct s { [[no_unique_address]] int a; };", "no_unique_address"),
    ("table/z.hpp", "// [[no_unique_address]]", None),
    ("signal/z.hpp", "struct s { [[no_unique_address]] int a; };", None),
    ("policy/score/z_one.hpp", '#include "warmset/core/z_core.hpp"', None),
    ("policy/score/z_one.hpp", '#include "warmset/policy/score/z_concept.hpp"', None),
    ("policy/score/z_one.hpp", '#include "z_concept.hpp"', None),
    ("policy/score/z_one.hpp", '#include "warmset/policy/score/z_two.hpp"', None),
    ("policy/score/z_one.hpp", '#include "warmset/policy/guard/z_guard.hpp"', "may not include policy/guard"),
    ("policy/score/z_one.hpp", '#include "warmset/policy/guard/z_concept.hpp"', "do not include each other"),
    ("policy/score/z_one.hpp", '#include "warmset/policy/concepts_z.hpp"', None),
    ("policy/z_bundle.hpp", '#include "warmset/policy/guard/z_guard.hpp"', None),
    ("predict/z.hpp", '#include "warmset/policy/score/z_one.hpp"', "predict may not include"),
    ("gate/z.hpp", '#include "warmset/table/z.hpp"', "gate may not include table"),
    ("table/z.hpp", '#include "warmset/gate/z.hpp"', "table may not include gate"),
    ("table/z.hpp", '#include "warmset/policy/score/z_one.hpp"', None),
    ("table/z.hpp", '#include "warmset/move/z.hpp"', "table may not include move"),
    ("table/z.hpp", '#include "warmset/policy/score/z_concept.hpp"', None),
    ("move/z.hpp", '#include "warmset/table/z.hpp"', None),
    ("move/z.hpp", '#include "warmset/gate/z.hpp"', "move may not include gate"),
    ("signal/z.hpp", '#include "warmset/move/z.hpp"', None),
    ("move/z.hpp", '#include "warmset/signal/z.hpp"', "move may not include signal"),
    ("observe/z.hpp", '#include "warmset/trace/z.hpp"', "observe may not include trace"),
    ("observe/z.hpp", '#include "warmset/cuda/z.hpp"', "observe may not include cuda"),
    ("trace/z.hpp", '#include "warmset/observe/z.hpp"', None),
    ("trace/z.hpp", "#include <zstd.h>", "not of the standard library"),
    ("cuda/z.hpp", "#include <cuda_runtime_api.h>", None),
    ("cuda/z.hpp", '#include "warmset/cuda/z.cuh"', "read by host compilers"),
    ("cuda/z.cuh", '#include "warmset/cuda/z.hpp"', None),
    ("cache.hpp", '#include "warmset/table/z.hpp"', None),
    ("cache.hpp", '#include "warmset/warmset.hpp"', "cache.hpp may not include warmset.hpp"),
    ("observe/z.hpp", '#include "warmset/cache.hpp"', "observe may not include cache.hpp"),
    ("elsewhere/z.hpp", "", "no known room"),
    ("core/z_core.hpp", "WARMSET_HD int f(int a) { return std::min(a, 1); }", "std::min"),
    ("core/z_core.hpp", "WARMSET_HD int f(int a) {\n    int b = a;\n    return std::popcount(unsigned(b));\n}", "std::popcount"),
    ("core/z_core.hpp", "WARMSET_HD explicit s(int a) : a_{a}, b_(2) { std::swap(a_, b_); }", "std::swap"),
    ("core/z_core.hpp", "template <class T>\nWARMSET_HD constexpr T f(T a) noexcept\n    requires requires { a + a; }\n{\n    std::array<T, 2> b{};\n    return b[0];\n}", "std::array"),
    ("core/z_core.hpp", "WARMSET_HD int f(int a) { return std::lower_bound(&a, &a, 1) - &a; }", "std::lower_bound"),
    ("core/z_core.hpp", "WARMSET_HD int f(int a) { return a; }\ninline int g(int a) { return std::min(a, 1); }", None),
    ("core/z_core.hpp", "WARMSET_HD int f(int a);\ninline int g(int a) { return std::min(a, 1); }", None),
    ("core/z_core.hpp", "WARMSET_HD int f(int a) { return 1'000 + std::move(a); } // std::min(a, b)", None),
    ("core/z_core.hpp", "WARMSET_HD auto f(int a) { return std::uint32_t(a) + static_cast<std::size_t>(a); }", None),
    ("core/z_core.hpp", "WARMSET_HD auto f(int a) { if constexpr (std::is_same_v<int, long>) return std::as_const(a); }", "std::as_const"),
]


def write(directory, path, text):
    full = os.path.join(directory, "warmset", path)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    with open(full, "w", encoding="utf-8") as target:
        target.write(text)


def main():
    failures = 0
    with tempfile.TemporaryDirectory() as directory:
        shutil.copytree(os.path.join(sys.argv[1], "warmset"), os.path.join(directory, "warmset"))
        for path in ("cache.hpp", "warmset.hpp"):
            write(directory, path, "#pragma once\n")
        for path in SCENERY:
            write(directory, path, "#pragma once\n")
        for path, text, wanted in PLANTS:
            write(directory, path, f"#pragma once\n{text}\n")
            found = [problem for _, problem in check_headers.check_header(directory, path)]
            right = not found if wanted is None else len(found) == 1 and wanted in found[0]
            if not right:
                failures += 1
                print(f"{path}: {text!r}\n    found {found}, expected {wanted!r}")
            # Through the front door as well: the whole tree, as the test runs it.
            if wanted is not None and not any(path in line for line in check_headers.violations(directory)):
                failures += 1
                print(f"{path}: {text!r}\n    not found in the tree")
            if path == "elsewhere/z.hpp":
                shutil.rmtree(os.path.join(directory, "warmset", "elsewhere"))
            else:
                write(directory, path, "#pragma once\n")
    print(f"{len(PLANTS)} plants, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
