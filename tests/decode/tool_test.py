#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of warmset-decode from outside.

    tool_test.py TOOL SOURCE_DIR [unittest options]
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

TOOL = ""
SOURCE = ""
PROMPT = "The system call"


def run(*arguments, cwd=None):
    return subprocess.run([TOOL, *arguments], capture_output=True, cwd=cwd or SOURCE, timeout=300)


class Decodes(unittest.TestCase):
    def test_text_is_the_committed_one(self):
        with open(os.path.join(SOURCE, "tests/decode/golden.txt"), "rb") as f:
            golden = f.read()
        for more in ([], ["--slots", "4", "--lookahead", "4"], ["--slots", "100%", "--batch", "16"]):
            done = run("--prompt", PROMPT, "--tokens", "128", *more)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout, golden + b"\n")

    def test_json_says_what_ran(self):
        done = run("--tokens", "16", "--lookahead", "4", "--json", "-", "--recall")
        self.assertEqual(done.returncode, 0, done.stderr)
        facts = json.loads(done.stdout)
        self.assertEqual(facts["format"], "warmset-decode")
        self.assertEqual(facts["model"], "tinymoe-8x32")
        self.assertEqual(facts["slots"], 8)
        self.assertEqual(len(facts["tokens"]), 16)
        self.assertEqual(facts["health"]["state"], "active")
        self.assertEqual(facts["counters"]["format"], "warmset-counters")
        self.assertGreater(facts["speculation"]["loads"], 0)
        self.assertEqual([r["width"] for r in facts["recall"]], [1, 2, 4, 6, 8, 10, 12, 16])
        self.assertEqual([r["layer"] for r in facts["recall"][0]["layers"]], list(range(1, 8)))
        coverage = [r["coverage"] for r in facts["recall"]]
        self.assertEqual(coverage, sorted(coverage))

    def test_hash_does_not_depend_on_how_experts_are_served(self):
        hashes = set()
        for more in (["--slots", "100%"], ["--slots", "1"], ["--lookahead", "8", "--governor", "off"],
                     ["--fail-copies", "2", "--batch", "8"], ["--link-gbps", "0.5", "--lookahead", "4"]):
            done = run("--tokens", "24", "--logits-hash", *more)
            self.assertEqual(done.returncode, 0, done.stderr)
            hashes.add(done.stdout.splitlines()[-1])
        self.assertEqual(len(hashes), 1)
        self.assertTrue(hashes.pop().startswith(b"logits: "))

    def test_reports(self):
        done = run("--tokens", "8", "--lookahead", "4", "--health", "--stats", "--recall", "--phases")
        self.assertEqual(done.returncode, 0, done.stderr)
        for part in (b"health: active", b"warmset span=total health=active", b"precision / coverage",
                     b"a forward pass took", b"experts ", b"attention "):
            self.assertIn(part, done.stdout)
        done = run("--tokens", "8", "--lookahead", "4", "--hint-budget-kib", "1", "--health")
        self.assertIn(b"health: inert (governed)", done.stdout)

    def test_what_nobody_could_read_was_not_said(self):
        for more in ((), ("--stats",), ("--table", "--slots", "25%"), ("--logits-hash",)):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([TOOL, "--tokens", "4", *more], stdout=full, stderr=subprocess.PIPE, cwd=SOURCE,
                                      timeout=300, check=False)
            self.assertEqual(done.returncode, 2, more)
            self.assertIn(b"error: ", done.stderr)

    def test_lines_end_the_text(self):
        done = run("--tokens", "300", "--seed", "7", "--lines", "3", "--prompt", "First")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count(b"\n"), 3)

    def test_check_and_table(self):
        done = run("--check", "--tokens", "8")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(b"the same logits, bit by bit, over 8 decode steps", done.stdout)
        done = run("--table", "--tokens", "8", "--slots", "25%,16", "--lookahead", "4,8", "--link-gbps", "0.5,2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b"12 cells, 8 tokens each, one hash", done.stdout)

    def test_table_by_the_clock(self):
        done = run("--table", "--tokens", "8", "--slots", "25%", "--lookahead", "0,4", "--rounds", "3", "--json", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        facts = json.loads(done.stdout)
        self.assertEqual([(c["width"], c["is_again"]) for c in facts["cells"]], [(0, False), (0, True), (4, False)])
        for cell in facts["cells"]:
            self.assertEqual(len(cell["us_per_token"]), 3)
            self.assertGreater(cell["tokens_per_second"], 0)
        self.assertEqual(facts["cells"][0]["of_off"], 1)
        self.assertGreater(facts["cells"][2]["recall"], 0)

    def test_trace_can_be_replayed(self):
        replay = os.path.join(os.path.dirname(TOOL), "warmset-replay")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.wst")
            done = run("--tokens", "12", "--lookahead", "6", "--trace", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(os.listdir(folder), ["run.wst"])
            if os.path.exists(replay):
                done = subprocess.run([replay, "replay", path, "--policy", "lru", "--slots", "8", "--predictor",
                                       "router_lookahead", "--order", "recorded", "--no-oracles"], capture_output=True, timeout=300)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_given_tokens(self):
        with tempfile.TemporaryDirectory() as folder:
            tokens = os.path.join(folder, "tokens.jsonl")
            with open(tokens, "w") as f:
                f.write('{"s":0,"d":"a","tokens":[819,339,2369]}\n{"s":1,"d":"b","tokens":[56,13]}\n')
            trace = os.path.join(folder, "run.wst")
            done = run("--follow", tokens, "--recall", "--json", "-", "--prompt-tokens", "1", "--sequences", "0-1")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["recall"][0]["layers"][0]["layer"], 1)
            self.assertEqual(run("--follow", tokens, "--trace", trace, "--sequences", "1").returncode, 0)
            for line in ('{"tokens":[]}', "{", '{"tokens":[4096]}', '{"tokens":[-1]}', '{"tokens":["x"]}', "[]"):
                with open(tokens, "w") as f:
                    f.write(line + "\n")
                done = run("--follow", tokens)
                self.assertEqual(done.returncode, 2, line)
                self.assertIn(b"tokens.jsonl:1: ", done.stderr)


    def test_a_head_is_fitted_and_used(self):
        python = next((p for p in (sys.executable, "/usr/bin/python3")
                       if subprocess.run([p, "-c", "import numpy"], capture_output=True).returncode == 0), None)
        if python is None:
            self.skipTest("NumPy is missing")

        def fit(*arguments):
            return subprocess.run([python, os.path.join(SOURCE, "examples/retention/fit.py"), *arguments],
                                  capture_output=True, text=True, timeout=300)

        with tempfile.TemporaryDirectory() as folder:
            samples, other, head = (os.path.join(folder, name) for name in ("a.samples", "b.samples", "x.head"))
            text = ["--tokens", "400", "--ignore-eos", "--temperature", "1"]
            for path, seed in ((samples, "1"), (other, "2")):
                self.assertEqual(run(*text, "--seed", seed, "--retention-samples", path).returncode, 0)
            done = fit(samples, other, "-o", head)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("fitted to 8", done.stdout)
            again = head + ".again"
            self.assertEqual(fit(samples, other, "-o", again).returncode, 0)
            with open(head, "rb") as a, open(again, "rb") as b:
                self.assertEqual(a.read(), b.read())
            self.assertEqual(fit(samples, "-o", again, "--successor-weight", "0").returncode, 0)
            hashes, rates = set(), {}
            for name in (None, head, again):
                done = run(*text, "--seed", "1", "--slots", "16", "--json", "-", *(["--retention", name] if name else []))
                facts = json.loads(done.stdout)
                self.assertEqual(facts["retention"], name)
                hashes.add(facts["logits_hash"])
                rates[name] = facts["hit_rate"]
            self.assertEqual(len(hashes), 1)
            self.assertGreater(rates[head], rates[None])  # of the very text that it was fitted to
            self.assertEqual(len(set(rates.values())), 3)
            done = run("--check", "--tokens", "8", "--retention", head)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

            def refused(*arguments, says):
                done = fit(*arguments)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                self.assertIn(says, done.stderr)

            with open(samples, "rb") as f:
                whole = f.read()
            files = sorted(os.listdir(folder))
            refused("no-such-file", "-o", head, says="no-such-file: No such file")
            refused(head, "-o", again, says="no samples of")
            refused(samples, "-o", samples, says="would be replaced")
            refused(samples, "-o", folder, says="a directory")
            for bad, says in ((whole[:-2], "in a file of"), (whole[:8] + b"\2" + whole[9:], "version is 2"),
                              (whole[:-2] + b"\xff\xff", "an id of 65535"), (whole[:20], "no samples of"),
                              (whole[:12] + b"\0\0" + whole[14:], "0 layers")):
                with open(other, "wb") as f:
                    f.write(bad)
                refused(other, "-o", head, says=says)
            with open(other, "wb") as f:
                f.write(whole[:24] + b"another!" + whole[32:])
            refused(samples, other, "-o", head, says="of another model than")
            self.assertEqual(sorted(os.listdir(folder)), files)


class Cuda(unittest.TestCase):
    """On every machine: what runs there, or one line that says why it does not."""

    def test_text_or_a_reason(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            done = run("--device", "cuda", "--prompt", PROMPT, "--tokens", "16", "--lookahead", "4", "--json", path)
            if done.returncode == 0:
                with open(path) as f:
                    facts = json.load(f)
                self.assertEqual(facts["device"], "cuda")
                self.assertEqual(len(facts["tokens"]), 16)
                done = run("--device", "cuda", "--tokens", "16", "--health", "--stats", "--phases", "--logits-hash")
                self.assertEqual(done.returncode, 0, done.stderr)
                for part in (b"health: active", b"warmset span=total", b"a forward pass took"):
                    self.assertIn(part, done.stdout)
                return
            self.assertEqual(os.listdir(folder), [])
            for more in ((), ("--check",), ("--table",), ("--recall", "--lookahead", "4")):
                done = run("--device", "cuda", *more)
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertEqual(done.stdout, b"")
                self.assertEqual(done.stderr.count(b"\n"), 1, done.stderr)
                self.assertTrue(done.stderr.startswith(b"warmset-decode: error: --device cuda: "), done.stderr)
                self.assertRegex(done.stderr, b"built without CUDA|no GPU can be used")


class Refuses(unittest.TestCase):
    def refused(self, *arguments, says):
        done = run(*arguments)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertEqual(done.stdout, b"")
        self.assertEqual(done.stderr.count(b"\n"), 1, done.stderr)
        self.assertTrue(done.stderr.startswith(b"warmset-decode: error: "), done.stderr)
        self.assertIn(says.encode(), done.stderr)

    def test_options(self):
        self.refused("--no-such", says="--no-such")
        self.refused("--slots", "0", says="'0' is no whole number between 1 and 32")
        self.refused("--slots", "33", says="'33'")
        self.refused("--slots", "x%", says="'x' is no number")
        self.refused("--slots", "25%,50%", says="--slots")
        self.refused("--lookahead", "33", says="--lookahead")
        self.refused("--lookahead", "-1", says="--lookahead")
        self.refused("--predictor", "oracle", says="there is no 'oracle'; there are ")
        self.refused("--device", "abacus", says="there is no 'abacus'; there are cpu, cuda")
        self.refused("--governor", "maybe", says="--governor")
        self.refused("--prompt", "", says="the prompt is empty")
        self.refused("--prompt", "x" * 9000, "--tokens", "1", says="more than the context of 2048")
        self.refused("--tokens", "0", says="--tokens")
        self.refused("--tokens", "2048", says="more than the context of 2048")
        self.refused("--tokens", "-3", says="--tokens")
        self.refused("--batch", "0", says="--batch")
        self.refused("--temperature", "nan", says="--temperature")
        self.refused("--fail-copies", "101", says="--fail-copies")
        self.refused("--fail-copies", "100", says="does not arrive")
        self.refused("--link-gbps", "-1", says="--link-gbps")
        self.refused("--link-gbps", "0.0001", says="--link-gbps")
        self.refused("--compute-us", "inf", says="--compute-us")
        self.refused("--check", "--json", "-", says="--check")
        self.refused("--check", "--table", says="one of them")
        self.refused("--table", "--slots", "1,,2", says="empty part")
        self.refused("--table", "--json", "-", says="--table")
        self.refused("--rounds", "3", says="--rounds")
        self.refused("--table", "--rounds", "0", says="--rounds")
        self.refused("--device", "cuda", "--recall", says="it needs --lookahead")
        self.refused("--sequences", "3-2", "--follow", "README.md", says="--sequences")
        self.refused("--follow", "no-such-file", says="no-such-file")
        for seed in ("-1", "99999999999999999999999", "1.5", "0x10"):
            self.refused("--seed", seed, says="--seed: '" + seed + "'")
        # what would be passed over is refused
        self.refused("--sequences", "5", says="--follow")
        self.refused("--prompt-tokens", "5", says="--follow")
        self.refused("--check", "--slots", "50%", says="--slots")
        self.refused("--check", "--lookahead", "8", says="--lookahead")
        self.refused("--check", "--follow", "README.md", says="--follow")
        self.refused("--table", "--follow", "README.md", says="--follow")
        self.refused("--logits-hash", "--follow", "README.md", says="--logits-hash")
        names = run("--predictor", "oracle").stderr.decode().split("there are ")[1].strip().split(", ")
        self.assertEqual(len(names), len(set(names)))
        with tempfile.TemporaryDirectory() as folder:
            blank = os.path.join(folder, "blank.jsonl")
            with open(blank, "w", encoding="ascii") as f:
                f.write("\n\n")
            self.refused("--follow", blank, says="no token list")

    def test_models(self):
        self.refused("--model", "no-such.gguf", says="no-such.gguf: No such file or directory")
        self.refused("--model", ".", says=".: a directory")
        self.refused("--model", "README.md", says="README.md: not a GGUF file")
        with tempfile.TemporaryDirectory() as folder:
            cut = os.path.join(folder, "cut.gguf")
            with open(os.path.join(SOURCE, "examples/data/tinymoe-8x32.gguf"), "rb") as f:
                whole = f.read()
            with open(cut, "wb") as f:
                f.write(whole[:-1])
            self.refused("--model", cut, says="lies outside of the file")

    def test_retention_heads(self):
        head = os.path.join(SOURCE, "examples/data/tinymoe-8x32.retention")
        self.refused("--retention", "no-such.head", says="no-such.head: No such file or directory")
        self.refused("--retention", "README.md", says="README.md: not a retention head")
        self.refused("--check", "--retention-samples", "-", says="--retention-samples")
        with open(head, "rb") as f:
            whole = f.read()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.head")
            for bad, says in ((whole[:-1], "a head of "), (whole[:3000] + b"\xff\xff" + whole[3002:], "checksum"),
                              (b"", "empty"), (whole[:24] + b"another!" + whole[32:], "checksum")):
                with open(path, "wb") as f:
                    f.write(bad)
                self.refused("--retention", path, "--json", os.path.join(folder, "out"), says=says)
            self.assertEqual(os.listdir(folder), ["x.head"])

    def test_outputs_are_whole_or_not_there(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out")
            self.refused("--json", path, "--trace", path, says="two outputs")
            self.refused("--json", folder, says="a directory")
            for option, source in (("--model", "examples/data/tinymoe-8x32.gguf"),
                                   ("--retention", "examples/data/tinymoe-8x32.retention"), ("--follow", "README.md")):
                copy = os.path.join(folder, "input")
                shutil.copyfile(os.path.join(SOURCE, source), copy)
                with open(copy, "rb") as f:
                    before = f.read()
                for output in ("--json", "--trace", "--retention-samples"):
                    self.refused(option, copy, output, copy, says="output '" + copy + "' is the ")
                with open(copy, "rb") as f:
                    self.assertEqual(f.read(), before)
                os.remove(copy)
            self.refused("--trace", os.path.join(folder, "no", "x"), says="its folder does not exist")
            with open(path, "w") as f:
                f.write("before")
            self.refused("--json", path, "--fail-copies", "100", says="does not arrive")
            with open(path) as f:
                self.assertEqual(f.read(), "before")
            self.assertEqual(os.listdir(folder), ["out"])

    def test_help(self):
        done = run("--help")
        self.assertEqual(done.returncode, 0)
        for option in (b"--model", b"--lookahead", b"--fail-copies", b"--table", b"Predictors: "):
            self.assertIn(option, done.stdout)


if __name__ == "__main__":
    TOOL = os.path.abspath(sys.argv[1])
    SOURCE = os.path.abspath(sys.argv[2])
    unittest.main(argv=[sys.argv[0]] + sys.argv[3:])
