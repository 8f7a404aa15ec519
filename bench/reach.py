"""Measures training from disk, in one run on one machine, and writes a record.

``python bench/reach.py --workdir DIR --peer-python PYTHON --out bench/results/NAME``

DIR needs about 20 GiB for two generated stores, which are removed. PYTHON belongs to an environment
with DGL 2.1 and GraphBolt (bench/peers/README.md); without it the peers' columns stay empty. Writes
NAME.json (all measurements) and NAME.md (the summary), and prints the summary. Every part is a
script that also runs alone.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from common import BENCH, FANOUTS, PEER_MALLOC, parser, publish_page, run_lsm, run_program

SMALL_STORE = {"nodes": 1_000_000, "avg-degree": 12.9}  # 12M edges once repeats are dropped
LARGE_STORE = {"nodes": 16 << 20, "avg-degree": 4}  # 16 GiB of features
ROW_BYTES = 1024
GIB_IN_KIB = 2**20


@dataclass(frozen=True)
class Line:
    """One line of the summary."""

    what: str
    ours: str
    other: str
    ratio: float | None
    target: str
    reached: bool | None


def parse_args() -> argparse.Namespace:
    arguments = parser(__doc__, record="out")
    arguments.add_argument("--workdir", type=Path, default=Path("."))
    arguments.add_argument("--peer-python")
    arguments.add_argument("--disk-peer-python", help="one whose GraphBolt has DiskBasedFeature")
    arguments.add_argument("--scale", type=float, default=1.0, help="below 1: a quick rehearsal")
    return arguments.parse_args()


def run(command: list[str], environment: dict[str, str] | None = None) -> dict:
    print("+", " ".join(map(str, command)), file=sys.stderr, flush=True)
    return run_program(command, timeout=3600, env=environment or {})


def bench(script: str, *arguments: object) -> dict:
    return run([sys.executable, BENCH / script, *arguments])


def make_store(path: Path, settings: dict, scale: float) -> Path:
    nodes = int(settings["nodes"] * scale)
    options = ["--nodes", nodes, "--avg-degree", settings["avg-degree"], "--dim", ROW_BYTES // 4]
    run_lsm("data", "synth", "--out", path, *options, "--classes", 47, "--seed", 1)
    return path


def storage(features: Path, directory: Path) -> tuple[dict, list[Line], float]:
    out = directory / "storage.json"
    options = ["--blocks", "4KiB", "--depths", "32,128", "--repeats", 5, "--seconds", 2]
    run_lsm("bench", "storage", "--path", features, *options, "--fio", "--json", out)
    result = json.loads(out.read_text())
    rate = {(point["reader"], point["queue_depth"]): point["iops"] for point in result["points"]}
    lines = []
    for depth in (32, 128):
        ours, fio = rate["io_uring", depth], rate["fio", depth]
        what = f"random 4 KiB reads, depth {depth}, against fio (IOPS)"
        lines.append(
            Line(what, f"{ours:,.0f}", f"{fio:,.0f}", ours / fio, "0.95x", ours >= 0.95 * fio)
        )
    return result, lines, max(rate["fio", 32], rate["fio", 128])


def features(directory: Path, args: argparse.Namespace) -> tuple[dict, list[Line]]:
    options = ["--dir", directory, "--size", int(args.scale * 2**33), "--check", "--rounds", 3]
    for python in (args.peer_python, args.disk_peer_python):
        options += ["--peer-python", python] if python else []
    result = bench("features.py", *options)
    lines = []
    for row in result["features"]:
        rates = row["rows_per_s"]
        ours = rates["FeatureLoader(io_uring)"]
        for reader, rate in rates.items():
            if reader.startswith("FeatureLoader"):
                continue
            target = 2.5 if reader.startswith("numpy") else 1.0
            what = f"{row['row_bytes']} B rows from disk, against {reader} (rows/s)"
            reached = ours >= target * rate
            lines.append(Line(what, f"{ours:,}", f"{rate:,}", ours / rate, f"{target:g}x", reached))
    return result, lines


def sampler(store: Path, args: argparse.Namespace) -> tuple[dict, list[Line]]:
    results, lines = {}, []
    for fanouts in (FANOUTS, "10,10,10"):
        for threads in (1, 2):
            setting = ["--store", store, "--fanouts", fanouts, "--threads", threads]
            batches = ["--batches", 200 if fanouts == FANOUTS else 40]
            ours = bench("sampler.py", *setting, *batches)
            key = f"{fanouts} x {threads} threads"
            results[key] = {"ours": ours}
            if not args.peer_python:
                continue
            script = BENCH / "peers" / "dgl_sampler.py"
            peer = run([args.peer_python, script, *setting, *batches])
            results[key]["peer"] = peer
            for name in ("dgl", "graphbolt"):
                rate, other = ours["edges_per_s"], peer[name]["edges_per_s"]
                what = f"sampling {fanouts}, {threads} thread(s), against {name} (M edges/s)"
                text = f"{rate / 1e6:.1f}", f"{other / 1e6:.1f}"
                lines.append(Line(what, *text, rate / other, "1.5x", rate >= 1.5 * other))
    return results, lines


def training(store: Path, fio_iops: float, args: argparse.Namespace) -> tuple[dict, list[Line]]:
    setting = ["--store", store, "--iters", 50, "--rounds", 5]
    memory = bench("training.py", *setting, "--engine", "memory")
    in_memory = memory["training"][0]
    results, lines = {"memory": memory}, []
    if args.peer_python:
        script = BENCH / "peers" / "graphbolt_train.py"
        command = [args.peer_python, script, "--store", store, "--iters", 50]
        peer = run([*command, "--num-workers", "0,1"], PEER_MALLOC)
        results["graphbolt"] = peer
        ours, other = in_memory["iterations_per_s"], peer["iters_per_s"]
        what = "training from memory, against GraphBolt (iterations/s)"
        reached = ours >= other
        lines.append(Line(what, f"{ours:.1f}", f"{other:.1f}", ours / other, "1x", reached))
    disk = bench(
        "training.py", *setting, "--iters", 20, "--engine", "io_uring", "--fio-iops", fio_iops
    )
    results["disk"] = disk
    from_disk = disk["training"][0]
    ours = from_disk["seconds_per_iteration"]
    bound = max(in_memory["seconds_per_iteration"], from_disk["read_seconds_per_iteration"])
    what = "training from disk, against the larger of memory and reads / fio's IOPS (s/iteration)"
    lines.append(
        Line(what, f"{ours:.3f}", f"{bound:.3f}", ours / bound, "at most 1.1x", ours <= 1.1 * bound)
    )
    return results, lines


def resident_memory(store: Path) -> tuple[dict, list[Line]]:
    options = ["--store", store, "--engine", "io_uring", "--iters", 20, "--rounds", 2]
    result = bench("training.py", *options)
    memory = result["training"][0]["memory_kib"]
    topology = sum(path.stat().st_size for path in (store / "topology").iterdir()) / 1024
    beside = memory["peak"] - min(topology, memory["file_backed"])
    gib = (store / "features.bin").stat().st_size / 2**30
    what = f"peak resident memory apart from the topology, {gib:.0f} GiB of features (GiB)"
    return result, [
        Line(what, f"{beside / GIB_IN_KIB:.2f}", "", None, "under 2", beside < 2 * GIB_IN_KIB)
    ]


def summary(made: dict, lines: list[Line]) -> str:
    machine = made["machine"]
    rows = [
        "| what | ours | other | ratio | target | reached |",
        "|---|---|---|---|---|---|",
    ]
    for line in lines:
        ratio = "" if line.ratio is None else f"{line.ratio:.2f}x"
        reached = {True: "yes", False: "**no**", None: ""}[line.reached]
        rows.append(
            f"| {line.what} | {line.ours} | {line.other} | {ratio} | {line.target} | {reached} |"
        )
    head = (
        f"Commit {made['commit']}, {made['date']}; {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_gib']} GiB, Linux {machine['kernel']}, torch {machine['torch']}.\n\n"
        f"    {made['command']}\n"
    )
    return head + "\n" + "\n".join(rows) + "\n"


def main() -> None:
    args = parse_args()
    if shutil.which("fio") is None:  # before 17 GiB are written
        sys.exit("error: fio is not installed; install it (Debian: fio)")
    directory = Path(tempfile.mkdtemp(prefix="lsm-reach-", dir=args.workdir))
    try:
        large = make_store(directory / "large", LARGE_STORE, args.scale)
        small = make_store(directory / "small", SMALL_STORE, args.scale)
        results, lines = {}, []
        results["storage"], more, fio_iops = storage(large / "features.bin", directory)
        lines += more
        for name, measured in (
            ("features", features(directory, args)),
            ("sampler", sampler(small, args)),
            ("training", training(small, fio_iops, args)),
            ("memory", resident_memory(large)),
        ):
            results[name], more = measured
            lines += more
    finally:
        shutil.rmtree(directory)
    publish_page(results, args, lambda made: summary(made, lines))


if __name__ == "__main__":
    main()
