# SPDX-License-Identifier: Apache-2.0
"""Remembers that a check has passed, so that a second run of the tests compiles nothing again.

A check that depends on nothing but text and a compiler gives the same answer as long as both are the same. Only passes are
remembered; whatever changes (a header, the case, the check itself, the compiler) changes the key.
"""

import hashlib
import os
import subprocess


def _files(paths):
    for path in paths:
        if os.path.isfile(path):
            yield path
        for directory, directories, names in os.walk(path):
            directories.sort()
            for name in sorted(names):
                yield os.path.join(directory, name)


class Stamp:
    """One check: `words` are what it is called with, `paths` the files and trees that it reads."""

    def __init__(self, directory, compiler, words, paths):
        self.path = None
        if not directory:
            return
        version = subprocess.run([compiler, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        key = hashlib.sha256(version.stdout)
        for word in words:
            key.update(word.encode() + b"\0")
        for path in _files([__file__, *paths]):
            with open(path, "rb") as file:
                key.update(path.encode() + b"\0" + hashlib.sha256(file.read()).digest())
        self.path = os.path.join(directory, key.hexdigest())

    def passed(self):
        return self.path is not None and os.path.exists(self.path)

    def write(self):
        if self.path is not None:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            with open(self.path, "w", encoding="utf-8"):
                pass
