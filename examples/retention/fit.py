#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fits a retention head to samples of a model's routers, and writes the file that warmset-decode --retention reads.

    warmset-decode --model M --follow TOKENS --retention-samples S
    fit.py S... -o HEAD
    warmset-decode --model M --retention HEAD

The head is one matrix per layer, found by ridge regression on the router's input. What it is fitted to, for each step and
expert, is 27/32 to the number of steps until the next use, less what the successor score says of it already. Files are
taken in their order, as one run. Needs NumPy. docs/retention.md has both files, byte by byte.
"""

import argparse
import os
import struct
import sys
import tempfile

import numpy as np

HEADER = struct.Struct("<8sIIQQIIQ")  # magic, version, layers, size, fingerprint, hidden, experts, k
VERSION = 1
INPUT_BOUND = 4095
ONE = 65536  # a use, in the units of the successor score
DISCOUNT = 27 / 32
ALONE = 256  # a head that stands alone is so much louder than the successor score
CHUNK = 8192
MASK = (1 << 64) - 1


class InputError(Exception):
    """What the person who called has to change. The message names the file."""


class Samples:
    """A file of warmset-decode --retention-samples, not read into memory."""

    def __init__(self, path):
        try:
            size = os.path.getsize(path)
            with open(path, "rb") as f:
                head = f.read(HEADER.size)
        except OSError as e:
            raise InputError(f"{path}: {e.strerror}")
        if len(head) < HEADER.size or head[:8] != b"WSAMPLE\n":
            raise InputError(f"{path}: no samples of warmset-decode --retention-samples")
        _, version, self.layers, whole, self.fingerprint, self.hidden, self.experts, self.k = HEADER.unpack(head)
        if version != VERSION:
            raise InputError(f"{path}: version is {version}; version {VERSION} is read")
        if whole != size:
            raise InputError(f"{path}: samples of {whole} bytes in a file of {size}")
        if not (0 < self.layers < 65536 and 0 < self.hidden < 65536 and 0 < self.k <= self.experts < 65536):
            raise InputError(f"{path}: {self.layers} layers of {self.experts} experts, {self.k} a token, {self.hidden} hidden")
        record = np.dtype([("input", "<i2", self.hidden), ("ids", "<u2", self.k)])
        row = record.itemsize * self.layers
        if (size - HEADER.size) % row != 0 or size == HEADER.size:
            raise InputError(f"{path}: {size - HEADER.size} bytes are no whole number of tokens of {row}")
        self.n_tokens = (size - HEADER.size) // row
        self.rows = np.memmap(path, record, "r", HEADER.size, (self.n_tokens, self.layers))
        self.path = path

    def facts(self):
        return (self.fingerprint, self.layers, self.experts, self.k, self.hidden)

    def ids(self):
        """[tokens][layers][k]."""
        ids = self.rows["ids"].astype(np.int64)
        if ids.max() >= self.experts:
            raise InputError(f"{self.path}: an id of {ids.max()} of {self.experts} experts")
        return ids


def discounted_next_use(ids, experts):
    """[layers][tokens][experts]: DISCOUNT to the steps between a token and the next use after it; 1 = at the next one."""
    n, layers, _ = ids.shape
    rows = np.arange(layers)[:, None]
    value = np.empty((layers, n, experts), np.float32)
    ahead = np.zeros((layers, experts), np.float32)
    for t in range(n - 1, -1, -1):
        value[:, t] = ahead
        ahead *= np.float32(DISCOUNT)
        ahead[rows, ids[t]] = 1
    return value


def successor_keys(ids, experts):
    """[layers][tokens][experts] keys of the successor score of order 2, as docs/successor.md has it; all layers abreast."""
    n, layers, k = ids.shape
    rows = np.arange(layers)[:, None]
    table = np.zeros((layers, experts, experts), np.int32)
    count = np.zeros((layers, experts), np.int32)
    predicted = np.zeros((layers, experts), np.int32)
    used_at = np.full((layers, experts), -9)  # step of the last use
    before = before_that = np.zeros((layers, 0), np.int64)
    shift = 4 + max(k - 1, 0).bit_length()
    keys = np.empty((layers, n, experts), np.int32)

    def learn(contexts, counts, error, by):
        cells = table[rows, contexts]
        cells += np.where(counts[:, :, None], (error + (1 << (by - 1)) >> by)[:, None], 0)
        table[rows, contexts] = cells.clip(-32767, 32767, out=cells)

    only_before_that = np.zeros((layers, 0), bool)
    for t in range(n):
        used = ids[t]
        used_at[rows, used] = t
        only_before = used_at[rows, before] != t
        count -= count >> 5
        count[rows, used] += 2047
        key = (count >> 1) + (count >> 3) + (table[rows, used].sum(1, dtype=np.int32) << 4)
        key += (table[rows, before] * only_before[:, :, None]).sum(1, dtype=np.int32) << 3
        keys[:, t] = key
        value = (key >> 4).clip(0, 4096)
        if t:
            error = value * 27 >> 5
            error[rows, used] = 4096
            error -= predicted
            learn(before, np.ones(before.shape, bool), error, shift)
            learn(before_that, only_before_that, error, shift + 1)
        # Of what was used before, that which was not used now again.
        predicted, before_that, only_before_that, before = value, before, only_before, used
    return keys


def fit_layer(files, layer, goal, ridge):
    """Weights [experts][hidden] and bias [experts] of one layer, in the units of the goal [tokens][experts]."""
    hidden, experts = files[0].hidden, files[0].experts
    square, product = np.zeros((hidden, hidden)), np.zeros((hidden, experts))
    total, goals, at = np.zeros(hidden), goal.mean(0, dtype=np.float64), 0
    for f in files:
        for first in range(0, f.n_tokens, CHUNK):
            x = f.rows[first:first + CHUNK, layer]["input"].astype(np.float64)
            square += x.T @ x
            product += x.T @ (goal[at:at + len(x)] - goals)
            total += x.sum(0)
            at += len(x)
    mean = total / at
    square -= at * np.outer(mean, mean)
    variance = np.diag(square).copy()
    # An input that is always the same says nothing; without this the matrix could not be solved.
    square[np.diag_indices(hidden)] += ridge * variance + 1e-9 * variance.sum() + 1
    w = np.linalg.solve(square, product)
    return w.T, goals - mean @ w


def quantised(w, bias):
    """The largest shift at which no key overflows, and the integers at that shift."""
    most = max(np.abs(w).max(), 1e-12)
    reach = max((np.abs(w).sum(1) * INPUT_BOUND + np.abs(bias)).max(), 1e-12)
    rounding = INPUT_BOUND * w.shape[1] + 1
    shift = int(np.floor(min(np.log2(32767 / most), np.log2((2 ** 31 - 1 - rounding) / reach), 30)))
    if shift < 0:
        raise InputError("the keys of a layer do not fit into 32 bits")
    return shift, np.rint(bias * 2.0 ** shift).astype("<i4"), np.rint(w * 2.0 ** shift).astype("<i2")


def checksum(data):
    """That of docs/trace-format.md."""
    lanes = [1, 2, 3, 4]

    def mixed(lane, word):
        lane = (lane ^ word) * 0x9E3779B97F4A7C15 & MASK
        return (lane << 29 | lane >> 35) & MASK

    padded = data + bytes(-len(data) % 8)
    for i, (word,) in enumerate(struct.iter_unpack("<Q", padded)):
        lanes[i % 4] = mixed(lanes[i % 4], word)
    total = len(data)
    for lane in lanes:
        total = mixed(total, lane)
    return total ^ total >> 32


def head_bytes(of, layers):
    body = b""
    for shift, bias, w in layers:
        body += struct.pack("<I", shift) + bias.tobytes() + w.tobytes()
    size = HEADER.size + len(body) + 8
    data = HEADER.pack(b"WRETAIN\n", VERSION, of.layers, size, of.fingerprint, of.hidden, of.experts, 0) + body
    return data + struct.pack("<Q", checksum(data))


def write(path, data):
    """All of it or nothing."""
    folder = os.path.dirname(os.path.abspath(path))
    try:
        if os.path.isdir(path):
            raise InputError(f"{path}: a directory")
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as f:
            try:
                f.write(data)
                os.chmod(f.name, 0o644)
                os.replace(f.name, path)
            except OSError:
                os.unlink(f.name)
                raise
    except OSError as e:
        raise InputError(f"{path}: {e.strerror}")


def at_least_zero(text):
    value = float(text)
    if not 0 <= value < 1e6:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1e6")
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("samples", nargs="+", help="files of warmset-decode --retention-samples, of one model")
    parser.add_argument("-o", "--output", required=True, help="the head")
    parser.add_argument("--successor-weight", type=at_least_zero, default=0.5, metavar="W",
                        help="weight of the successor score beside the head; 0 = the head alone (default: %(default)s)")
    parser.add_argument("--ridge", type=at_least_zero, default=0.3, metavar="R",
                        help="penalty of a weight, in variances of its input (default: %(default)s)")
    options = parser.parse_args()
    files = [Samples(path) for path in options.samples]
    for f in files:
        if f.facts() != files[0].facts():
            raise InputError(f"{f.path}: samples of another model than {files[0].path}")
        if os.path.exists(options.output) and os.path.samefile(f.path, options.output):
            raise InputError(f"{options.output}: the samples would be replaced")
    n, experts, weight = files[0].layers, files[0].experts, options.successor_weight
    ids = np.concatenate([f.ids() for f in files])
    goal = discounted_next_use(ids, experts) * np.float32(ONE)
    if weight:
        goal -= np.float32(weight) * successor_keys(ids, experts)
    scale = 1 / weight if weight else ALONE
    layers = []
    for layer in range(n):
        w, bias = fit_layer(files, layer, goal[layer], options.ridge)
        layers.append(quantised(w * scale, bias * scale))
        if sys.stderr.isatty():
            print(f"\rlayer {layer + 1} of {n}", end="" if layer + 1 < n else "\n", file=sys.stderr, flush=True)
    data = head_bytes(files[0], layers)
    write(options.output, data)
    print(f"{options.output}: {len(data)} bytes, fitted to {sum(f.n_tokens for f in files)} tokens")


if __name__ == "__main__":
    try:
        main()
    except InputError as e:
        print(f"fit.py: error: {e}", file=sys.stderr)
        sys.exit(2)
