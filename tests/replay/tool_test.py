#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of warmset-replay from outside.

    tool_test.py TOOL SOURCE_DIR [unittest options]
"""

import csv
import io
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

TOOL = ""
SOURCE = ""

LAYER_BYTES = (100, 100, 60)
EXPERTS = 8
K = 2


class Event:
    """One step: the ids of one layer for one micro-batch."""

    def __init__(self, turn, phase, step, layer, tokens):
        self.turn, self.phase, self.step, self.layer, self.tokens = turn, phase, step, layer, tokens

    def distinct(self):
        """Distinct ids in the order of their last occurrence."""
        ids = [expert for token in self.tokens for expert in token]
        return [expert for i, expert in enumerate(ids) if expert not in ids[i + 1:]]


def made_events(seed=7, turns=4, prompt=3, decode=40):
    """A trace with prompts, whose steps are wide, and decode steps."""
    rng = random.Random(seed)
    weights = [[rng.random() ** 2 + 0.05 for _ in range(EXPERTS)] for _ in LAYER_BYTES]

    def token(layer):
        first = rng.choices(range(EXPERTS), weights[layer])[0]
        second = first
        while second == first:
            second = rng.choices(range(EXPERTS), weights[layer])[0]
        return [first, second]

    events = []
    for turn in range(turns):
        for layer in range(len(LAYER_BYTES)):
            events.append(Event(turn, 0, 0, layer, [token(layer) for _ in range(prompt)]))
        for step in range(prompt, prompt + decode):
            for layer in range(len(LAYER_BYTES)):
                events.append(Event(turn, 1, step, layer, [token(layer)]))
    return events


def bigmoe(events):
    """The events in the layout of BigMoeOnEdge."""
    lines = ["# route_trace v1",
             f"# model=made.gguf arch=made n_layer={len(LAYER_BYTES)} n_expert={EXPERTS} n_expert_used={K}"]
    lines += [f"# layer={i} expert_bytes={size} dense_bytes=1" for i, size in enumerate(LAYER_BYTES)]
    lines.append("turn,phase,step,layer,slot,expert,weight,residency,expert_bytes")
    for e in events:
        for i, token in enumerate(e.tokens):
            for slot, expert in enumerate(token):
                lines.append(f"{e.turn},{e.phase},{e.step + i},{e.layer},{slot},{expert},0.5,0,{LAYER_BYTES[e.layer]}")
    return "\n".join(lines) + "\n"


def naive(events, slots, rule):
    """Event-atomic per-layer pools, plainly: {phase: counts}."""
    found = {phase: dict(demand_accesses=0, hits=0, installs=0, overflow_hits=0, overflow_misses=0, overflow_steps=0,
                         evictions=0, bytes_loaded=0) for phase in ("prefill", "decode")}
    resident = [set() for _ in LAYER_BYTES]
    last = [dict() for _ in LAYER_BYTES]
    count = [dict() for _ in LAYER_BYTES]
    installed = [dict() for _ in LAYER_BYTES]
    tick = [0 for _ in LAYER_BYTES]
    for e in events:
        c = found["decode" if e.phase else "prefill"]
        layer, ids = e.layer, e.distinct()
        hits = [x for x in ids if x in resident[layer]]
        misses = [x for x in ids if x not in resident[layer]]
        c["demand_accesses"] += len(ids)
        c["bytes_loaded"] += len(misses) * LAYER_BYTES[layer]
        if len(ids) > slots:
            c["overflow_steps"] += 1
            c["overflow_hits"] += len(hits)
            c["overflow_misses"] += len(misses)
            continue
        c["hits"] += len(hits)
        c["installs"] += len(misses)
        key = {"lru": lambda x: last[layer][x], "lfu": lambda x: (count[layer][x], last[layer][x]),
               "fifo": lambda x: installed[layer][x]}[rule]
        while len(resident[layer]) + len(misses) > slots:
            resident[layer].remove(min((x for x in resident[layer] if x not in ids), key=key))
            c["evictions"] += 1
        for x in ids:
            tick[layer] += 1
            last[layer][x] = tick[layer]
            count[layer][x] = count[layer].get(x, 0) + 1
            if x in misses:
                installed[layer][x] = tick[layer]
        resident[layer].update(misses)
    return found


class ToolTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="warmset-replay-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.events = made_events()
        self.trace = self.write("made.csv", bigmoe(self.events))

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, contents):
        with open(self.path(name), "wb") as out:
            out.write(contents.encode() if isinstance(contents, str) else contents)
        return self.path(name)

    def read(self, name):
        with open(self.path(name), "rb") as source:
            return source.read()

    def run_tool(self, *arguments, expect=0):
        done = subprocess.run([TOOL, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              cwd=self.folder, check=False)
        self.assertEqual(done.returncode, expect, f"{arguments}\n{done.stdout}\n{done.stderr}")
        return done

    def report(self, *arguments):
        if arguments[0] in ("replay", "sweep") and "--order" not in arguments:
            arguments = (*arguments, "--order", "recorded")
        return json.loads(self.run_tool(*arguments, "--json", "-").stdout)

    def refused(self, *arguments, mentions=()):
        """The command is refused with one line, and nothing but its inputs is there afterwards."""
        before = {name: self.read(name) for name in os.listdir(self.folder) if os.path.isfile(self.path(name))}
        done = self.run_tool(*arguments, expect=2)
        self.assertEqual(done.stdout, "")
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertTrue(lines[0].startswith("warmset-replay: error: "), lines[0])
        for text in mentions:
            self.assertIn(text, lines[0])
        after = {name: self.read(name) for name in os.listdir(self.folder) if os.path.isfile(self.path(name))}
        self.assertEqual(before, after)
        return lines[0]

    def test_order_is_recorded_where_an_engine_was_and_ascending_elsewhere(self):
        order = ("--order", "auto")
        ask = ("replay", self.trace, "--policy", "lru", "--slots", 4)
        self.assertEqual(self.report(*ask, *order)["played"]["order"], "recorded")
        self.assertEqual(self.report(*ask, *order)["results"], self.report(*ask)["results"])
        bundled = os.path.join(SOURCE, "examples", "data", "tinymoe-8x32.wst.zst")
        ask = ("replay", bundled, "--policy", "lru", "--slots", 8, "--sequences", "0-1")
        self.assertEqual(self.report(*ask, *order)["played"]["order"], "ascending")
        self.assertEqual(self.report(*ask, *order)["results"], self.report(*ask, "--order", "ascending")["results"])

    # ---- figures ----------------------------------------------------------------------------------------------

    def test_a_naive_simulation_counts_the_same(self):
        for slots in (2, 3, 5, 7):
            report = self.report("replay", self.trace, "--policy", "lru,lru_list,lfu,fifo", "--slots", slots)
            self.assertEqual(len(report["results"]), 8)
            for result in report["results"]:
                expected = naive(self.events, slots, {"lru_list": "lru"}.get(result["policy"], result["policy"]))
                self.assertEqual({name: result[name] for name in expected[result["phase"]]},
                                 expected[result["phase"]], (slots, result["policy"], result["phase"]))

    def test_the_report_has_its_fields_and_its_sums(self):
        report = self.report("replay", self.trace, "--policy", "all", "--slots", "50%", "--phase", "all")
        for name in ("tool", "version", "trace", "unit", "scope", "denominator", "played", "time_model", "results",
                     "warnings"):
            self.assertIn(name, report)
        self.assertEqual(report["tool"], "warmset-replay")
        self.assertEqual(report["trace"]["lookups"]["decode"], 4 * 40 * 3 * K)
        self.assertEqual(report["trace"]["cycle"], 3 * K)
        by_policy = {}
        for result in report["results"]:
            by_policy.setdefault(result["policy"], {})[result["phase"]] = result
            self.assertEqual(result["slots"], 4)
            self.assertEqual(result["slots_total"], 12)
            self.assertEqual(result["pool"], "per-layer")
            self.assertEqual(result["demand_accesses"],
                             sum(result[name] for name in ("hits", "late", "installs", "declined", "overflow_hits",
                                                           "overflow_misses")))
            self.assertAlmostEqual(result["hit_rate"],
                                   (result["hits"] + result["overflow_hits"]) / result["demand_accesses"])
            for name in ("demand_accesses", "hits", "installs", "declined", "bytes_loaded", "evictions"):
                self.assertEqual(result[name], sum(layer[name] for layer in result["per_layer"]))
            self.assertEqual(result["bytes_loaded"],
                             sum((layer["installs"] + layer["declined"] + layer["overflow_misses"]) * size
                                 for layer, size in zip(result["per_layer"], LAYER_BYTES)))
            self.assertAlmostEqual(result["bytes_per_token"], result["bytes_loaded"] / result["tokens"])
            if result["wasted_installs"] is not None:
                self.assertLessEqual(result["wasted_installs"], result["installs"])
        self.assertGreaterEqual(len(by_policy), 12)
        for policy, phases in by_policy.items():
            self.assertEqual(set(phases), {"prefill", "decode", "all"}, policy)
            for name in ("demand_accesses", "hits", "installs", "tokens", "bytes_loaded"):
                self.assertEqual(phases["all"][name], phases["prefill"][name] + phases["decode"][name])
            whole = phases["all"]
            self.assertGreaterEqual(whole["regret_belady_bypass"], -1e-12, policy)
            if policy != "belady_bypass":
                self.assertGreaterEqual(whole["regret_belady"], -1e-12, policy)

    def test_the_stall_follows_from_the_model(self):
        result = self.report("replay", self.trace, "--policy", "lru", "--slots", 4, "--phase", "decode",
                             "--link-gbps", "0.5", "--copy-us", "7", "--compute-us", "11")["results"][0]
        misses = result["installs"] + result["declined"] + result["overflow_misses"]
        stall = result["bytes_loaded"] / 0.5e9 * 1e3 + misses * 7e-3
        self.assertAlmostEqual(result["stall_ms"], stall)
        self.assertAlmostEqual(result["stall_ms_per_token"], stall / 160)
        self.assertAlmostEqual(result["compute_ms_per_token"], 3 * 11e-3)
        self.assertAlmostEqual(result["stall_share"], stall / (stall + 160 * 3 * 11e-3))

    def test_phases_and_sequences_are_chosen(self):
        decode = self.report("replay", self.trace, "--policy", "lru", "--slots", 4, "--phase", "decode")
        self.assertEqual([r["phase"] for r in decode["results"]], ["decode"])
        alone = self.report("replay", self.trace, "--policy", "lru", "--slots", 4, "--play", "decode")
        self.assertEqual([r["phase"] for r in alone["results"]], ["decode"])
        expected = naive([e for e in self.events if e.phase], 4, "lru")["decode"]
        self.assertEqual(alone["results"][0]["hits"], expected["hits"])
        odd = self.report("replay", self.trace, "--policy", "lru", "--slots", 4, "--sequences", "odd")
        expected = naive([e for e in self.events if e.turn % 2], 4, "lru")
        self.assertEqual({r["phase"]: r["hits"] for r in odd["results"]},
                         {phase: c["hits"] for phase, c in expected.items()})
        some = self.report("replay", self.trace, "--policy", "lru", "--slots", 4, "--sequences", "1-2")
        self.assertEqual(some["played"]["tokens"], {"prefill": 6, "decode": 80})

    def test_parameters_are_part_of_the_name(self):
        report = self.report("replay", self.trace, "--policy", "decayed_count,decayed_count:half_life=64,epoch_count:epoch=4",
                             "--slots", 4, "--phase", "decode")
        self.assertEqual([(r["policy"], r["parameters"]) for r in report["results"]],
                         [("decayed_count", {"half_life": 16}), ("decayed_count:half_life=64", {"half_life": 64}),
                          ("epoch_count:epoch=4", {"epoch": 4})])

    def test_pools_and_budgets(self):
        shared = self.report("replay", self.trace, "--policy", "lru", "--pool", "shared", "--slots", 4)["results"][0]
        self.assertEqual((shared["pool"], shared["slots"], shared["slots_total"]), ("shared", 4, 12))
        bytes_of_all = self.report("replay", self.trace, "--policy", "lru", "--pool", "shared", "--budget-mib", "0.0019")
        first = bytes_of_all["results"][0]
        self.assertEqual((first["pool"], first["slots"], first["budget_bytes"]), ("shared", None, 1992))
        self.assertEqual(first["overflow_steps"], 0)
        # 260 bytes hold one slot in every layer
        layers = self.report("replay", self.trace, "--policy", "lru", "--budget-mib", "0.00126")["results"][0]
        self.assertEqual((layers["slots"], layers["budget_bytes"]), (5, 1321))

    def test_two_runs_say_the_same_whatever_the_threads(self):
        arguments = ("sweep", self.trace, "--slots", "2,50%,6")
        one = self.run_tool(*arguments, "--jobs", 1)
        four = self.run_tool(*arguments, "--jobs", 4)
        self.assertEqual(one.stdout, four.stdout)
        self.assertIn("best at 4 slots per layer: ", one.stdout)
        for text in ("unit", "scope", "denominator"):
            self.assertIn(text, one.stdout)

    def test_a_sweep_has_every_pair_and_the_best(self):
        report = self.report("sweep", self.trace, "--policy", "lru,lfu,belady", "--slots", "3,6", "--phase", "decode")
        self.assertEqual([(r["slots"], r["policy"]) for r in report["results"]],
                         [(3, "lru"), (3, "lfu"), (3, "belady"), (6, "lru"), (6, "lfu"), (6, "belady")])
        for best in report["best"]:
            rates = {r["policy"]: r["hit_rate"] for r in report["results"]
                     if r["slots"] == best["slots"] and r["policy"] != "belady"}
            self.assertEqual(best["hit_rate"], max(rates.values()))
            self.assertNotEqual(best["policy"], "belady")
        done = self.run_tool("sweep", self.trace, "--policy", "lru", "--slots", "3", "--progress")
        self.assertIn("] 3 of 3", done.stderr)
        self.assertNotIn("] ", self.run_tool("sweep", self.trace, "--policy", "lru", "--slots", "3").stderr)

    def test_warnings_are_on_stderr_and_in_the_report(self):
        done = self.run_tool("replay", self.trace, "--policy", "lru", "--slots", 4, "--json", "-")
        warnings = json.loads(done.stdout)["warnings"]
        self.assertTrue(any(w.startswith("below-3k: ") for w in warnings), warnings)
        for warning in warnings:
            self.assertIn("warmset-replay: warning: " + warning, done.stderr)
        done = self.report("replay", self.trace, "--policy", "lru", "--pool", "shared", "--budget-mib", "0.0004")
        self.assertTrue(any(w.startswith("below-cycle: ") for w in done["warnings"]), done["warnings"])
        short = self.write("short.csv", bigmoe(made_events(turns=1, prompt=1, decode=1)))
        done = self.report("replay", short, "--policy", "lru", "--slots", 7)
        self.assertTrue(any(w.startswith("never-full: ") for w in done["warnings"]), done["warnings"])
        overridden = self.write("overridden.csv", bigmoe(self.events).replace("model=made", "model=gpt-oss-20b"))
        done = self.report("replay", overridden, "--policy", "lru", "--slots", 7)
        self.assertTrue(any(w.startswith("top-k-overridden: ") for w in done["warnings"]), done["warnings"])

    # ---- outputs ----------------------------------------------------------------------------------------------

    def test_outputs_are_whole_and_stdout_is_theirs_alone(self):
        done = self.run_tool("replay", self.trace, "--policy", "lru,lfu", "--slots", 4, "--json", "out.json", "--csv", "out.csv")
        self.assertIn("lru", done.stdout)
        report = json.loads(self.read("out.json"))
        rows = list(csv.DictReader(io.StringIO(self.read("out.csv").decode())))
        self.assertEqual([(r["policy"], r["phase"], int(r["hits"])) for r in rows],
                         [(r["policy"], r["phase"], r["hits"]) for r in report["results"]])
        for row in rows:
            self.assertTrue(row["unit"] and row["scope"] and row["denominator"])
        alone = self.run_tool("replay", self.trace, "--policy", "lru", "--slots", 4, "--csv", "-")
        self.assertTrue(alone.stdout.startswith("policy,parameters,"))
        self.assertEqual(sorted(os.listdir(self.folder)), ["made.csv", "out.csv", "out.json"])

    def test_an_error_leaves_what_was_there(self):
        self.write("out.json", "mine")
        self.write("log", "mine too")
        for arguments in (("replay", self.trace, "--policy", "none", "--slots", 4),
                          ("replay", self.trace, "--slots", 1),
                          ("replay", self.path("missing"), "--slots", 4),
                          ("sweep", self.trace, "--slots", "4,9")):
            self.refused(*arguments, "--json", "out.json")
        self.refused("replay", self.trace, "--policy", "lru", "--slots", 4, "--log", "log", "--json", "no/folder.json",
                     mentions=["no/folder.json"])
        self.refused("replay", self.trace, "--policy", "lru", "--slots", 4, "--json", self.folder)
        self.refused("replay", self.trace, "--policy", "lru", "--slots", 4, "--json", "-", "--csv", "-")

    def test_conversion_changes_nothing(self):
        self.run_tool("convert", self.trace, "made.wst")
        self.run_tool("convert", self.trace, "made.wst.zst")
        self.run_tool("convert", self.trace, "packed", "--zstd", "--sequences", "even")
        self.assertTrue(self.read("made.wst").startswith(b"WARMSET\n"))
        self.assertTrue(self.read("packed").startswith(b"\x28\xb5\x2f\xfd"))
        arguments = ("--policy", "all", "--slots", 4, "--phase", "all")
        results = self.report("replay", self.trace, *arguments)["results"]
        self.assertEqual(self.report("replay", "made.wst", *arguments)["results"], results)
        self.assertEqual(self.report("replay", "made.wst.zst", *arguments)["results"], results)
        even = self.report("replay", self.trace, *arguments, "--sequences", "even")["results"]
        self.assertEqual(self.report("replay", "packed", *arguments)["results"], even)

    def test_info_says_what_a_trace_holds(self):
        facts = self.report("info", self.trace)
        self.assertEqual((facts["layers"], facts["sequences"], facts["cycle"]), (3, 4, 6))
        self.assertEqual(facts["tokens"], {"prefill": 12, "decode": 160})
        self.assertEqual([g["layers"] for g in facts["groups"]], [2, 1])
        distinct = sum(len(e.distinct()) for e in self.events)
        self.assertEqual(facts["reuse"]["lookups"], distinct)
        text = self.run_tool("info", self.trace).stdout
        for word in ("layout", "fingerprint", "cycle", "reuse", "bigmoe"):
            self.assertIn(word, text)

    def test_diff_finds_where_two_logs_part(self):
        for policy in ("lru", "lru_list", "lfu"):
            self.run_tool("replay", self.trace, "--policy", policy, "--slots", 4, "--log", policy)
        self.assertIn("say the same", self.run_tool("diff", "lru", "lru_list").stdout)
        done = self.run_tool("diff", "lru", "lfu", expect=1)
        self.assertIn("in the first log", done.stdout)
        self.assertEqual(len(done.stdout.splitlines()), 1)
        self.run_tool("replay", self.trace, "--policy", "lru", "--pool", "shared", "--budget-mib", "0.001", "--log", "a")
        self.run_tool("replay", self.trace, "--policy", "lru_list", "--pool", "shared", "--budget-mib", "0.001", "--log", "b")
        self.run_tool("diff", "a", "b")
        self.refused("diff", "lru", self.trace, mentions=["made.csv:"])
        self.refused("diff", "lru", "missing", mentions=["missing"])
        self.refused("replay", self.trace, "--policy", "lru,lfu", "--slots", 4, "--log", "two")
        self.refused("replay", self.trace, "--policy", "belady", "--slots", 4, "--log", "oracle")

    def test_the_picture_is_drawn(self):
        python = "/usr/bin/python3"
        if not os.path.exists(python) or subprocess.run([python, "-c", "import matplotlib"], stderr=subprocess.DEVNULL,
                                                        check=False).returncode != 0:
            self.skipTest("matplotlib is not there")
        plot = os.path.join(SOURCE, "examples", "replay", "plot.py")
        self.run_tool("sweep", self.trace, "--slots", "2,4,6", "--json", "sweep.json")
        self.run_tool("replay", self.trace, "--pool", "shared", "--budget-mib", "0.001", "--phase", "all", "--json", "one.json")
        for name in ("sweep", "one"):
            subprocess.run([python, plot, f"{name}.json", "-o", f"{name}.png"], cwd=self.folder, check=True)
            self.assertTrue(self.read(f"{name}.png").startswith(b"\x89PNG"))
        for arguments in (["made.csv", "-o", "x.png"], ["sweep.json", "-o", "x.png", "--at", "5"],
                          ["sweep.json", "-o", "no/x.png"]):
            done = subprocess.run([python, plot, *arguments], cwd=self.folder, stderr=subprocess.PIPE, text=True, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertFalse(os.path.exists(self.path("x.png")))

    # ---- bad input --------------------------------------------------------------------------------------------

    def check_every_command(self, path, *mentions):
        name = os.path.basename(path)
        for arguments in (("replay", path, "--slots", 4, "--json", "out.json"), ("sweep", path, "--slots", 4, "--csv", "out.csv"),
                          ("info", path), ("convert", path, "out.wst")):
            self.refused(*arguments, mentions=(name, *mentions))

    def test_bad_bigmoe(self):
        good = bigmoe(self.events)
        rows = good.splitlines(keepends=True)
        first = next(i for i, row in enumerate(rows) if row.startswith("0,0,"))
        cells = rows[first].split(",")

        def with_cell(column, value):
            changed = cells[:]
            changed[column] = value
            return "".join(rows[:first]) + ",".join(changed) + "".join(rows[first + 1:])

        cases = {
            "truncated": good[:-40],
            "header": "".join(rows[:3]),
            "no_rows": "".join(rows[:first]),
            "range": with_cell(5, "8"),
            "negative": with_cell(5, "-1"),
            "huge": with_cell(2, "99999999999999999999"),
            "twice": "".join(rows[:first + 1]) + rows[first + 1].replace("," + rows[first + 1].split(",")[5] + ",",
                                                                        "," + cells[5] + ",", 1) + "".join(rows[first + 2:]),
            "k": "".join(rows[:first + 1]) + "".join(rows[first + 2:]),
            "layer": "".join(row for row in rows if not (row[0].isdigit() and row.split(",")[3] == "1")),
            "counts": good.replace("n_expert=8", "n_expert=-8"),
            "many": good.replace("n_expert=8", "n_expert=4000000000"),
            "zero": good.replace("n_expert_used=2", "n_expert_used=0"),
        }
        for name, text in cases.items():
            with self.subTest(name):
                path = self.write(name + ".csv", text)
                self.check_every_command(path, name + ".csv:")
                os.remove(path)

    def test_bad_binary(self):
        def rtb(layers=2, experts=8, k=2, lengths=(2,), rows=2, ids=None, magic=b"RTB1"):
            ids = ids if ids is not None else [0, 1] * layers * rows
            return (magic + struct.pack("<5I", layers, experts, k, len(lengths), rows) +
                    struct.pack(f"<{len(lengths)}I", *lengths) + struct.pack(f"<{len(ids)}H", *ids))

        self.run_tool("info", self.write("good.rtb", rtb()))
        self.run_tool("convert", "good.rtb", "good.wst")
        own = self.read("good.wst")
        cases = {
            "magic": rtb(magic=b"RTB2"),
            "truncated": rtb()[:-1],
            "short": rtb()[:10],
            "longer": rtb() + b"\0",
            "range": rtb(ids=[0, 8] * 4),
            "twice": rtb(ids=[1, 1] * 4),
            "no_layers": rtb(layers=0, ids=[]),
            "k": rtb(k=9, ids=[0, 1] * 4),
            "huge": rtb(rows=0xFFFFFFFF, ids=[0, 1]),
            "lengths": rtb(lengths=(1,)),
            "own_truncated": own[:-8],
            "own_damaged": own[:100] + bytes([own[100] ^ 1]) + own[101:],
            "own_version": own[:8] + b"\x63" + own[9:],
        }
        for name, contents in cases.items():
            with self.subTest(name):
                path = self.write(name + ".bin", contents)
                self.check_every_command(path, name + ".bin:")
                os.remove(path)

    def test_bad_jsonl(self):
        head = json.dumps({"format": "routing-jsonl-1", "model": "m", "n_layers": 1, "n_experts": 4, "k": 2})
        for name, text in {"no_events": head + "\n", "broken": "{", "array": "[]\n"}.items():
            with self.subTest(name):
                path = self.write(name + ".jsonl", text)
                self.check_every_command(path, name + ".jsonl:")
                os.remove(path)

    def test_bad_files(self):
        self.check_every_command(self.write("empty", ""), "empty")
        os.remove(self.path("empty"))
        self.check_every_command(self.write("text", "hello\n"), "text:0:")
        os.remove(self.path("text"))
        self.check_every_command(self.path("missing"))
        os.mkdir(self.path("directory"))
        self.check_every_command(self.path("directory"))
        self.check_every_command(self.write("broken.zst", b"\x28\xb5\x2f\xfd\x00\x01\x02"))
        os.remove(self.path("broken.zst"))
        self.run_tool("convert", self.trace, "good.zst")
        self.check_every_command(self.write("cut.zst", self.read("good.zst")[:-5]))

    def test_a_zip_bomb_ends_at_the_cap(self):
        zstd = shutil.which("zstd")
        if zstd is None:
            self.skipTest("the zstd program is not there")
        with open(self.path("bomb.zst"), "wb") as out:
            zeros = subprocess.Popen(["head", "-c", str(1100 << 20), "/dev/zero"], stdout=subprocess.PIPE)
            subprocess.run([zstd, "-1", "-q", "-c"], stdin=zeros.stdout, stdout=out, check=True)
            zeros.stdout.close()
            zeros.wait()
        self.assertLess(os.path.getsize(self.path("bomb.zst")), 1 << 20)
        self.refused("info", "bomb.zst", mentions=["bomb.zst", "cap"])

    def test_bad_usage(self):
        replay = ("replay", self.trace)
        for arguments, mentions in (
                ((*replay, "--slots", 0), ["0 slots"]),
                ((*replay, "--slots", "0%"), ["0 slots"]),
                ((*replay, "--slots", 1), ["below k = 2"]),
                ((*replay, "--slots", "5%"), ["below k = 2"]),
                ((*replay, "--slots", 9), ["more than its 8 experts"]),
                ((*replay, "--slots", "101%"), ["100 %"]),
                ((*replay, "--slots", "-3"), []),
                ((*replay, "--slots", "2.5"), ["'2.5'"]),
                ((*replay, "--slots", "x"), ["'x'"]),
                ((*replay, "--slots", "99999999999999999999"), []),
                ((*replay, "--slots", "3,4"), ["sweep"]),
                ((*replay,), ["--slots", "--budget-mib"]),
                ((*replay, "--slots", 4, "--budget-mib", 1), ["--slots", "--budget-mib"]),
                ((*replay, "--budget-mib", 0), ["--budget-mib 0"]),
                ((*replay, "--budget-mib", "nan"), ["nan"]),
                ((*replay, "--budget-mib", "0.0001", "--pool", "shared"), ["k = 2"]),
                ((*replay, "--slots", 4, "--pool", "common"), ["common", "shared"]),
                ((*replay, "--slots", 4, "--policy", "magic"), ["magic", "lru_list", "belady_bypass"]),
                ((*replay, "--slots", 4, "--policy", ""), ["''"]),
                ((*replay, "--slots", 4, "--policy", "lru,"), ["''"]),
                ((*replay, "--slots", 4, "--policy", "lru:half_life=16"), ["lru", "half_life"]),
                ((*replay, "--slots", 4, "--policy", "decayed_count:epoch=16"), ["epoch", "half_life"]),
                ((*replay, "--slots", 4, "--policy", "decayed_count:half_life=3"), ["3"]),
                ((*replay, "--slots", 4, "--policy", "decayed_count:half_life=-3"), ["'-3'"]),
                ((*replay, "--slots", 4, "--policy", "decayed_count:half_life"), ["half_life"]),
                ((*replay, "--slots", 4, "--policy", "epoch_count:epoch=3"), ["power of two"]),
                ((*replay, "--slots", 4, "--policy", "belady:half_life=16"), ["belady"]),
                ((*replay, "--slots", 4, "--phase", "warmup"), ["warmup"]),
                ((*replay, "--slots", 4, "--play", "decode", "--phase", "prefill"), ["prefill"]),
                ((*replay, "--slots", 4, "--sequences", "3-1"), ["3-1"]),
                ((*replay, "--slots", 4, "--sequences", "x"), ["x"]),
                ((*replay, "--slots", 4, "--sequences", "77"), ["no event"]),
                ((*replay, "--slots", 4, "--link-gbps", "0"), ["--link-gbps"]),
                ((*replay, "--slots", 4, "--order", "random"), ["random"]),
                ((*replay, "--slots", 4, "--unknown"), ["--unknown"]),
                (("sweep", self.trace, "--slots", "4,,5"), ["''"]),
                (("convert", self.trace), []),
                (("convert", self.trace, "out", "--sequences", "77"), ["no event"]),
                (("play", self.trace), []),
                ((), [])):
            with self.subTest(arguments=arguments):
                self.refused(*arguments, mentions=mentions)

    def test_help_is_no_error(self):
        for arguments in (("--help",), ("replay", "--help"), ("sweep", "--help"), ("--version",)):
            done = self.run_tool(*arguments)
            self.assertTrue(done.stdout)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    TOOL, SOURCE = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
