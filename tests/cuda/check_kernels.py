#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles kernels to PTX without inlining and looks for policy functions that nvcc left out.

A call from host-device code to a function that only the host may run does not stop nvcc: the call is dropped. So every
kernel has to reach a sensible number of instructions, and the functions of its score, selector and guard have to exist.
Kernels that run no policy say what they have to reach instead (--contains).
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from passed_before import Stamp  # noqa: E402

FUNCTION = re.compile(r"^(?:\.visible |\.weak )*\.(entry|func)\s*(?:\([^)]*\)\s*)?([\w$]+)\s*\([^)]*\)([^{;]*)\{\n(.*?)^\}",
                      re.S | re.M)
INSTRUCTION = re.compile(r"^\s*(?:@!?%p\d+\s+)?[a-z][\w.]*(?:\s[^;]*)?;|^\s*call[\w.]*", re.M)
LEAST_INSTRUCTIONS = 1000
CONTEXTUAL = {"successor", "supplied", "supplied_with"}


def parse(ptx):
    """Name -> (is an entry, instructions, names that occur in its body, body)."""
    functions = {}
    for kind, name, _, body in FUNCTION.findall(ptx):
        functions[name] = (kind == "entry", len(INSTRUCTION.findall(body)), set(re.findall(r"_Z[\w$]+", body)), body)
    return functions


def demangle(names, cxxfilt):
    result = subprocess.run([cxxfilt], input="\n".join(names), stdout=subprocess.PIPE, text=True, check=True)
    return dict(zip(names, result.stdout.split("\n")))


def reach(functions, name):
    seen, todo = set(), [name]
    while todo:
        name = todo.pop()
        if name in functions and name not in seen:
            seen.add(name)
            todo.extend(functions[name][2])
    return seen


def wanted_functions(entry, outside):
    """What a kernel of this name has to call: patterns of demangled names."""
    entry = re.sub(r"\([\w:]+\)\d+", "", entry).replace("warmset::v0::", "")  # enumerators, as casts of numbers
    for part in sorted(set(re.findall(r"\bscore::(\w+)", entry))) + outside:
        contextual = part in CONTEXTUAL
        if contextual:
            for function in ("list_contexts<", r"key_of\(", "keys<", "learn<", r"end_step\("):
                yield rf"\b{part}(<.*>)?::{function}"
        # clock has an order of its own, and keys order victims where there are some: values are for the guard
        if (not contextual and "select::clock" not in entry) or "guarded<" in entry:
            yield rf"\b{part}(<.*>)?::value\("
        yield rf"\b{part}(<.*>)?::on_demand\("
    yield r"\bselect::\w+(<.*>)?::next<"
    if "guarded<" in entry:
        for part in sorted(set(re.findall(r"\bguard::(\w+)", entry)) - {"all_of"}):
            yield rf"\bguard::{part}::permits\("


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--cxxfilt", default="c++filt")
    parser.add_argument("--kernels", type=int, default=1, help="how many there have to be, at least")
    parser.add_argument("--only", default="", metavar="REGEX", help="look at kernels of such names alone")
    parser.add_argument("--score", action="append", default=[], help="a further score that every kernel uses")
    parser.add_argument("--contains", action="append", default=[], metavar="KERNEL=REGEX",
                        help="what the PTX that a kernel of this name reaches has to contain; it runs no policy")
    parser.add_argument("--lacks", action="append", default=[], metavar="KERNEL=REGEX",
                        help="what the PTX that a kernel of this name reaches must not contain; with --contains")
    parser.add_argument("--stamps", help="a directory that remembers what has passed")
    parser.add_argument("--reads", action="append", default=[], help="a file or tree that the kernels include")
    parser.add_argument("file")
    parser.add_argument("options", nargs="*", help="of nvcc, after --")
    args = parser.parse_args()

    stamp = Stamp(args.stamps, args.nvcc, sys.argv[1:], [__file__, args.file, *args.reads])
    if stamp.passed():
        print("in order before; nothing has changed since")
        return 0
    with tempfile.TemporaryDirectory() as directory:
        output = os.path.join(directory, "kernels.ptx")
        # no flag that a user would need; -O0 keeps the functions apart
        result = subprocess.run([args.nvcc, "-std=c++20", "-ptx", "-Xcicc", "-O0", "-o", output, *args.options, args.file],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if result.returncode != 0 or result.stdout.strip():
            print(f"nvcc is not content:\n{result.stdout[:4000]}")
            return 1
        with open(output, encoding="utf-8") as ptx:
            functions = parse(ptx.read())

    names = demangle(list(functions), args.cxxfilt)
    entries = [name for name in functions if functions[name][0] and re.search(args.only, names[name])]
    failures = 0
    if len(entries) < args.kernels:
        failures += 1
        print(f"{len(entries)} kernels instead of {args.kernels}")
    for entry in entries:
        reached = reach(functions, entry)
        instructions = sum(functions[name][1] for name in reached)
        wanted = [text.split("=", 1)[1] for text in args.contains
                  if re.search(rf"\b{text.split('=', 1)[0]}\b", names[entry])]
        if args.contains:
            missing = [regex for regex in wanted if not any(re.search(regex, functions[name][3]) for name in reached)]
            banned = [text.split("=", 1)[1] for text in args.lacks
                      if re.search(rf"\b{text.split('=', 1)[0]}\b", names[entry])]
            found = [regex for regex in banned if any(re.search(regex, functions[name][3]) for name in reached)]
            if missing or not wanted:
                failures += 1
                print(f"hollow: {names[entry][:200]}\n  {instructions} instructions; not there: {missing or 'any demand'}")
            elif found:
                failures += 1
                print(f"forbidden: {names[entry][:200]}\n  there: {found}")
            else:
                print(f"{instructions} instructions, {len(reached)} functions: {names[entry][:120]}")
            continue
        missing = [pattern for pattern in wanted_functions(names[entry], args.score)
                   if not any(re.search(pattern, names[name].replace("warmset::v0::", "")) for name in reached)]
        if instructions < LEAST_INSTRUCTIONS or missing:
            failures += 1
            print(f"hollow: {names[entry][:200]}\n  {instructions} instructions; not called: {missing}")
        else:
            print(f"{instructions} instructions, {len(reached)} functions: {names[entry][:120]}")
    if failures == 0:
        stamp.write()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
