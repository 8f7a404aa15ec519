"""Draws the README's picture: iterations per second against memory, with GraphBolt and PyG.

``python bench/draw_defaults.py --record NAME.json --out FILE.svg``

Takes a record of bench/defaults.py. Each point is one run; lines join the means of runs with the
same memory. A run that ended for want of memory is a cross on the axis. Light and dark pages show
the tone of text and lines alike.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

BENCH = Path(__file__).resolve().parent
RECORD = BENCH / "results" / "2026-11-22-defaults.json"
PICTURE = BENCH.parent / "docs" / "assets" / "iterations-by-memory.svg"

PROGRAMS = {"LSM-GNN": "defaults", "GraphBolt": "GraphBolt", "PyG": "PyG"}
COLOURS = {"LSM-GNN": "#0f9d8a", "GraphBolt": "#d9822b", "PyG": "#8f7ee7"}
MARKERS = {"LSM-GNN": "o", "GraphBolt": "s", "PyG": "D"}
TONE = "#78879a"
TITLE = "Iterations per second by memory: LSM-GNN, GraphBolt and PyG"


def parse_args() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--record", type=Path, default=RECORD)
    arguments.add_argument("--out", type=Path, default=PICTURE)
    return arguments.parse_args()


def rates(record: list[dict]) -> dict[str, list[tuple[float, float]]]:
    """For each program its runs: memory in GiB, and iterations/s, 0 for a run that failed."""
    points: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for entry in record:
        for case in entry["defaults"]:
            memory = case["limit_bytes"] or entry["machine"]["memory_gib"] * 2**30
            for program, key in PROGRAMS.items():
                if key in case["reached"]:
                    rate = case["reached"][key]["iterations_per_s"]
                    points[program].append((memory / 2**30, rate))
    return {program: sorted(points[program]) for program in PROGRAMS}


def meaning(memory: float, feature_bytes: int, machine_gib: float) -> str:
    """The label of an amount of memory."""
    if memory >= machine_gib:
        return f"{memory:.0f} GiB\nfeatures fit"
    part = round(feature_bytes / 2**30 / memory)
    return f"{memory:.2g} GiB\n1/{part} of the features"


def draw(record: list[dict], path: Path) -> None:
    points = rates(record)
    first = record[0]
    figure = Figure(figsize=(8, 3.9), layout="constrained")
    axis = figure.subplots()
    for program, runs in points.items():
        colour, marker = COLOURS[program], MARKERS[program]
        ran = [(x, y) for x, y in runs if y > 0]
        means = {x: sum(y for m, y in ran if m == x) / sum(m == x for m, _ in ran) for x, _ in ran}
        axis.plot(list(means), list(means.values()), color=colour, linewidth=2.2)
        axis.plot(*zip(*ran, strict=True), marker, color=colour, markersize=8)
        for x in sorted({x for x, y in runs if y == 0}):
            shift = 1.06 if program == "PyG" else 1 / 1.06
            axis.plot(x * shift, 0, "x", color=colour, markersize=10, mew=2.5, clip_on=False)
        bold = {"textcoords": "offset points", "color": colour, "fontweight": "bold"}
        for x, y in ran:
            axis.annotate(f"{y:.1f}", (x, y), xytext=(-8, 4), ha="right", fontsize=11, **bold)
        axis.annotate(program, max(ran), xytext=(12, -5), fontsize=13, **bold)
    amounts = sorted({x for runs in points.values() for x, _ in runs})
    grey = {"textcoords": "offset points", "color": TONE, "fontsize": 11}
    axis.annotate("out of memory", (amounts[0], 0), xytext=(18, 6), **grey)
    features = first["graph"]["nodes"] * first["graph"]["row_bytes"]
    machine = first["machine"]["memory_gib"]
    axis.set_xscale("log")
    axis.set_xticks(amounts, [meaning(x, features, machine) for x in amounts])
    axis.minorticks_off()
    axis.set_xlim(amounts[0] / 1.35, amounts[-1] * 1.75)
    axis.set_ylim(0, 10.5)
    axis.set_ylabel("iterations per second")
    axis.set_xlabel(f"memory, for a graph with {features / 2**30:.1f} GiB of features")
    axis.grid(axis="y", color=TONE, alpha=0.25)
    axis.tick_params(colors=TONE, length=0)
    for label in (axis.xaxis.label, axis.yaxis.label):
        label.set_color(TONE)
    for side, spine in axis.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(TONE)
    figure.savefig(path, transparent=True, metadata={"Date": None, "Title": TITLE})


def main() -> None:
    args = parse_args()
    # Ids that do not differ from call to call, and letters that any viewer has.
    matplotlib.rcParams.update({"svg.hashsalt": "lsm", "svg.fonttype": "none", "font.size": 12})
    matplotlib.rcParams["font.family"] = ["sans-serif"]
    matplotlib.rcParams["font.sans-serif"] = ["DejaVu Sans"]
    draw(json.loads(args.record.read_text()), args.out)


if __name__ == "__main__":
    main()
