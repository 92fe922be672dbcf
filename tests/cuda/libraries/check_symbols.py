#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Looks at what two shared libraries with the same kernels export.

No kernel, nor the stub by which the host launches it, may be among it: the dynamic linker would make one library launch
the other's. What launches kernels has to bear its library's tag of version and architectures, and the tags differ where
the architectures do.
"""

import argparse
import re
import subprocess
import sys

TAG = re.compile(r"warmset::v0::cuda::(v\d+_\d+_\d+_sm[\w]*)::")


def exported(nm, library):
    output = subprocess.run([nm, "--dynamic", "--defined-only", "--demangle", library], stdout=subprocess.PIPE, text=True,
                            check=True).stdout
    return [line.split(" ", 2)[2] for line in output.splitlines() if line.count(" ") >= 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nm", default="nm")
    parser.add_argument("libraries", nargs=2)
    args = parser.parse_args()
    failures = 0
    tags = []
    for library in args.libraries:
        names = exported(args.nm, library)
        kernels = [name for name in names if re.search(r"\b\w+_kernel\b", name)]
        for name in kernels:
            print(f"{library} exports {name[:160]}")
        untagged = [name for name in names if re.search(r"\b(device_pools|host_directed)\b", name) and not TAG.search(name)]
        for name in untagged:
            print(f"{library} exports without a tag: {name[:160]}")
        found = sorted({tag for name in names for tag in TAG.findall(name)})
        print(f"{library}: {len(names)} symbols, tags {', '.join(found) or 'none'}")
        failures += len(kernels) + len(untagged) + (len(found) != 1)
        tags.append(found)
    if tags[0] == tags[1]:
        print("libraries for different architectures have the same tag")
        failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
