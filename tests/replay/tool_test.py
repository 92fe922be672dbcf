#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of warmset-replay from outside.

    tool_test.py TOOL SOURCE_DIR [unittest options]
"""

import csv
import io
import json
import os
import stat
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


def flattened(events):
    """The same ids, one a step."""
    return [Event(e.turn, e.phase, e.step, e.layer, [[expert]]) for e in events for token in e.tokens for expert in token]


def hot_and_cold_events(tokens, hot=2):
    """Some experts come in every third token, the others in turn. With 4 slots counts keep what lru loses."""
    events, cold = [], 0
    for step in range(tokens):
        for layer in range(len(LAYER_BYTES)):
            if step % 3 == 0:
                ids = list(range(hot))
            else:
                ids = [hot + (cold + i) % (EXPERTS - hot) for i in range(K)]
            events.append(Event(0, 1, step, layer, [ids]))
        cold += K if step % 3 else 0
    return events


def naive(events, slots, rule, admits=lambda installs, free, age, size: True):
    """Event-atomic per-layer pools, plainly: {phase: counts}. Age None = never demanded."""
    found = {phase: dict(demand_accesses=0, hits=0, installs=0, declined=0, overflow_hits=0, overflow_misses=0, overflow_steps=0,
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
        free = slots - len(resident[layer])
        all_misses, misses = misses, []
        for x in all_misses:
            age = tick[layer] - last[layer][x] if x in last[layer] else None
            if admits(len(misses), free, age, LAYER_BYTES[layer]):
                misses.append(x)
        c["installs"] += len(misses)
        c["declined"] += len(all_misses) - len(misses)
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

    def run_tool(self, *arguments, expect=0, tool=None, **how):
        done = subprocess.run([tool or TOOL, *map(str, arguments)], cwd=self.folder, check=False,
                              **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **how})
        self.assertEqual(done.returncode, expect, f"{arguments}\n{done.stdout}\n{done.stderr}")
        return done

    def report(self, *arguments):
        if arguments[0] in ("replay", "sweep") and "--order" not in arguments:
            arguments = (*arguments, "--order", "recorded")
        return json.loads(self.run_tool(*arguments, "--json", "-").stdout)

    def contents(self):
        """What each file of the folder holds; what a link is, and nothing of pipes."""
        return {name: os.readlink(self.path(name)) if os.path.islink(self.path(name)) else
                self.read(name) if os.path.isfile(self.path(name)) else None for name in os.listdir(self.folder)}

    def refused(self, *arguments, mentions=(), **how):
        """The command is refused with one line, and nothing but its inputs is there afterwards."""
        before = self.contents()
        done = self.run_tool(*arguments, expect=2, **how)
        self.assertFalse(done.stdout)
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertTrue(lines[0].startswith("warmset-replay: error: "), lines[0])
        for text in mentions:
            self.assertIn(text, lines[0])
        self.assertEqual(before, self.contents())
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

    def hints(self, *arguments, trace=None, policy="lru", sequences="0-4"):
        """Results of a replay with predictors: {predictor or None: result of decode}."""
        trace = trace or os.path.join(SOURCE, "examples", "data", "tinymoe-8x32.wst.zst")
        # experts of 26,112 bytes over 0.1 GB/s take a quarter of a millisecond
        report = self.report("replay", trace, "--policy", policy, "--slots", 8, "--sequences", sequences, "--phase", "decode",
                             "--link-gbps", "0.1", "--copy-us", "0", "--no-oracles", *arguments)
        return {result["predictor"]: result for result in report["results"]}

    def test_predictors_are_played_beside_the_policy(self):
        names = "none,previous_step,transition,transition:horizon=2,token_table,oracle,random,adversarial"
        results = self.hints("--predictor", names, "--compute-us", 1000)
        self.assertEqual(list(results), [None, *names.split(",")])
        plain, none = results[None], results["none"]
        for name in ("demand_accesses", "hits", "installs", "evictions", "bytes_loaded"):
            self.assertEqual(plain[name], none[name], name)
        # zero prediction: the virtual clock says what the sums say, but for what it cuts off of a nanosecond
        self.assertAlmostEqual(plain["stall_ms"], none["stall_ms"], delta=plain["installs"] * 1e-6)
        for name in ("hints_issued", "hint_precision", "governor", "hint_width", "bytes_speculated"):
            self.assertIsNone(plain[name], name)
        self.assertEqual(none["hints_offered"], 0)
        self.assertIsNone(none["hint_precision"])
        for name, result in results.items():
            self.assertEqual(result["demand_accesses"], plain["demand_accesses"])
            self.assertEqual(result["demand_accesses"], sum(result[part] for part in (
                "hits", "late", "installs", "declined", "overflow_hits", "overflow_misses")))
            self.assertLessEqual(result["stall_ms"], 1.01 * plain["stall_ms"] + 32 * 0.27, name)
            if name is not None:
                self.assertEqual((result["governor"], result["hint_width"]), ("on", 4))
                self.assertEqual(result["bytes_speculated"], 26112 * result["hints_issued"])
        oracle, transition = results["oracle"], results["transition"]
        self.assertLess(oracle["stall_ms"], 0.4 * plain["stall_ms"])
        self.assertGreater(oracle["hint_precision"], 0.95)
        self.assertLess(transition["stall_ms"], 0.9 * plain["stall_ms"])
        self.assertLess(results["adversarial"]["hint_precision"], 0.1)
        self.assertEqual(results["adversarial"]["governor_state"], "stopped")

    def test_a_governor_and_a_budget_bound_hints(self):
        wide = self.hints("--predictor", "random", "--width", 8, "--governor", "off", "--compute-us", 0)
        governed = self.hints("--predictor", "random", "--width", 8, "--compute-us", 0)
        self.assertGreater(wide["random"]["stall_ms"], 1.5 * wide[None]["stall_ms"])
        self.assertLess(governed["random"]["stall_ms"], 1.02 * wide[None]["stall_ms"])
        self.assertEqual((wide["random"]["governor"], wide["random"]["governor_state"]), ("off", None))
        steps = 3 * 384 * 8  # the trace has the even sequences
        for experts in (0, 1, 2):
            mib = experts * 26112 / 1048576
            one = self.hints("--predictor", "transition", "--governor", "off", "--hint-budget-mib", mib, "--play",
                             "decode")["transition"]
            self.assertEqual(one["hint_budget_bytes"], experts * 26112)
            self.assertLessEqual(one["hints_issued"], experts * steps)
            self.assertEqual(one["hints_issued"] == 0, experts == 0)

    def test_budgets_of_hints_are_played_in_one_run(self):
        bundled = os.path.join(SOURCE, "examples", "data", "tinymoe-8x32.wst.zst")
        ask = ("replay", bundled, "--policy", "lru", "--slots", 8, "--sequences", "0-1", "--play", "decode", "--link-gbps", "0.1",
               "--predictor", "transition,random", "--governor", "off", "--no-oracles", "--hint-budget-mib")
        sizes = [experts * 26112 for experts in (0, 1, 2, 4)]
        # the second naming of a budget adds nothing
        listed = self.report(*ask, ",".join(str(size / 1048576) for size in (*sizes, sizes[1])))["results"]
        self.assertEqual([(one["predictor"], one["hint_budget_bytes"]) for one in listed],
                         [(None, None), *(("transition", size) for size in sizes), *(("random", size) for size in sizes)])
        transition = listed[1:5]
        self.assertEqual(transition[0]["hints_issued"], 0)
        for less, more in zip(transition, transition[1:]):
            self.assertLess(less["miss_coverage"], more["miss_coverage"])
        # each entry is that of a run of its own
        for size, one in zip(sizes, transition):
            alone = self.report(*ask, size / 1048576)["results"]
            self.assertEqual(alone[1], one)
        table = self.run_tool(*ask, "0,1").stdout
        self.assertIn("budget MiB", table)
        self.assertIn("1.00", table)

    def test_a_latency_is_waited_for(self):
        ask = ("--predictor", "none,transition", "--latency-us")
        fast, slow = (self.hints(*ask, us, sequences="0-1") for us in (0, 40))
        none = [results["none"] for results in (fast, slow)]
        self.assertEqual(none[0]["installs"], none[1]["installs"])
        # every step that misses something waits for it once
        waits = round((none[1]["stall_ms"] - none[0]["stall_ms"]) / 0.04)
        self.assertAlmostEqual(none[1]["stall_ms"] - none[0]["stall_ms"], waits * 0.04)
        self.assertGreater(waits, none[0]["installs"] / 4)
        self.assertLessEqual(waits, min(none[0]["installs"], none[0]["steps"]))
        self.assertEqual(fast[None]["stall_ms"], slow[None]["stall_ms"])
        bundled = os.path.join(SOURCE, "examples", "data", "tinymoe-8x32.wst.zst")
        made = self.report("replay", bundled, "--policy", "lru", "--slots", 8, "--sequences", "0", "--predictor", "none",
                           "--latency-us", "2.5")
        self.assertEqual(made["time_model"]["latency_us"], 2.5)
        # what a table compares with has the latency too
        run = ("replay", bundled, "--policy", "lru", "--slots", 8, "--sequences", "0", "--play", "decode", "--latency-us", 40)
        self.assertIn("1.000 x", self.run_tool(*run, "--predictor", "none").stdout)
        self.assertIn("40 us of latency", self.run_tool(*run, "--predictor", "none").stdout)
        self.assertNotIn(" x ", self.run_tool(*run, "--predictor", "transition").stdout)

    def test_predictors_in_shared_pools_and_other_policies(self):
        for policy in ("lru", "decayed_count"):
            results = self.hints("--pool", "shared", "--predictor", "none,oracle:horizon=2", "--compute-us", 1000,
                                 policy=policy)
            self.assertEqual(results[None]["installs"], results["none"]["installs"])
            self.assertGreaterEqual(results["oracle:horizon=2"]["hint_precision"], 0.6)
        wide = os.path.join(SOURCE, "examples", "data", "tinymoe-12x64.wst.zst")
        results = self.hints("--predictor", "router_lookahead", "--governor", "off", trace=wide, sequences="4")
        self.assertGreater(results["router_lookahead"]["hints_issued"], 100)

    def test_reports_of_predictors(self):
        bundled = os.path.join(SOURCE, "examples", "data", "tinymoe-8x32.wst.zst")
        command = ("replay", bundled, "--policy", "lru", "--slots", 8, "--sequences", "0", "--predictor", "transition,random")
        table = self.run_tool(*command).stdout
        for text in ("predictor", "precision", "coverage", "to none", "transition", "random"):
            self.assertIn(text, table)
        rows = list(csv.DictReader(io.StringIO(self.run_tool(*command, "--phase", "decode", "--csv", "-").stdout)))
        self.assertEqual([row["predictor"] for row in rows], ["", "transition", "random"])
        self.assertEqual(rows[0]["hint_precision"], "")
        self.assertGreater(int(rows[1]["hints_offered"]), 0)
        best = self.report(*command)["best"]
        self.assertEqual({one["policy"] for one in best}, {"lru"})

    def test_a_precision_is_of_issued_hints(self):
        bundled = os.path.join(SOURCE, "examples", "data", "tinymoe-8x32.wst.zst")
        ask = ("replay", bundled, "--policy", "lru", "--slots", 8, "--sequences", "0-4", "--predictor", "transition,none", "--phase", "all")
        seen = set()
        for result in self.report(*ask)["results"]:
            for one in (result, *result["per_layer"]):
                issued, used, precision = (one[name] for name in ("hints_issued", "hints_used", "hint_precision"))
                self.assertEqual(precision, used / issued if issued else None)
                seen.add((issued is None, not issued, not used))
        # in prefill hints of decode are used, and none issued
        self.assertEqual(seen, {(True, True, True), (False, True, True), (False, True, False), (False, False, False)})
        for row in csv.DictReader(io.StringIO(self.run_tool(*ask, "--csv", "-").stdout)):
            self.assertEqual(row["hint_precision"] == "", row["hints_issued"] in ("", "0"))

    def test_a_stall_of_nothing_has_no_ratio(self):
        bundled = os.path.join(SOURCE, "examples", "data", "tinymoe-8x32.wst.zst")
        table = self.run_tool("replay", bundled, "--policy", "lru", "--slots", 8, "--sequences", "0", "--predictor", "none,transition",
                              "--link-gbps", "1e6", "--copy-us", 0, "--compute-us", 0).stdout
        self.assertIn("to none", table)
        self.assertNotIn(" x ", table)

    def test_a_predictor_is_played_once_by_whatever_names(self):
        results = self.report("replay", self.trace, "--policy", "lru", "--slots", 4, "--phase", "decode", "--predictor",
                              "transition,transition:horizon=1,transition:horizon=2,transition,oracle:horizon=1,oracle")["results"]
        self.assertEqual([r["predictor"] for r in results], [None, "transition", "transition:horizon=2", "oracle:horizon=1"])

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

    def test_admissions_are_named_behind_a_plus(self):
        def second_touch(installs, free, age, size):
            return installs < free or (age is not None and age < 128)

        def budget(limit):
            return lambda installs, free, age, size: installs == 0 or (installs + 1) * size <= limit

        lru = self.report("replay", self.trace, "--policy", "lru", "--slots", 3)["results"]
        for name, rule in (("lru+second_touch", second_touch), ("lru+insert_budget", budget(0)),
                           ("lru+insert_budget:insert_bytes=120", budget(120)),
                           ("lru+insert_budget:insert_bytes=10000000000", budget(10 ** 10))):
            report = self.report("replay", self.trace, "--policy", name, "--slots", 3)
            expected = naive(self.events, 3, "lru", rule)
            for result in report["results"]:
                self.assertEqual({k: result[k] for k in expected[result["phase"]]}, expected[result["phase"]], name)
                self.assertEqual(result["policy"], name)
        self.assertEqual(report["results"][0]["parameters"], {"insert_bytes": 10 ** 10})
        self.assertEqual([r["hits"] for r in report["results"]], [r["hits"] for r in lru])
        counted = self.report("replay", self.trace, "--policy",
                              "decayed_count+frequency_gate,decayed_count+colder_than_victim,decayed_count",
                              "--slots", 3, "--phase", "decode")["results"]
        gate, bypass, plain = counted
        self.assertNotEqual(gate["declined"], 0)
        # no layer has committed 1,024 steps
        self.assertEqual(bypass["declined"], 0)
        self.assertEqual(bypass["hits"], plain["hits"])
        self.assertEqual(gate["parameters"], {"half_life": 16})
        long = self.write("long.csv", bigmoe(made_events(turns=30)))
        result = self.report("replay", long, "--policy", "lru+colder_than_victim", "--slots", 3, "--phase", "all")["results"][-1]
        self.assertNotEqual(result["declined"], 0)
        self.assertEqual(result["demand_accesses"], result["hits"] + result["installs"] + result["declined"] +
                         result["overflow_hits"] + result["overflow_misses"])

    def test_admissions_are_asked_for(self):
        names = {r["policy"] for r in self.report("replay", self.trace, "--policy", "all", "--slots", 4)["results"]}
        self.assertFalse([name for name in names if "+" in name])
        self.assertIn("decayed_count+frequency_gate[:half_life=16]", self.run_tool("replay", "--help").stdout)
        ask = ("replay", self.trace, "--slots", 4, "--policy")
        self.refused(*ask, "lru+frequency_gate", mentions=["lru+frequency_gate", "decayed_count+frequency_gate"])
        self.refused(*ask, "lru+second_touch:half_life=4", mentions=["lru+second_touch", "no parameter"])
        self.refused(*ask, "lru+insert_budget:insert_bytes=x", mentions=["insert_bytes", "'x'"])
        self.refused(*ask, "decayed_count:half_life=4294967312", mentions=["half_life", "4294967295"])
        pool = ("replay", self.trace, "--pool", "shared", "--budget-mib", "0.0019", "--policy")
        for name in ("lru+second_touch", "decayed_count+frequency_gate", "decayed_count+colder_than_victim",
                     "decayed_count+fetch_share"):
            self.refused(*pool, name, mentions=[name, "--slots", "installs wherever a slot is free"])
        self.run_tool(*pool, "lru+insert_budget:insert_bytes=120")

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

    # ---- the recommendation -----------------------------------------------------------------------------------

    def check_recommendation(self, one, report):
        """The figures of one recommendation, from the results of the same report."""
        same = {r["policy"]: r for r in report["results"] if r["slots"] == one["slots"] and r["phase"] == one["phase"]}
        taken = same[one["policy"]]
        self.assertEqual(one["hit_rate"], taken["hit_rate"])
        self.assertEqual(one["bytes_per_token"], taken["bytes_per_token"])
        self.assertAlmostEqual(one["gain_over_lru"], taken["hit_rate"] - same["lru"]["hit_rate"])
        self.assertEqual(one["to_belady"], taken["regret_belady"])
        self.assertEqual(one["to_belady_bypass"], taken["regret_belady_bypass"])
        if one["runner_up"] is not None:
            other = same[one["runner_up"]]
            self.assertNotEqual(one["runner_up"], one["policy"])
            self.assertEqual(one["runner_up_hit_rate"], other["hit_rate"])
            self.assertAlmostEqual(one["margin_hit_rate"], taken["hit_rate"] - other["hit_rate"])
            self.assertAlmostEqual(one["margin_bytes_per_token"], other["bytes_per_token"] - taken["bytes_per_token"])

    def test_a_sweep_recommends_and_says_why(self):
        report = self.report("sweep", self.trace, "--policy", "all", "--slots", "2,4,6", "--phase", "all")
        self.assertEqual([(r["slots"], r["phase"]) for r in report["recommendation"]],
                         [(slots, phase) for slots in (2, 4, 6) for phase in ("prefill", "decode", "all")])
        self.assertIsNone(report["cross_validation"])
        for one in report["recommendation"]:
            self.check_recommendation(one, report)
            self.assertEqual(one["gain_over_lru"], one["chosen_gain_over_lru"])
            if one["policy"] == "lru":
                self.assertIsNone(one["noise"])
                self.assertIn(one["rule"], ("best", "lru-within-noise"))
            else:
                self.assertGreaterEqual(one["noise"], 0.002)
                self.assertGreater(one["gain_over_lru"], one["noise"])
        # Two slots hold one token: all policies do the same, and there is no runner-up.
        self.assertEqual({(r["policy"], r["rule"], r["runner_up"]) for r in report["recommendation"] if r["slots"] == 2
                          and r["phase"] == "decode"}, {("lru", "best", None)})
        self.assertNotIn("recommendation", self.report("replay", self.trace, "--policy", "lru", "--slots", 4))

    def test_a_gain_above_the_noise_is_recommended_and_one_within_it_is_not(self):
        many = self.write("many.csv", bigmoe(hot_and_cold_events(320)))
        report = self.report("sweep", many, "--policy", "lru,fifo,decayed_count", "--slots", "2,4,7")
        for one in report["recommendation"]:
            self.check_recommendation(one, report)
        by_slots = {r["slots"]: r for r in report["recommendation"]}
        self.assertEqual((by_slots[4]["policy"], by_slots[4]["rule"]), ("decayed_count", "best"))
        self.assertGreater(by_slots[4]["gain_over_lru"], 0.3)
        text = self.run_tool("sweep", many, "--policy", "lru,fifo,decayed_count", "--slots", "4").stdout
        self.assertIn("recommended at 4 slots per layer: decayed_count, ", text)
        self.assertIn("above the noise of", text)
        # The same gain, seen for a moment only.
        few = self.write("few.csv", bigmoe(hot_and_cold_events(9)))
        report = self.report("sweep", few, "--policy", "lru,decayed_count", "--slots", "4")
        rates = {r["policy"]: r["hit_rate"] for r in report["results"]}
        self.assertGreater(rates["decayed_count"], rates["lru"] + 0.1)
        one = report["recommendation"][0]
        self.assertEqual((one["policy"], one["rule"]), ("lru", "lru-within-noise"))
        self.assertIn("decayed_count gains 0.1", one["reason"])

    def test_of_equally_simple_policies_the_one_that_hits_more_is_recommended(self):
        data = os.path.join(SOURCE, "examples", "data", "tinymoe-8x32.wst.zst")
        report = self.report("sweep", data, "--policy", "lru,decayed_count:half_life=16,decayed_count:half_life=20",
                             "--slots", "8", "--phase", "decode", "--order", "ascending")
        rates = {r["policy"]: r["hit_rate"] for r in report["results"]}
        one = report["recommendation"][0]
        # As simple as each other: the one that hits more.
        self.assertEqual(one["policy"], max(rates, key=rates.get))
        for policy, rate in rates.items():
            self.assertLessEqual(rate, one["hit_rate"], policy)

    def test_lru_competes_where_it_was_not_asked_for(self):
        report = self.report("sweep", self.trace, "--policy", "lfu_forget,belady", "--slots", "4", "--phase", "decode")
        self.assertEqual({r["policy"] for r in report["results"]}, {"lfu_forget", "belady"})
        lru = self.report("replay", self.trace, "--policy", "lru", "--slots", "4", "--phase", "decode")["results"][0]
        one = report["recommendation"][0]
        self.assertAlmostEqual(one["hit_rate"] - one["gain_over_lru"], lru["hit_rate"])
        self.assertGreaterEqual(one["hit_rate"], lru["hit_rate"])

    def test_no_recommendation_is_below_lru_on_the_bundled_traces(self):
        for name in ("tinymoe-8x32", "tinymoe-12x64"):
            path = os.path.join(SOURCE, "examples", "data", name + ".wst.zst")
            for options in ((), ("--cross-validate",)):
                report = self.report("sweep", path, "--slots", "12.5%,25%,50%,75%", "--no-oracles", *options,
                                     "--order", "ascending")
                self.assertEqual(len(report["recommendation"]), 8)
                for one in report["recommendation"]:
                    self.assertGreaterEqual(one["gain_over_lru"], -0.006, (name, options, one))

    def test_cross_validation_chooses_on_even_sequences_and_reports_on_odd_ones(self):
        arguments = ("--policy", "lru,lfu,fifo", "--slots", "4,6", "--phase", "decode")
        report = self.report("sweep", self.trace, *arguments, "--cross-validate")
        self.assertEqual(report["cross_validation"]["split"], "sequences")
        self.assertIn("even", report["cross_validation"]["chosen_on"])
        self.assertIn("odd", report["cross_validation"]["reported_on"])
        self.assertIn("odd", report["scope"])
        self.assertEqual(report["trace"]["sequences"], 4)
        odd = [e for e in self.events if e.turn % 2]
        for result in report["results"]:
            self.assertEqual(result["hits"], naive(odd, result["slots"], result["policy"])["decode"]["hits"])
        even = self.report("sweep", self.trace, *arguments, "--sequences", "even")
        for one, seen in zip(report["recommendation"], even["recommendation"]):
            self.check_recommendation(one, report)
            self.assertEqual((one["slots"], one["policy"], one["rule"]), (seen["slots"], seen["policy"], seen["rule"]))
            self.assertEqual(one["chosen_gain_over_lru"], seen["gain_over_lru"])
        self.assertIn("recommended at 4 slots per layer", self.run_tool("sweep", self.trace, *arguments,
                                                                        "--cross-validate").stdout)

    def test_cross_validation_of_one_sequence_is_by_halves_of_its_tokens(self):
        events = made_events(turns=1, prompt=3, decode=40)
        path = self.write("one.csv", bigmoe(events))
        report = self.report("sweep", path, "--policy", "lru,lfu", "--slots", "4", "--cross-validate")
        self.assertEqual(report["cross_validation"]["split"], "tokens")
        self.assertIn("second half", report["scope"])
        self.assertEqual(report["played"]["tokens"], {"prefill": 0, "decode": 20})
        second = [e for e in events if e.step >= 23]
        for result in report["results"]:
            self.assertEqual(result["hits"], naive(second, 4, result["policy"])["decode"]["hits"])
        self.assertEqual([r["phase"] for r in report["recommendation"]], ["decode"])
        # A step stays in one half, and is flattened there.
        flat = self.report("sweep", path, "--policy", "lru,lfu", "--slots", "1,4", "--cross-validate", "--flatten")
        self.assertEqual((flat["trace"]["k"]["max"], flat["trace"]["lookups"]), (K, report["trace"]["lookups"]))
        for result in flat["results"]:
            self.assertEqual(result["hits"], naive(flattened(second), result["slots"], result["policy"])["decode"]["hits"])
        single = self.write("single.csv", bigmoe(made_events(turns=1, prompt=0, decode=1)[3:]))
        self.refused("sweep", single, "--slots", "4", "--cross-validate", mentions=["one step"])

    # ---- one id a step ----------------------------------------------------------------------------------------

    def test_flattened_ids_are_played_one_a_step(self):
        flat = flattened(self.events)
        for slots in (1, 3, 7):
            report = self.report("replay", self.trace, "--policy", "lru,lru_list,lfu,fifo", "--slots", slots, "--flatten")
            self.assertTrue(report["played"]["flattened"])
            for result in report["results"]:
                expected = naive(flat, slots, {"lru_list": "lru"}.get(result["policy"], result["policy"]))
                self.assertEqual({name: result[name] for name in expected[result["phase"]]},
                                 expected[result["phase"]], (slots, result["policy"], result["phase"]))
        self.assertFalse(self.report("replay", self.trace, "--policy", "lru", "--slots", 4)["played"]["flattened"])

    def test_ids_are_what_flatten_plays(self):
        lines = self.run_tool("ids", self.trace, "-", "--order", "recorded").stdout.splitlines()
        self.assertEqual(lines, ["layer,expert"] + [f"{e.layer},{e.tokens[0][0]}" for e in flattened(self.events)])
        self.run_tool("ids", self.trace, "odd.csv", "--sequences", "odd", "--play", "decode", "--order", "ascending")
        chosen = [e for e in self.events if e.turn % 2 and e.phase]
        self.assertEqual(self.read("odd.csv").decode().splitlines()[1:],
                         [f"{e.layer},{x}" for e in chosen for x in sorted(e.tokens[0])])
        self.refused("ids", self.path("missing"), "out.csv", mentions=["missing"])

    def test_plays_are_timed_on_demand(self):
        arguments = ("replay", self.trace, "--policy", "lru,belady", "--slots", 4)
        plain = self.report(*arguments)
        timed = self.report(*arguments, "--repeat", 3)
        for before, after in zip(plain["results"], timed["results"]):
            timing = after.pop("timing", None)
            self.assertEqual(before, after)
            if after["policy"] == "belady":
                self.assertIsNone(timing)
                continue
            self.assertEqual(timing["plays"], 3)
            self.assertEqual(timing["steps"], len(self.events))
            self.assertEqual(timing["lookups"], sum(len(e.distinct()) for e in self.events))
            self.assertLessEqual(timing["seconds_best"], timing["seconds_median"])
            self.assertAlmostEqual(timing["lookups_per_second"] * timing["seconds_best"], timing["lookups"], places=3)
        self.refused("replay", self.trace, "--policy", "lru", "--slots", 4, "--repeat", 2, "--log", "log",
                     mentions=["--log", "--repeat"])
        self.refused("replay", self.trace, "--policy", "lru", "--slots", 4, "--repeat", "-1")

    def test_the_working_set_is_told_and_compared(self):
        report = self.report("sweep", self.trace, "--policy", "lru", "--slots", "2,8")
        demand = report["working_set"]
        self.assertEqual(demand["tokens"], 64)
        self.assertLessEqual(demand["experts"], len(LAYER_BYTES) * EXPERTS)
        self.assertGreater(demand["experts"], len(LAYER_BYTES) * EXPERTS // 2)
        for result in report["results"]:
            self.assertAlmostEqual(result["capacity_to_demand"], result["slots"] * len(LAYER_BYTES) / demand["experts"])
        bytes_pool = self.report("replay", self.trace, "--policy", "lru", "--pool", "shared", "--budget-mib", "0.0004")
        self.assertAlmostEqual(bytes_pool["results"][0]["capacity_to_demand"], 419 / demand["bytes"])
        self.assertEqual({w.split(": ")[0] for w in bytes_pool["warnings"]}, {"below-cycle", "below-demand"})
        self.assertEqual(self.report("replay", self.trace, "--policy", "lru", "--slots", 7)["warnings"], [])

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
        self.refused("replay", self.trace, "--policy", "lru", "--slots", 4, "--json", "./out.json", "--csv", "out.json")
        self.assertEqual(self.read("out.json"), b"mine")

    def test_links_are_followed_and_pipes_written_through(self):
        self.write("target", "old")
        os.symlink("target", self.path("link"))
        self.run_tool("replay", self.trace, "--policy", "lru", "--slots", 4, "--json", "link")
        self.assertTrue(os.path.islink(self.path("link")))
        self.assertEqual(len(json.loads(self.read("target"))["results"]), 2)
        os.mkfifo(self.path("pipe"))
        with open(self.path("got"), "wb") as got, subprocess.Popen(["cat", self.path("pipe")], stdout=got):
            self.run_tool("replay", self.trace, "--policy", "lru", "--slots", 4, "--json", "pipe")
        self.assertTrue(stat.S_ISFIFO(os.stat(self.path("pipe")).st_mode))
        self.assertEqual(self.read("got"), self.read("target"))

    def outputs_of(self, out):
        """Every command that writes a file, with this name for it."""
        play = (self.trace, "--policy", "lru", "--slots", 4, "--no-oracles")
        return [("replay", *play, "--json", out), ("replay", *play, "--csv", out), ("replay", *play, "--log", out),
                ("sweep", *play, "--json", out), ("sweep", *play, "--csv", out), ("info", self.trace, "--json", out),
                ("convert", self.trace, out), ("convert", self.trace, out, "--zstd"), ("ids", self.trace, out)]

    def test_no_output_replaces_an_input(self):
        os.symlink("made.csv", self.path("link"))
        os.symlink("link", self.path("link to a link"))
        os.link(self.trace, self.path("other name"))
        os.mkdir(self.path("folder"))
        for name in ("made.csv", "./made.csv", "folder/../made.csv", self.trace, "link", "link to a link", "other name"):
            for arguments in self.outputs_of(name):
                with self.subTest(arguments=arguments):
                    self.refused(*arguments, mentions=[f"output '{name}' is the input trace"])
        self.refused("replay", "link", "--slots", 4, "--json", "out.json", "--csv", "made.csv", mentions=["'made.csv' is the input"])
        self.write("list", json.dumps({"token": [1] * 172}))
        self.refused("convert", self.trace, "./list", "--tokens", "list", mentions=["'./list' is the list of --tokens"])

    def test_outputs_that_are_not_there_yet_are_compared(self):
        os.symlink("new", self.path("link"))
        for one, other in (("new", "./new"), ("new", self.path("new")), ("link", "new"), ("-", "/dev/stdout")):
            self.refused("replay", self.trace, "--policy", "lru", "--slots", 4, "--json", one, "--csv", other,
                         mentions=[f"two outputs go to '{other.replace('/dev/stdout', '-')}'"])

    def test_an_output_that_fails_leaves_the_others(self):
        self.write("precious", "mine")
        replay = ("replay", self.trace, "--policy", "lru", "--slots", 4, "--no-oracles")
        for first, second in (("--json", "--csv"), ("--csv", "--json"), ("--json", "--log"), ("--log", "--json")):
            self.refused(*replay, first, "precious", second, "/dev/full", mentions=["/dev/full: "])
        with open("/dev/full", "w", encoding="ascii") as full:
            for arguments in self.outputs_of("precious"):
                if arguments[0] != "ids":
                    self.refused(*arguments, stdout=full, mentions=["standard output: No space left"])
            self.refused(*replay, "--json", "precious", "--csv", "-", stdout=full, mentions=["standard output: "])
        reader, writer = os.pipe()
        os.close(reader)
        self.refused(*replay, "--json", "precious", stdout=writer, mentions=["standard output: "])
        os.close(writer)

    def test_outputs_that_cannot_be_are_refused_before_anything_is_read(self):
        self.write("file", "mine")
        os.symlink("loop", self.path("loop"))
        os.symlink("/nonexistent/zz", self.path("nowhere"))
        for name, why in (("/proc/x", ""), ("/nonexistent/zz", "folder"), ("nowhere", "folder"), ("file/x", "folder"),
                          ("loop", "symbolic links"), ("x" * 300, "too long"), (".", "directory")):
            for command in (("replay", "missing", "--slots", 4, "--json"), ("sweep", "missing", "--slots", 4, "--csv"),
                            ("info", "missing", "--json"), ("convert", "missing"), ("ids", "missing")):
                with self.subTest(command=command, name=name):
                    line = self.refused(*command, name, mentions=[why])
                    self.assertTrue(line.startswith(f"warmset-replay: error: {name}: "), line)

    def test_files_have_names(self):
        for arguments in (*self.outputs_of(""), ("info", ""), ("convert", "", "out"), ("diff", "", "log"), ("diff", self.trace, ""),
                          ("convert", self.trace, "out", "--tokens", "")):
            with self.subTest(arguments=arguments):
                at = arguments.index("")
                option = arguments[at - 1] if str(arguments[at - 1]).startswith("--") else {
                    "info": ["trace"], "diff": "ab", "convert": ["in", "out"], "ids": ["in", "out"]}[arguments[0]][at - 1]
                self.refused(*arguments, mentions=[f"error: {option}: an empty name is no file"])

    def test_a_full_stdout_is_an_error(self):
        for log in ("a", "b"):
            self.run_tool("replay", self.trace, "--policy", {"a": "lru", "b": "lfu"}[log], "--slots", 4, "--log", log)
        with open("/dev/full", "w", encoding="ascii") as full:
            for arguments in (("info", self.trace), ("replay", self.trace, "--policy", "lru", "--slots", 4), ("--help",), ("--version",),
                              ("replay", "--help"), ("sweep", self.trace, "--policy", "lru", "--slots", 4), ("diff", "a", "b"),
                              ("diff", "a", "a"), ("convert", self.trace, "-"), ("ids", self.trace, "-"),
                              ("info", self.trace, "--json", "-"), ("info", self.trace, "--json", "/dev/stdout")):
                with self.subTest(arguments=arguments):
                    self.refused(*arguments, stdout=full, mentions=["standard output: No space left"])

    def test_a_full_stderr_changes_nothing(self):
        ask = ("replay", self.trace, "--policy", "lru", "--slots", 4)
        done = self.run_tool(*ask)
        self.assertIn("warning", done.stderr)
        with open("/dev/full", "w", encoding="ascii") as full:
            self.assertEqual(self.run_tool(*ask, stderr=full).stdout, done.stdout)
            self.run_tool("info", "missing", stderr=full, expect=2)

    def test_what_the_system_calls_stdout_is_stdout(self):
        for name in ("-", "/dev/stdout", "/dev/fd/1"):
            self.write("log", "before\n")
            with open(self.path("log"), "a", encoding="ascii") as out:
                self.run_tool("ids", self.trace, name, stdout=out)
            lines = self.read("log").decode().splitlines()
            self.assertEqual((lines[:2], len(lines)), (["before", "layer,expert"], 2 + len(flattened(self.events))))

    def test_links_to_nothing_yet_are_followed(self):
        os.mkdir(self.path("out"))
        os.symlink("out/new", self.path("link"))
        os.symlink(self.path("link"), self.path("link to a link"))
        for name in ("link", "link to a link"):
            self.run_tool("convert", self.trace, name)
            self.assertTrue(os.path.islink(self.path(name)))
            self.assertTrue(self.read("out/new").startswith(b"WARMSET\n"))
            self.assertEqual(os.listdir(self.path("out")), ["new"])
            os.remove(self.path("out/new"))

    def test_devices_and_pipes_need_no_folder_for_temporaries(self):
        environment = {**os.environ, "TMPDIR": "/nonexistent"}
        for arguments in self.outputs_of("/dev/null"):
            self.run_tool(*arguments, env=environment)
        self.run_tool("convert", self.trace, "plain")
        os.mkfifo(self.path("pipe"))
        for options in ((), ("--zstd",)):
            with open(self.path("got"), "wb") as got, subprocess.Popen(["cat", self.path("pipe")], stdout=got):
                self.run_tool("convert", self.trace, "pipe", *options, env=environment)
            alone = self.run_tool("convert", self.trace, "-", *options, text=False).stdout
            self.assertEqual(alone, self.read("got"))
            self.assertEqual(alone.startswith(b"\x28\xb5\x2f\xfd"), bool(options))
            self.write("again", alone)
            self.run_tool("convert", "again", "as plain")
            self.assertEqual(self.read("as plain"), self.read("plain"))

    def test_modes_are_kept(self):
        before = os.umask(0o027)
        self.addCleanup(os.umask, before)
        for mode in (None, 0o600, 0o644, 0o755):
            self.write("out", "old")
            os.chmod(self.path("out"), mode or 0o644)
            if mode is None:
                os.remove(self.path("out"))
            for arguments in self.outputs_of("out"):
                self.run_tool(*arguments)
                self.assertEqual(stat.S_IMODE(os.stat(self.path("out")).st_mode), mode or 0o640, arguments)

    def test_a_file_that_may_not_be_written_is_left(self):
        # a superuser may write everything: somebody else tries
        how = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        os.chmod(self.folder, 0o777)
        tool = shutil.copy(TOOL, self.path("tool"))
        self.write("out", "mine")
        os.chmod(self.path("out"), 0o444)
        for arguments in self.outputs_of("out"):
            self.refused(*arguments, tool=tool, mentions=["out: Permission denied"], **how)
        os.mkdir(self.path("closed"), 0o555)
        for arguments in self.outputs_of("closed/out"):
            self.refused(*arguments, tool=tool, mentions=["closed/out: Permission denied"], **how)

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
        for word in ("layout", "fingerprint", "cycle", "reuse", "bigmoe", "input tokens no"):
            self.assertIn(word, text)
        self.assertEqual(facts["columns"], {"residency": True, "lookahead_width": 0, "weights": True, "tokens": False})
        self.assertIsNone(facts["distinct_tokens"])

    def test_a_selection_of_nothing_says_what_there_is(self):
        def as_sequences(name, numbers):
            events = [Event(turn, e.phase, e.step, e.layer, e.tokens) for turn in numbers for e in made_events(turns=1, decode=2)]
            return self.write(name, bigmoe(events))

        for numbers, text in (((4, 5, 6, 7, 8, 9), "4-9"), ((3,), "3"), ((0, 2, 3, 8), "0, 2-3, 8"), ((1, 3, 5, 7, 9), "1, 3, 5, 7, 9"),
                              ((1, 3, 5, 7, 9, 20, 21), "1, 3, 5, ..., 20-21")):
            path = as_sequences("some.csv", numbers)
            self.assertIn(f"sequences      {len(numbers)}: {text}\n", self.run_tool("info", path).stdout)
            self.assertEqual(self.report("info", path)["sequence_numbers"], list(numbers))
            for command in (("replay", path, "--slots", 4), ("replay", path, "--slots", 4, "--flatten"), ("sweep", path, "--slots", 4),
                            ("sweep", path, "--slots", 4, "--cross-validate"), ("info", path), ("convert", path, "out"),
                            ("ids", path, "out")):
                for asked in ("77", "100-200", *(["even"] if all(n % 2 for n in numbers) else [])):
                    self.refused(*command, "--sequences", asked, mentions=[f"--sequences '{asked}' selects nothing; the trace has {text}"])
        events = [e for e in self.events if e.phase]
        for command in (("replay", "--slots", 4), ("sweep", "--slots", 4), ("info",), ("convert",), ("ids",)):
            trace = self.write("decode.csv", bigmoe(events))
            out = ["out"] if command[0] in ("convert", "ids") else []
            self.refused(command[0], trace, *out, *command[1:], "--play", "prefill", mentions=["--play 'prefill' selects nothing", "decode"])
        self.refused("replay", trace, "--slots", 4, "--phase", "prefill", mentions=["--phase 'prefill' selects nothing", "decode"])

    def test_conversion_adds_and_keeps_tokens(self):
        tokens = {turn: [turn * 7 + position % 10 for position in range(43)] for turn in range(4)}
        self.write("list", "".join(json.dumps({"s": s, "tokens": t}) + "\n" for s, t in tokens.items()))
        self.run_tool("convert", self.trace, "with.wst", "--tokens", "list")
        facts = self.report("info", "with.wst")
        self.assertTrue(facts["columns"]["tokens"])
        self.assertEqual(facts["distinct_tokens"], 31)
        self.assertIn("input tokens 31 distinct", self.run_tool("info", "with.wst").stdout)
        # They are the last column; a part keeps its own.
        self.run_tool("convert", "with.wst", "odd.wst", "--sequences", "odd", "--play", "decode")
        odd = [token for s in (1, 3) for token in tokens[s][3:]]
        self.assertEqual(self.read("odd.wst")[-8 - 4 * len(odd):-8], struct.pack(f"<{len(odd)}I", *odd))
        self.run_tool("convert", "odd.wst", "new.wst", "--renumber-tokens")
        renumbered = [list(dict.fromkeys(odd)).index(token) for token in odd]
        self.assertEqual(self.read("new.wst")[-8 - 4 * len(odd):-8], struct.pack(f"<{len(odd)}I", *renumbered))
        # Nothing else changes, but what policies with a row per token decide.
        self.run_tool("convert", self.trace, "without.wst")
        bare, full = self.read("without.wst"), self.read("with.wst")
        self.assertEqual(full[24:len(bare) - 8], bare[24:-8])
        self.assertEqual(len(full), len(bare) + 4 * 4 * 43)
        arguments = ("--policy", "all", "--slots", 4, "--phase", "all")
        told, untold = (self.report("replay", trace, *arguments)["results"] for trace in ("with.wst", self.trace))
        differ = {a["policy"] for a, b in zip(told, untold) if a != b}
        self.assertEqual(differ, {"successor_3_token"})
        # One list without sequences is of all steps.
        self.write("flat", json.dumps({"token": [token for s in range(4) for token in tokens[s]]}))
        self.run_tool("convert", self.trace, "flat.wst", "--tokens", "flat")
        self.assertEqual(self.read("flat.wst"), full)

    def test_bad_tokens(self):
        for text, mentions in (("", ["list"]), ("hello\n", ["list:1:", "hello"]), ('{"s":0}\n', ["list:1:", "missing"]),
                               ('{"s":0,"tokens":[-1]}\n', ["list:1:", "'-1'"]),
                               ('{"s":0,"tokens":[2147483648]}\n', ["list:1:", "2147483648"]),
                               ('{"s":0,"tokens":[1,2]}\n', ["list:1:", "position 2"]),
                               ('{"token":[1,2]}\n', ["list:1:", "a trace of 172"])):
            with self.subTest(text):
                self.write("list", text)
                self.refused("convert", self.trace, "out.wst", "--tokens", "list", mentions=mentions)
        self.refused("convert", self.trace, "out.wst", "--tokens", "missing", mentions=["missing"])

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
        hinted = (*replay, "--slots", 4, "--policy", "lru", "--predictor", "none")
        wide = os.path.join(SOURCE, "examples", "data", "tinymoe-12x64.wst.zst")
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
                ((*replay, "--slots", 4, "--play", "decode", "--phase", "prefill"), ["--phase 'prefill'"]),
                ((*replay, "--slots", 4, "--sequences", "3-1"), ["3-1"]),
                ((*replay, "--slots", 4, "--sequences", "x"), ["x"]),
                ((*replay, "--slots", 4, "--link-gbps", "0"), ["--link-gbps is 0;"]),
                ((*replay, "--slots", 4, "--link-gbps", "1e-9"), ["--link-gbps is 1e-09;"]),
                ((*replay, "--slots", 4, "--copy-us", "-1"), ["--copy-us is -1;"]),
                ((*replay, "--slots", 4, "--predictor", ""), ["predictor ''"]),
                *(((*replay, "--slots", 4, "--predictor", "random", "--width", width), [f"--width is '{width}'"])
                  for width in ("0", "-1", "abc", "0x10", "513", "")),
                *(((*replay, "--slots", 4, "--predictor", "random", "--hint-budget-mib", mib), [f"'{mib}'"])
                  for mib in ("nan", "-nan", "inf", "-1", "1e10")),
                ((*replay, "--slots", 4, "--order", "random"), ["random"]),
                ((*replay, "--slots", 4, "--policy", "lru", "--predictor", "magic"), ["magic", "transition", "adversarial"]),
                ((*replay, "--slots", 4, "--policy", "lru", "--predictor", "none,"), ["''"]),
                ((*replay, "--slots", 4, "--policy", "lru", "--predictor", "transition:horizon=9"), ["horizon is 9", "1|2"]),
                ((*replay, "--slots", 4, "--policy", "lru", "--predictor", "transition:horizon=x"), ["'x'"]),
                ((*replay, "--slots", 4, "--policy", "lru", "--predictor", "random:seed=3"), ["seed", "horizon"]),
                ((*replay, "--slots", 4, "--policy", "lru", "--predictor", "activation_match"), ["hidden states"]),
                ((*replay, "--slots", 4, "--policy", "lru", "--predictor", "router_lookahead"), ["look-ahead", "the trace has none"]),
                ((*replay, "--slots", 4, "--policy", "lru", "--predictor", "router_lookahead", "--order", "recorded"),
                 ["look-ahead", "the trace has none"]),
                (("replay", wide, "--slots", 8, "--policy", "lru", "--predictor", "router_lookahead", "--order", "ascending"),
                 ["look-ahead", "--order recorded"]),
                *((("replay", self.trace, "--slots", 4, "--policy", "lru", "--predictor", f"oracle:horizon={horizon}"),
                   [f"horizon is {horizon}; there is 1|2"]) for horizon in (0, 3, 4294967297, 10 ** 30)),
                *((("replay", self.trace, "--slots", 4, "--policy", "lru", "--predictor", f"none:{given}"),
                   ["predictor none has no parameter", f"'{given}'"]) for given in ("horizon=1", "horizon=0", "x", "")),
                ((*replay, "--slots", 4, "--policy", f"decayed_count:half_life={10 ** 30}"), ["half_life", "more than 4294967295"]),
                ((*replay, "--slots", 4, "--policy", f"lru+insert_budget:insert_bytes={2 ** 64}"), ["more than 18446744073709551615"]),
                ((*replay, "--slots", 4, "--policy", "lru", "--predictor", "none,token_table"), ["token_table", "input tokens", "convert"]),
                ((*replay, "--slots", 4, "--policy", "belady", "--predictor", "none"), ["belady", "decayed_count"]),
                ((*replay, "--budget-mib", 1, "--pool", "shared", "--policy", "lru", "--predictor", "none"), ["slots"]),
                ((*replay, "--slots", 4, "--policy", "lru", "--predictor", "none", "--flatten"), ["--flatten"]),
                ((*replay, "--slots", 4, "--policy", "lru", "--predictor", "none", "--width", 513), ["513"]),
                ((*replay, "--slots", 4, "--policy", "lru", "--predictor", "none", "--width", 0), ["--width"]),
                ((*replay, "--slots", 4, "--policy", "lru", "--predictor", "none", "--governor", "maybe"), ["maybe"]),
                ((*replay, "--slots", 4, "--policy", "lru", "--predictor", "none", "--hint-budget-mib", "-1"), ["-1"]),
                ((*hinted, "--hint-budget-mib", "1,x"), ["--hint-budget-mib", "'x'"]),
                ((*hinted, "--hint-budget-mib", "1,,2"), ["--hint-budget-mib", "''"]),
                ((*hinted, "--hint-budget-mib", "1,2000000000"), ["'2000000000'"]),
                ((*hinted, "--hint-budget-mib", "nan"), ["'nan'"]),
                ((*hinted, "--latency-us", "-3"), ["--latency-us", "-3"]),
                ((*hinted, "--latency-us", "2e9"), ["--latency-us", "2e+09"]),
                ((*hinted, "--latency-us", "soon"), ["--latency-us", "soon"]),
                *(((*replay, "--slots", 4, "--policy", "lru", option, value), [f"{option} requires --predictor"])
                  for option, value in (("--latency-us", 7), ("--latency-us", 0), ("--width", 4), ("--governor", "off"),
                                        ("--governor", "on"), ("--hint-budget-mib", 5))),
                (("sweep", self.trace, "--slots", 4, "--predictor", "none"), ["--predictor"]),
                ((*replay, "--slots", 4, "--unknown"), ["--unknown"]),
                (("sweep", self.trace, "--slots", "4,,5"), ["''"]),
                (("convert", self.trace), []),
                (("play", self.trace), ["'play' is no command", "replay, sweep, tune, info, convert, ids, diff"]),
                (("",), ["'' is no command"]),
                ((), ["subcommand"])):
            with self.subTest(arguments=arguments):
                self.refused(*arguments, mentions=mentions)

    def test_help_is_no_error(self):
        for arguments in (("--help",), ("replay", "--help"), ("sweep", "--help"), ("--version",)):
            done = self.run_tool(*arguments)
            self.assertTrue(done.stdout)
        text = self.run_tool("replay", "--help").stdout
        for name in ("--predictor", "--width", "--governor", "--hint-budget-mib", "--latency-us", "adversarial",
                     "transition[:horizon=1|2]", "previous_step"):
            self.assertIn(name, text)


class TuneTest(unittest.TestCase):
    MODEL = "examples/data/tinymoe-8x32.gguf"
    TRACE = "examples/data/tinymoe-8x32.wst.zst"

    def run_tool(self, *arguments):
        return subprocess.run([TOOL, *map(str, arguments)], capture_output=True, cwd=SOURCE, timeout=600, text=True)

    def tune(self, *more, model=MODEL, trace=TRACE, mib=2, link=16):
        return self.run_tool("tune", model, "--trace", trace, "--vram-mib", mib, "--link", link, *more)

    def test_recommends_slots_a_policy_and_flags(self):
        done = self.tune("--sequences", "0-8", "--policy", "lru,class_lru,successor", "--cpu-gbps", 4, "--json", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        told = json.loads(done.stdout)
        self.assertEqual(told["format"], "warmset-tune")
        best = told["warmset"]
        self.assertEqual(best["slots"], (2 << 20) // (8 * 26112))
        # the same figure as a replay's, played in the recorded order
        again = self.run_tool("replay", self.TRACE, "--sequences", "0-8", "--policy", best["policy"], "--slots", best["slots"],
                              "--pool", best["pool"], "--order", "recorded", "--phase", "decode", "--no-oracles", "--json", "-")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertAlmostEqual(json.loads(again.stdout)["results"][0]["hit_rate"], best["hit_rate"], places=9)
        shares = told["upstream"]["shares"]
        self.assertEqual([s["moe_cache_cpu_share"] for s in shares], [i / 10 for i in range(10)])
        fastest = max(shares, key=lambda s: s["tokens_per_second"])
        self.assertEqual(told["upstream"]["recommended"], fastest)
        self.assertGreater(fastest["moe_cache_cpu_share"], 0)
        self.assertIn(f"--moe-cache-mib 2 --moe-cache-cpu-share {fastest['moe_cache_cpu_share']:.2f}",
                      told["upstream"]["flags"])

    def test_text_says_the_flags(self):
        done = self.tune("--sequences", "0", "--policy", "lru", mib=1000)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("flags of llama.cpp: --moe-cache-mib 7 --moe-cache-cpu-share 0.00", done.stdout)  # all experts
        self.assertIn("32 slots in each layer", done.stdout)

    def test_wrong_inputs_are_one_line(self):
        def refused(done, says):
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(says, done.stderr)

        refused(self.tune(model="README.md"), "not a GGUF file")
        refused(self.tune(model="nowhere.gguf"), "nowhere.gguf: No such file")
        refused(self.tune(model="examples"), "a directory")
        refused(self.tune(trace="README.md"), "README.md")
        refused(self.tune(trace="examples/data/tinymoe-12x64.wst.zst"), "is no trace of")
        refused(self.tune(mib=0.5), "--vram-mib is 0.5")
        refused(self.tune(link=0), "--link-gbps is 0")
        refused(self.tune("--cpu-gbps", -1), "--cpu-gbps")
        refused(self.tune("--play", "prefill"), "no decode step")
        refused(self.run_tool("tune", self.MODEL, "--trace", self.TRACE), "--vram-mib")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    TOOL, SOURCE = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
