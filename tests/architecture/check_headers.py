#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the public headers against the order of the rooms and against the rules for host-device code.

    check_headers.py <include directory>

Prints one line per violation and exits with 1 if there is any.

1. A room includes only the rooms that ROOMS allows it.
2. Other than that, headers include the standard library and nothing; CUDA headers only in cuda/, cuda.hpp, cuda.cuh.
3. A .hpp never includes a .cuh.
4. The body of a WARMSET_HD function calls nothing of std:: but casts, move and forward: nvcc turns a call to a
   function without the annotation into an empty kernel, with a warning at most.
5. Rooms whose types are passed to kernels use no [[no_unique_address]]: nvcc 13 gives such an object another size in a
   kernel's parameters than the host gives it, without a word.
"""

import os
import re
import sys

# ---- the order ------------------------------------------------------------------------------------------------

KINDS = ("score", "select", "guard", "admit")

# What a room may include besides itself. "policy!concept" is the part of policy/ that defines concepts.
ROOMS = {
    "core": set(),
    **{f"policy/{kind}": {"core", "policy!concept"} for kind in KINDS},
    "policy": {"core", *(f"policy/{kind}" for kind in KINDS)},
    "predict": {"core"},
    "gate": {"core"},
    "table": {"core", "policy", *(f"policy/{kind}" for kind in KINDS), "predict"},
    "move": {"core", "policy", *(f"policy/{kind}" for kind in KINDS), "predict", "table"},
    "signal": {"core", "table", "move"},
}
_BEFORE_CUDA = set(ROOMS)
ROOMS["cuda"] = set(_BEFORE_CUDA)
ROOMS["observe"] = set(_BEFORE_CUDA)
ROOMS["trace"] = _BEFORE_CUDA | {"observe"}
_HOST = _BEFORE_CUDA | {"observe", "trace"}
ROOMS["cache.hpp"] = set(_HOST)
ROOMS["concurrent.hpp"] = _HOST | {"cache.hpp"}
ROOMS["warmset.hpp"] = _HOST | {"cache.hpp", "concurrent.hpp"}
ROOMS["cuda.hpp"] = _HOST | {"cache.hpp", "warmset.hpp", "cuda"}
ROOMS["cuda.cuh"] = ROOMS["cuda.hpp"] | {"cuda.hpp"}

MAY_INCLUDE_CUDA = {"cuda", "cuda.hpp", "cuda.cuh"}

# ---- what counts as what --------------------------------------------------------------------------------------

STANDARD = set("""
algorithm any array atomic barrier bit bitset cassert cctype cerrno cfenv cfloat charconv chrono cinttypes climits
clocale cmath codecvt compare complex concepts condition_variable coroutine csetjmp csignal cstdarg cstddef cstdint
cstdio cstdlib cstring ctime cuchar cwchar cwctype deque exception execution filesystem forward_list fstream
functional future initializer_list iomanip ios iosfwd iostream istream iterator latch limits list locale map memory
memory_resource mutex new numbers numeric optional ostream queue random ranges ratio regex scoped_allocator semaphore
set shared_mutex source_location span sstream stack stdexcept stop_token streambuf string string_view system_error
thread tuple type_traits typeindex typeinfo unordered_map unordered_set utility valarray variant vector version
""".split())

CUDA_HEADER = re.compile(r"^(cuda(_\w+)?\.h|cuda(_\w+)?\.hpp|cuda/|device_\w+\.h|vector_types\.h|driver_types\.h|"
                         r"nv/target|nvtx3/|cooperative_groups(/|\.h)|cub/|thrust/|sm_\w+\.h)")

# Functions and types whose members are not annotated. Anything else of std:: that is *called* is found by its call.
UNANNOTATED = re.compile(r"\bstd::(min|max|clamp|array|optional|span|tuple|pair|variant|string_view|countr_zero|"
                         r"countl_zero|countr_one|countl_one|popcount|bit_width|bit_ceil|bit_floor|has_single_bit|"
                         r"bit_cast|rotl|rotr|swap|exchange|abs|numeric_limits|is_constant_evaluated|ranges)\b")
CALL = re.compile(r"\bstd::(\w+)\s*(?:<[^;{}()]*>)?\s*\(")
HARMLESS_CALL = re.compile(r"^(move|forward|declval|byte|\w+_t)$")

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<([^>]+)>)', re.M)


def room_of(path):
    """The room of a header, given relative to include/warmset; None for a place that no room has."""
    parts = path.split("/")
    if len(parts) == 1:
        return path if path in ROOMS else None
    if parts[0] == "policy" and len(parts) > 2:
        room = f"policy/{parts[1]}"
        return room if room in ROOMS else None
    return parts[0] if parts[0] in ROOMS else None


def defines_concepts(path):
    return "concept" in os.path.basename(path)


def without_comments_and_strings(text):
    """The same text with comments and literals blanked, so that line numbers and offsets stay."""

    def blank(match):
        found = match.group(0)
        if found[0] in "\"'":
            return found[0] + " " * (len(found) - 2) + found[0]
        return re.sub(r"[^\n]", " ", found)

    # Digit separators are no quotes: 1'000.
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])*\'', blank, text, flags=re.S)


def matching(text, start, opening, closing):
    """The offset after the bracket that closes the one at start."""
    depth = 0
    for position in range(start, len(text)):
        if text[position] == opening:
            depth += 1
        elif text[position] == closing:
            depth -= 1
            if depth == 0:
                return position + 1
    return len(text)


def function_end(text, start):
    """The end of the function that starts with the annotation at start: of its body, or of its declaration."""
    position = start
    while position < len(text):
        character = text[position]
        if character == ";":
            return position
        if character == "(":
            position = matching(text, position, "(", ")")
            continue
        if character == "{":
            position = matching(text, position, "{", "}")
            # A brace in a member initialiser or in a requires clause is followed by more of the function.
            following = text[position:].lstrip()[:1]
            if following not in ("{", ",", ";", "&", "|"):
                return position
            continue
        position += 1
    return position


def annotated_ranges(text):
    for found in re.finditer(r"\bWARMSET_HD\b", text):
        line = text.rfind("\n", 0, found.start()) + 1
        if re.match(r"[ \t]*#", text[line:found.start() + 1]):
            continue  # the macro's own definition
        yield found.start(), function_end(text, found.end())


# ---- the checks -----------------------------------------------------------------------------------------------


def check_include(path, room, target):
    """A sentence about what is wrong with warmset/<target> in warmset/<path>, or None."""
    target_room = room_of(target)
    if target_room is None:
        return f"includes {target}, which is in no known room"
    if path.endswith(".hpp") and target.endswith(".cuh"):
        return f"is read by host compilers and includes {target}"
    if target_room == room:
        return None
    allowed = ROOMS[room]
    if target_room in allowed:
        return None
    if "policy!concept" in allowed and target_room.split("/")[0] == "policy" and defines_concepts(target):
        if room.startswith("policy/") and target_room != "policy":
            return f"includes {target}; the kinds of policy/ do not include each other"
        return None
    return f"includes {target}, and {room} may not include {target_room}"


PASSED_TO_KERNELS = {"core", "policy", "predict", "table", "cuda"}


def check_header(include_directory, path):
    with open(os.path.join(include_directory, "warmset", path), encoding="utf-8") as source:
        original = source.read()
    text = without_comments_and_strings(original)

    def line_of(position):
        return original.count("\n", 0, position) + 1

    room = room_of(path)
    if room is None:
        yield 1, "is in no known room; tests/architecture/check_headers.py lists them"
        return

    if not re.search(r"^[ \t]*#[ \t]*pragma[ \t]+once\b", text, re.M):
        yield 1, "has no #pragma once"

    for found in INCLUDE.finditer(original):
        if not text[found.start():found.end()].lstrip().startswith("#"):
            continue  # within a comment
        line = line_of(found.start() + len(found.group(0)) - len(found.group(0).lstrip()))
        quoted, angled = found.groups()
        name = quoted or angled
        if name.startswith("warmset/"):
            target = os.path.normpath(name[len("warmset/"):])
        elif quoted is not None:
            target = os.path.normpath(os.path.join(os.path.dirname(path), name))
        elif name in STANDARD:
            continue
        elif CUDA_HEADER.match(name):
            if room not in MAY_INCLUDE_CUDA:
                yield line, f"includes <{name}>; CUDA headers belong to cuda/ alone"
            continue
        else:
            yield line, f"includes <{name}>, which is not of the standard library"
            continue
        if not os.path.exists(os.path.join(include_directory, "warmset", target)):
            yield line, f"includes {name}, which does not exist"
            continue
        problem = check_include(path, room, target)
        if problem:
            yield line, problem

    if room.split("/")[0] in PASSED_TO_KERNELS:
        for found in re.finditer(r"\bno_unique_address\b", text):
            yield line_of(found.start()), "uses no_unique_address, which nvcc lays out in another way in kernel parameters"

    for start, end in annotated_ranges(text):
        body = text[start:end]
        positions = {found.start(): found.group(0) for found in UNANNOTATED.finditer(body)}
        for found in CALL.finditer(body):
            if not HARMLESS_CALL.match(found.group(1)):
                positions.setdefault(found.start(), f"std::{found.group(1)}")
        for position, what in sorted(positions.items()):
            yield line_of(start + position), f"uses {what} in a WARMSET_HD function"


def headers(include_directory):
    root = os.path.join(include_directory, "warmset")
    for directory, _, files in os.walk(root):
        for name in files:
            if name.endswith((".hpp", ".cuh", ".h", ".inl", ".ipp")):
                yield os.path.relpath(os.path.join(directory, name), root).replace(os.sep, "/")


def violations(include_directory):
    for path in sorted(headers(include_directory)):
        for line, problem in check_header(include_directory, path):
            yield f"include/warmset/{path}:{line}: {problem}"


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    found = list(violations(sys.argv[1]))
    for violation in found:
        print(violation)
    count = len(list(headers(sys.argv[1])))
    print(f"{count} headers, {len(found)} violations")
    return 1 if found or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
