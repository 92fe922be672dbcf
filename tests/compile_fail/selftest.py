#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run_case.py has to tell a proper refusal from every way in which a case can be wrong."""

import argparse
import os
import subprocess
import sys
import tempfile

REFUSED = "#ifndef WARMSET_TWIN_OK\nstatic_assert(sizeof(int) == 0, \"a plain sentence\");\n#endif\n"
CASES = [
    ("a proper case", "// expect: a plain sentence\n" + REFUSED, 0),
    ("another compiler's words are not used", "// expect: a plain sentence\n// expect(nvcc): other\n" + REFUSED, 0),
    ("this compiler's words are used", "// expect: a plain sentence\n// expect(g++): other\n" + REFUSED, 1),
    ("the wrong words", "// expect: another sentence\n" + REFUSED, 1),
    ("accepted code", "// expect: a plain sentence\nint x;\n", 1),
    ("a slip of the pen in both", "// expect: error\nint x\n" + REFUSED, 1),
    ("no expectation", REFUSED, 1),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", required=True)
    args = parser.parse_args()
    runner = os.path.join(os.path.dirname(os.path.abspath(__file__)), "run_case.py")
    failures = 0
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "case.cpp")

        def run(compiler, *options):
            return subprocess.run([sys.executable, runner, "--id", "g++", "--compiler", compiler, *options,
                                   "--include", directory, "--stage", directory, path],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)

        for name, text, wanted in CASES:
            with open(path, "w", encoding="utf-8") as source:
                source.write(text)
            result = run(args.compiler)
            if result.returncode != wanted:
                failures += 1
                print(f"{name}: exit status {result.returncode}, not {wanted}\n{result.stdout}")
        # A pass is remembered until the case or a header changes, a failure never.
        header = os.path.join(directory, "header.hpp")
        with open(header, "w", encoding="utf-8") as source:
            source.write("// empty\n")
        with open(path, "w", encoding="utf-8") as source:
            source.write("// expect: a plain sentence\n#include \"header.hpp\"\n" + REFUSED)
        with tempfile.TemporaryDirectory() as stamps:
            answers = [run(args.compiler, "--stamps", stamps) for _ in range(2)]
            with open(header, "w", encoding="utf-8") as source:
                source.write("broken\n")
            answers += [run(args.compiler, "--stamps", stamps) for _ in range(2)]
        said = [("before" in a.stdout, a.returncode) for a in answers]
        if said != [(False, 0), (True, 0), (False, 1), (False, 1)]:
            failures += 1
            print(f"passes are not remembered as they should be: {said}")
        if run("X-NOTFOUND").returncode != 77:
            failures += 1
            print("a missing compiler is not reported as skipped")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
