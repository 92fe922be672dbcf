#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws a report of warmset-replay: capacity curves with both oracles, hits by layer, waste.

    plot.py REPORT.json -o PICTURE.png [--phase decode|prefill|all] [--at N] [--dpi N]

REPORT.json is what `warmset-replay sweep` or `replay` wrote with --json. --at names the capacity (slots, or MiB) of
the second and third panel; the default is the second smallest, where policies differ most.
"""

import argparse
import json
import os
import sys
import tempfile

os.environ.setdefault("MPLCONFIGDIR", tempfile.mkdtemp(prefix="warmset-plot-"))

try:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import PercentFormatter
except ImportError:
    sys.exit("plot.py: error: matplotlib is missing; on Debian: apt install python3-matplotlib")

ORACLES = ("belady", "belady_bypass")
# Colours that stay apart for colour-blind readers, after Okabe and Ito, and markers that stay apart in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#7A4EAB", "#4D4D4D", "#B2182B")
MARKERS = "osD^vP<>Xh"


def capacity(result):
    """The capacity as the axis has it: slots per layer, or MiB."""
    return result["slots"] if result["slots"] is not None else result["budget_bytes"] / 2**20


def merge_twins(names, curves):
    """Policies with the same hits everywhere share one line: [(label, policy)]."""
    merged = []
    for name in names:
        for entry in merged:
            if curves[entry[1]] == curves[name]:
                entry[0] += f" = {name}"
                break
        else:
            merged.append([name, name])
    return [tuple(entry) for entry in merged]


def draw_curves(axes, results, at, unit, total):
    names, curves = [], {}
    for result in results:
        if result["policy"] not in curves:
            names.append(result["policy"])
        curves.setdefault(result["policy"], {})[capacity(result)] = result["hit_rate"]
    capacities = sorted({capacity(result) for result in results})
    policies = merge_twins([name for name in names if name not in ORACLES], curves)
    # The best first, so that the legend reads like the curves.
    policies.sort(key=lambda entry: -sum(curves[entry[1]].values()))
    oracles = [entry for entry in (("belady_bypass", ":", "belady_bypass (may decline)"),
                                   ("belady", "--", "belady (must install)")) if entry[0] in curves]
    axes.set_title("Hit rate by capacity" if len(capacities) > 1 else f"Hit rate at {at:g} {unit} of {total:,.0f}",
                   loc="left", fontsize=11, fontweight="bold")
    if len(capacities) == 1:
        draw_bars(axes, [(label, curves[name][at]) for label, name in policies],
                  [(curves[name][at], style, label) for name, style, label in oracles])
        return
    for name, style, label in oracles:
        axes.plot(capacities, [curves[name].get(c) for c in capacities], style, color="black", linewidth=1.6,
                  label=label, zorder=3)
    if "belady" in curves:
        axes.fill_between(capacities, [curves["belady"].get(c) for c in capacities], 1.0, color="0.93", zorder=0)
    for index, (label, name) in enumerate(policies):
        points = sorted(curves[name].items())
        axes.plot([x for x, _ in points], [y for _, y in points], color=COLOURS[index % len(COLOURS)], linewidth=1.4,
                  marker=MARKERS[index % len(MARKERS)], markersize=4.5, label=label, zorder=4)
    axes.axvline(at, color="0.6", linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
    axes.set_xticks(capacities)
    axes.set_xticklabels([f"{c:g}" for c in capacities])
    axes.set_xlabel(f"capacity ({unit}, of {total:,.0f})")
    axes.set_ylabel("demand hit rate")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    low = min(min(curve.values()) for curve in curves.values())
    axes.set_ylim(max(0.0, low - 0.05), 1.0)
    axes.grid(True, color="0.88", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(fontsize=8, loc="lower right", frameon=True, framealpha=0.95, edgecolor="0.8")


def draw_bars(axes, policies, oracles):
    """One capacity: a bar for each policy, a line for each oracle."""
    names = [label for label, _ in policies]
    rates = [rate for _, rate in policies]
    axes.barh(names, rates, color=COLOURS[0], height=0.65)
    for y, rate in enumerate(rates):
        axes.text(rate, y, f"{100 * rate:.1f} % ", va="center", ha="right", fontsize=8, color="white")
    for rate, style, label in oracles:
        axes.axvline(rate, color="black", linestyle=style, linewidth=1.6, label=f"{label}, {100 * rate:.1f} %")
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlabel("demand hit rate")
    axes.tick_params(axis="y", labelsize=8)
    axes.grid(True, axis="x", color="0.88", linewidth=0.6)
    axes.set_axisbelow(True)
    if oracles:
        axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(0.0, -0.08), ncol=2, frameon=False)


def draw_layers(figure, axes, results):
    ordered = sorted(results, key=lambda r: (r["policy"] in ORACLES, -r["hit_rate"]))
    ordered = [r for r in ordered if r["policy"] not in ORACLES] + [r for r in ordered if r["policy"] in ORACLES]
    rows = [[layer["hit_rate"] if layer["demand_accesses"] else float("nan") for layer in r["per_layer"]]
            for r in ordered]
    layers = [layer["layer"] for layer in ordered[0]["per_layer"]]
    image = axes.imshow(rows, aspect="auto", cmap="cividis", interpolation="nearest")
    axes.set_yticks(range(len(ordered)))
    axes.set_yticklabels([r["policy"] for r in ordered], fontsize=8)
    step = max(1, -(-len(layers) // 12))
    axes.set_xticks(range(0, len(layers), step))
    axes.set_xticklabels([str(layers[i]) for i in range(0, len(layers), step)], fontsize=8)
    axes.set_xlabel("layer")
    split = sum(r["policy"] not in ORACLES for r in ordered)
    if 0 < split < len(ordered):
        axes.axhline(split - 0.5, color="white", linewidth=2)
    if len(layers) <= 16:
        low, high = image.get_clim()
        for y, row in enumerate(rows):
            for x, value in enumerate(row):
                if value == value:
                    axes.text(x, y, f"{100 * value:.0f}", ha="center", va="center", fontsize=7,
                              color="black" if value > (low + high) / 2 else "white")
    bar = figure.colorbar(image, ax=axes, fraction=0.035, pad=0.02)
    bar.ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    bar.set_label("demand hit rate", fontsize=8)
    bar.ax.tick_params(labelsize=8)


def draw_waste(axes, results):
    ordered = [r for r in results if r["wasted_installs"] is not None and r["tokens"]]
    ordered.sort(key=lambda r: r["installs"], reverse=True)
    names = [r["policy"] for r in ordered]
    used = [(r["installs"] - r["wasted_installs"]) / r["tokens"] for r in ordered]
    wasted = [r["wasted_installs"] / r["tokens"] for r in ordered]
    axes.barh(names, used, color="#56B4E9", label="used again, or still resident")
    axes.barh(names, wasted, left=used, color="#D55E00", label="wasted: evicted without a further use")
    longest = max((u + w for u, w in zip(used, wasted)), default=1)
    for y, (u, w) in enumerate(zip(used, wasted)):
        if u + w > 0:
            axes.text(u + w + longest * 0.01, y, f"{100 * w / (u + w):.0f} % wasted", va="center", fontsize=7.5,
                      color="0.25")
    axes.set_xlim(0, longest * 1.2)
    axes.tick_params(axis="y", labelsize=8)
    axes.set_xlabel("installs per token (experts)")
    axes.grid(True, axis="x", color="0.88", linewidth=0.6)
    axes.set_axisbelow(True)
    # Above the bars: no place within is free for every report.
    axes.legend(fontsize=7.5, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncol=2, frameon=False, borderaxespad=0.2,
                columnspacing=1.2, handlelength=1.2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--phase", choices=("decode", "prefill", "all"))
    parser.add_argument("--at", type=float)
    parser.add_argument("--dpi", type=int, default=130)
    arguments = parser.parse_args()

    try:
        with open(arguments.report, encoding="utf-8") as source:
            report = json.load(source)
        phases = {result["phase"] for result in report["results"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"plot.py: error: {arguments.report}: {error}")
    phase = arguments.phase or next((p for p in ("decode", "all", "prefill") if p in phases), None)
    # entries with hints are of the same policies, and have tables of their own
    results = [result for result in report["results"] if result["phase"] == phase and result.get("predictor") is None]
    if not results:
        sys.exit(f"plot.py: error: {arguments.report}: no result of phase {phase}")
    capacities = sorted({capacity(result) for result in results})
    at = arguments.at if arguments.at is not None else capacities[min(1, len(capacities) - 1)]
    chosen = [result for result in results if abs(capacity(result) - at) < 1e-6 * max(1.0, at)]
    if not chosen:
        sys.exit(f"plot.py: error: no result at {at:g}; there are {', '.join(f'{c:g}' for c in capacities)}")

    trace = report["trace"]
    by_slots = results[0]["slots"] is not None
    unit = "slots per layer" if by_slots else "MiB"
    total = trace["experts_per_layer"]["max"] if by_slots else trace["total_bytes"] / 2**20

    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    rows = max(len(chosen), 4)
    figure = plt.figure(figsize=(13.5, max(7.2, 3.4 + 0.34 * rows)), constrained_layout=True)
    grid = figure.add_gridspec(2, 2, width_ratios=(1.05, 1.0))
    draw_curves(figure.add_subplot(grid[:, 0]), results, at, unit, total)

    pool = results[0]["pool"]
    where = f"at {at:g} {unit}"
    axes = figure.add_subplot(grid[0, 1])
    draw_layers(figure, axes, chosen)
    axes.set_title(f"Hit rate by layer, {where}", loc="left", fontsize=11, fontweight="bold")
    axes = figure.add_subplot(grid[1, 1])
    draw_waste(axes, chosen)
    axes.set_title(f"Installs, {where}", loc="left", fontsize=11, fontweight="bold", pad=20)

    name = trace["model"] or os.path.basename(trace["file"])
    k = trace["k"]["max"]
    figure.suptitle(f"{name}: {trace['layers']} layers x {trace['experts_per_layer']['max']} experts, k = {k}; {phase}, "
                    f"{results[0]['tokens']:,} tokens, {pool} pools", fontsize=13, x=0.01, ha="left")
    figure.text(0.01, -0.005, f"Unit: {report['unit']}.\nScope: {report['scope']}.\n{report['denominator']}.",
                fontsize=7.5, color="0.35", ha="left", va="top")
    folder = os.path.dirname(os.path.abspath(arguments.output))
    kind = os.path.splitext(arguments.output)[1].lstrip(".") or "png"
    try:
        handle, part = tempfile.mkstemp(suffix="." + kind, dir=folder)
        os.close(handle)
        try:
            figure.savefig(part, dpi=arguments.dpi, bbox_inches="tight", pad_inches=0.15, facecolor="white")
            os.chmod(part, 0o644)
            os.replace(part, arguments.output)
        except BaseException:
            os.unlink(part)
            raise
    except (OSError, ValueError) as error:
        sys.exit(f"plot.py: error: {arguments.output}: {error}")


if __name__ == "__main__":
    main()
