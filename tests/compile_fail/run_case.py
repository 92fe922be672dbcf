#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles one case twice: its twin has to be accepted, the case itself refused with the words it expects."""

import argparse
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from passed_before import Stamp  # noqa: E402

SKIPPED = 77


def expectation(path, compiler_id):
    """The regular expression after `// expect:`, or after `// expect(<id>):` where one speaks for this compiler."""
    general, special = None, None
    with open(path, encoding="utf-8") as source:
        for line in source:
            found = re.match(r"//\s*expect(?:\(([^)]*)\))?:\s*(.+?)\s*$", line)
            if not found:
                break
            if found.group(1) is None:
                general = found.group(2)
            elif compiler_id in re.split(r"[,\s]+", found.group(1)):
                special = found.group(2)
            elif found.group(1) == "clang" and compiler_id.startswith("clang"):
                special = special or found.group(2)
    return special or general


def command_line(args, directory):
    if args.id == "nvcc":
        # A full compile: some refusals come from the device pass, some from the host pass.
        return [args.compiler, "-std=c++20", "-isystem", args.stage, "-c", "-o", os.path.join(directory, "case.o"), args.file]
    return [args.compiler, "-std=c++20", "-I", args.include, "-fsyntax-only", args.file]


def compile_once(args, twin):
    with tempfile.TemporaryDirectory() as directory:
        command = command_line(args, directory) + (["-DWARMSET_TWIN_OK"] if twin else [])
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                env={**os.environ, "LC_ALL": "C"}, check=False)
    return result.returncode, result.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--id", required=True, help="g++, clang, clang-19 or nvcc")
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--include", required=True, help="the source tree's include directory, passed by -I")
    parser.add_argument("--stage", required=True, help="the staged include directory, passed by -isystem to nvcc")
    parser.add_argument("--stamps", help="a directory that remembers what has passed")
    parser.add_argument("file")
    args = parser.parse_args()

    if not args.compiler or args.compiler.endswith("-NOTFOUND"):
        print(f"skipped: no {args.id}")
        return SKIPPED
    wanted = expectation(args.file, args.id)
    if wanted is None:
        print(f"{args.file}: the first line has to be `// expect: <regular expression>`")
        return 1

    stamp = Stamp(args.stamps, args.compiler, command_line(args, ""),
                  [__file__, args.file, args.stage if args.id == "nvcc" else args.include])
    if stamp.passed():
        print("refused as expected before; nothing has changed since")
        return 0

    code, output = compile_once(args, twin=True)
    if code != 0:
        print(f"the twin (-DWARMSET_TWIN_OK) was refused:\n{output}")
        return 1
    code, output = compile_once(args, twin=False)
    if code == 0:
        print(f"the case was accepted; expected a refusal that matches: {wanted}\n{output}")
        return 1
    if code < 0 or "internal compiler error" in output:
        print(f"the compiler crashed:\n{output}")
        return 1
    if not re.search(wanted, output):
        print(f"the case was refused, but not with words that match: {wanted}\n{output}")
        return 1
    stamp.write()
    print(f"refused as expected: {wanted}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
