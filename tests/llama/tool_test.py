#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The programs over llama.cpp from outside, and what warmset-replay predicts of them.

    tool_test.py FOLDER_OF_THE_PROGRAMS REPLAY_TOOL SOURCE_DIR [unittest options]
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

BIN = ""
REPLAY = ""
SOURCE = ""
SMALL = "examples/data/tinymoe-8x32.gguf"


def run(tool, *arguments, status=0):
    path = REPLAY if tool == "replay" else os.path.join(BIN, "warmset-llama-" + tool)
    done = subprocess.run([path, *map(str, arguments)], capture_output=True, cwd=SOURCE, timeout=900, text=True)
    assert done.returncode == status, f"{tool} {arguments}: {done.returncode}\n{done.stderr}"
    return done


def models():
    """The bundled model, and the larger one where it is."""
    found = [SMALL]
    at = os.environ.get("WARMSET_MODELS")
    folder = SOURCE
    while at is None and os.path.dirname(folder) != folder:
        if os.path.isdir(os.path.join(folder, "shared", "model")):
            at = os.path.join(folder, "shared", "model")
        folder = os.path.dirname(folder)
    large = os.path.join(at, "tinymoe-12x64.gguf") if at else ""
    return found + [large] if os.path.exists(large) else found


class Tune(unittest.TestCase):
    def test_predicted_hit_rate_is_the_measured_one(self):
        text = ["--text", "LICENSE", "--length", 384, "--batch", 64, "--threads", 1]
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "t.wst")
            # the second has room for all experts
            for model, mib in [(m, mib) for m, mibs in zip(models(), ((2, 8), (10,))) for mib in mibs]:
                run("trace", model, *text, "-o", trace)
                told = json.loads(run("replay", "tune", model, "--trace", trace, "--vram-mib", mib, "--link", 16,
                                      "--json", "-").stdout)
                # as the pools of a shared group cannot be served here, the layers' own are compared
                best = next(r for r in told["recommendations"]
                            if r["phase"] == "decode" and r["pool"] == "per-layer")
                prompt = next(r for r in told["recommendations"]
                              if r["phase"] == "prefill" and r["pool"] == "per-layer")
                measured = json.loads(run("stream", model, *text, "--slots", best["slots"], "--policy",
                                          best["policy"], "--json", "-").stdout)["pool"]
                difference = measured["decode"]["hit_rate"] - best["hit_rate"]
                print(f"llama.cpp: tune, {os.path.basename(model)}, {mib} MiB: {best['policy']} in {best['slots']} slots, predicted "
                      f"{best['hit_rate']:.4f}, measured {measured['decode']['hit_rate']:.4f}",
                      flush=True)
                self.assertLess(abs(difference), 0.005)
                if prompt["policy"] == best["policy"]:
                    self.assertLess(abs(measured["prefill"]["hit_rate"] - prompt["hit_rate"]), 0.005)

    def test_a_trace_is_read_by_the_replay_tool(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "t.wst.zst")
            done = run("trace", SMALL, "--prompt", "The system call", "--prompt", "A kernel", "--generate", 8, "-o", trace,
                       "--weights", "--cost")
            self.assertIn("no benchmark", done.stdout)
            self.assertIn("times as long", done.stdout)
            facts = json.loads(run("replay", "info", trace, "--json", "-").stdout)
            self.assertEqual(facts["model"], "tinymoe-8x32")
            run("replay", "replay", trace, "--slots", 8, "--policy", "lru,successor")


class Streams(unittest.TestCase):
    def test_check_says_what_it_compared(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "s.json")
            done = run("stream", SMALL, "--text", "LICENSE", "--length", 64, "--prompt-tokens", 32, "--batch", 16,
                       "--slots", "25%", "--check", "--all-outputs", "--threads", 1, "--json", path)
            self.assertIn("logits of 64 rows: byte-identical to stock llama.cpp", done.stdout)
            with open(path) as f:
                facts = json.load(f)
            self.assertTrue(facts["check"]["logits_equal"])
            self.assertEqual(facts["slots"], 8)
            self.assertEqual(facts["pool"]["overflow_steps"], 16)
            self.assertEqual(facts["pool"]["served_steps"], 8 * 32)
            self.assertGreater(facts["check"]["speed"]["pool_to_idle_callback"], 0)


class Errors(unittest.TestCase):
    def refused(self, says, tool, *arguments):
        done = run(tool, *arguments, status=2)
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("error: ", done.stderr)
        self.assertIn(says, done.stderr)

    def test_wrong_inputs_are_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out.wst")
            text = os.path.join(folder, "text.gguf")
            with open(text, "w") as f:
                f.write("no model")
            cut = os.path.join(folder, "cut.gguf")
            with open(os.path.join(SOURCE, SMALL), "rb") as whole, open(cut, "wb") as f:
                f.write(whole.read(3_000_000))
            prompt = ["--prompt", "a"]
            for tool, more in (("trace", ["-o", out]), ("stream", [])):
                self.refused("not a GGUF file", tool, text, *prompt, *more)
                self.refused("No such file", tool, os.path.join(folder, "none.gguf"), *prompt, *more)
                self.refused("a directory", tool, folder, *prompt, *more)
                self.refused("llama.cpp cannot load it", tool, cut, *prompt, *more)
                self.refused("nothing to compute", tool, SMALL, *more)
                self.refused("No such file", tool, SMALL, "--text", os.path.join(folder, "none.txt"), *more)
                self.refused("more than the model's context", tool, SMALL, *prompt, "--generate", 100000, *more)
                self.refused("--batch: 0", tool, SMALL, *prompt, "--batch", 0, *more)
            self.refused("3 slots are fewer than the k = 4 experts", "stream", SMALL, *prompt, "--slots", 3)
            self.refused("there is no 'nix'", "stream", SMALL, *prompt, "--policy", "nix")
            self.refused("does not exist", "trace", SMALL, *prompt, "-o", os.path.join(folder, "no", "out.wst"))
            self.assertFalse(os.path.exists(out))

    def test_help_is_everywhere(self):
        for tool in ("trace", "stream"):
            self.assertIn("Usage", run(tool, "--help").stdout)
        self.assertIn("mean nothing", " ".join(run("trace", "--help").stdout.split()))


if __name__ == "__main__":
    BIN, REPLAY, SOURCE = map(os.path.abspath, sys.argv[1:4])
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
