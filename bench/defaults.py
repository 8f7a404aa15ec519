"""Training with nothing set but the store, against a sweep of settings by hand and against peers.

``python bench/defaults.py --workdir DIR --graphbolt-python PY --pyg-python PY --out NAME``

Three cases: the machine as it is, where the features fit in memory (``fits``), and a memory control
group of a half and of an eighth of the features' bytes, for processes and page cache together
(memory_limit.py). In each case one epoch is trained by

- ``lsm train base data.path=STORE``, with nothing else set;
- the same command with each setting of a sweep (``--sweep`` names others than the built-in ones);
- GraphBolt 2.1.0 and PyG (``peers/graphbolt_train.py``, ``peers/pyg_train.py``): the same model
  without dropout, fanouts and batch size; features in memory in the first case, else over a map
  with MADV_RANDOM; ``--peer-settings`` names threads and workers to try.

They take turns, each in a process of its own, after the store has been dropped from the page cache.
The best setting of the sweep, and of each peer, in the first round continues in the other rounds.
The rate is that of the iterations after ``--warmup``: up to ``--iters``, fewer once ``--seconds``
are over. ``epoch_secs`` is an epoch with its warm-up and validation. Medians over ``--rounds``.

Without ``--store`` one is generated in DIR and removed: 2M nodes with 8 GB of features in rows of
4 KiB, of which an epoch of ``--warmup + --iters`` iterations trains. Writes NAME.json and NAME.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from memory_limit import MemoryLimit

import lsm
from common import (
    BATCH_SIZE,
    BENCH,
    PEER_MALLOC,
    about,
    drop_cache,
    parser,
    publish_page,
    run_lsm,
    run_program,
    spread,
)

CASES = {"fits": None, "half": 1 / 2, "eighth": 1 / 8}
SWEEP_TARGET = 0.9
PEER_TARGETS = {"fits": 1.5, "half": 2.0, "eighth": 2.0}
POLL_SECS = 0.2
STOP_SECS = 120


def parse_args() -> argparse.Namespace:
    arguments = parser(__doc__, record="out")
    arguments.add_argument("--workdir", type=Path, default=Path("."))
    arguments.add_argument("--store", type=Path, help="default: a generated one")
    arguments.add_argument("--nodes", type=int, default=2_000_000, help="of the generated store")
    arguments.add_argument("--dim", type=int, default=1024, help="of the generated store")
    arguments.add_argument("--cases", default=",".join(CASES))
    arguments.add_argument("--sweep", action="append", help="overrides of one setting, by spaces")
    arguments.add_argument("--graphbolt-python")
    arguments.add_argument("--pyg-python")
    arguments.add_argument("--peer-settings", default="2:0,16:1", help="threads:workers, by commas")
    arguments.add_argument("--warmup", type=int, default=20)
    arguments.add_argument("--iters", type=int, default=40)
    arguments.add_argument("--seconds", type=float, default=30.0)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--timeout", type=float, default=600.0, help="seconds for one process")
    return arguments.parse_args()


@contextmanager
def store_to_train(args: argparse.Namespace) -> Iterator[Path]:
    if args.store:
        yield args.store.resolve()
        return
    directory = Path(tempfile.mkdtemp(prefix="lsm-defaults-", dir=args.workdir)).resolve()
    try:
        fraction = BATCH_SIZE * (args.warmup + args.iters) / args.nodes
        options = ["--nodes", args.nodes, "--dim", args.dim, "--classes", 47, "--seed", 1]
        options += ["--avg-degree", 12.9, "--train-fraction", fraction]
        options += ["--valid-fraction", fraction / 6, "--test-fraction", fraction / 6]
        run_lsm("data", "synth", "--out", directory / "store", *options)
        yield directory / "store"
    finally:
        shutil.rmtree(directory)


def settings_to_sweep(limit_bytes: int | None, feature_bytes: int) -> list[str]:
    """Engine, policy, bytes, window and read-ahead, as an expert who knows the sizes would try
    them."""

    def planned(cache: float, pool: float, window: int) -> str:
        of = limit_bytes or feature_bytes
        return (
            f"storage.engine=io_uring cache.policy=lookahead cache.bytes={int(cache * of)} "
            f"cache.victim.mode=pool cache.victim.bytes={int(pool * of)} cache.window={window}"
        )

    if limit_bytes is None:
        return [
            "storage.engine=memory",
            "storage.engine=memory loader.prefetch=8 loader.num_threads=2",
            "storage.engine=mmap",
            planned(0.5, 0.25, 64),
        ]
    return [
        "storage.engine=io_uring cache.policy=none loader.prefetch=16",
        planned(0.3, 0.1, 32),
        planned(0.3, 0.2, 64),
        planned(0.4, 0.2, 64),
        planned(0.4, 0.2, 64) + " loader.prefetch=16",
        planned(0.5, 0.1, 32),
    ]


class Case:
    """One amount of memory, in which commands run one after the other."""

    def __init__(self, name: str, store: lsm.GraphStore, args: argparse.Namespace) -> None:
        self.name = name
        self.args = args
        self.path = store.path
        self.feature_bytes = store.num_nodes * store.row_bytes
        share = CASES[name]
        self.limit_bytes = None if share is None else int(share * self.feature_bytes)

    @contextmanager
    def limit(self) -> Iterator[MemoryLimit | None]:
        drop_cache(self.path)
        with MemoryLimit(self.limit_bytes) if self.limit_bytes else nullcontext() as limit:
            yield limit

    def run_ours(self, overrides: str) -> dict:
        """Runs ``lsm train`` and stops it after one epoch."""
        command = [sys.executable, "-m", "lsm", "train", "base", f"data.path={self.path}"]
        folder = Path(tempfile.mkdtemp(prefix="lsm-run-", dir=self.args.workdir))
        try:
            with (folder / "stderr").open("w") as errors, self.limit() as limit:
                start = limit.start if limit else subprocess.Popen
                # In a directory of its own, since nothing is set, not even run.dir.
                process = start(
                    command + overrides.split(),
                    cwd=folder,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                )
                try:
                    lines = self._follow(process, folder)
                finally:
                    _stop(process)
                peak = limit.peak_bytes() if limit else None
            text = (folder / "stderr").read_text().replace(str(self.path), "STORE")
            said = text.strip().splitlines()
        finally:
            shutil.rmtree(folder)
        result = self._measured(lines) | {"charged_peak_bytes": peak, "said": said}
        if "iterations_per_s" not in result:
            result["failed"] = f"exit status {process.returncode}: {said[-1] if said else ''}"
        return result

    def _follow(self, process: subprocess.Popen, folder: Path) -> list[dict]:
        """The result of _metrics after an epoch, or after enough measurements."""
        deadline = time.monotonic() + self.args.timeout
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(POLL_SECS)
            lines = _metrics(folder)
            if any(line["kind"] == "epoch" for line in lines):
                break
            if sum(map(_secs, self._steps(lines))) > self.args.seconds:
                break
        return _metrics(folder)

    def _steps(self, lines: Sequence[dict]) -> list[dict]:
        return [line for line in lines if line["kind"] == "step"][self.args.warmup :]

    def _measured(self, lines: Sequence[dict]) -> dict:
        steps = self._steps(lines)
        if not steps:
            return {}
        secs = sum(map(_secs, steps))
        epoch = next((line for line in lines if line["kind"] == "epoch"), {})
        return {
            "iterations_per_s": len(steps) / secs,
            "iterations": len(steps),
            "wait_share": sum(line["wait_secs"] for line in steps) / secs,
            "hit_ratio": 1 - _sum(steps, "misses") / max(1, _sum(steps, "requests")),
            "train_secs": epoch.get("train_secs"),
            "epoch_secs": epoch.get("seconds"),
        }

    def run_peer(self, script: str, python: str, setting: str) -> dict:
        threads, workers = setting.split(":")
        args = self.args
        command = [python, BENCH / "peers" / script, "--store", self.path, "--threads", threads]
        features = "mmap" if self.limit_bytes else "memory"
        command += ["--num-workers", workers, "--features", features]
        command += ["--batch-size", BATCH_SIZE, "--warmup", args.warmup, "--iters", args.iters]
        command += ["--repeats", 1, "--seconds", args.seconds]
        with self.limit() as limit:
            start = limit.run if limit else subprocess.run
            try:
                made = run_program(command, start, timeout=args.timeout, env=PEER_MALLOC)
                made["iterations_per_s"] = made["iters_per_s"]
            except RuntimeError as error:
                made = {"failed": str(error)}
            return made | {"charged_peak_bytes": limit.peak_bytes() if limit else None}

    def measure(self) -> dict:
        """The result of each contender: its best setting, the median rate, and every run."""
        args = self.args
        sweep = args.sweep or settings_to_sweep(self.limit_bytes, self.feature_bytes)
        peers = {"GraphBolt": ("graphbolt_train.py", args.graphbolt_python)}
        peers["PyG"] = ("pyg_train.py", args.pyg_python)
        peer_settings = args.peer_settings.split(",")
        settings = {"defaults": [""], "sweep": sweep}
        settings |= {name: peer_settings for name, (_, python) in peers.items() if python}
        runs: dict[str, dict[str, list[dict]]] = {name: {} for name in settings}
        for _ in range(args.rounds):
            for name, ways in settings.items():
                for way in ways:
                    run = self.run_peer(*peers[name], way) if name in peers else self.run_ours(way)
                    print(self.name, name, way, json.dumps(run), file=sys.stderr, flush=True)
                    runs[name].setdefault(way, []).append(run)
                settings[name] = [best_way(runs[name])]
        limited = {"limit_bytes": self.limit_bytes, "feature_bytes": self.feature_bytes}
        reached = {name: reached_by(runs[name]) for name in runs}
        return {"case": self.name} | limited | {"reached": reached, "runs": runs}


def _metrics(folder: Path) -> list[dict]:
    """The lines of the first epoch in the metrics.jsonl somewhere below ``folder``."""
    path = next(folder.rglob("metrics.jsonl"), None)
    whole = path.read_text().rpartition("\n")[0] if path else ""
    lines = [json.loads(line) for line in whole.splitlines()]
    ends = [at + 1 for at, line in enumerate(lines) if line["kind"] == "epoch"]
    return lines[: ends[0]] if ends else lines


def _secs(step: dict) -> float:
    return step["wait_secs"] + step["step_secs"]


def _sum(steps: Sequence[dict], name: str) -> float:
    return sum(step[name] for step in steps)


def _stop(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def median_rate(results: Sequence[dict]) -> float:
    """The median rate of the successful runs; 0 without any."""
    rates = [result["iterations_per_s"] for result in results if "failed" not in result]
    return statistics.median(rates) if rates else 0.0


def best_way(runs: dict[str, list[dict]]) -> str:
    return max(runs, key=lambda way: median_rate(runs[way]))


def reached_by(runs: dict[str, list[dict]]) -> dict:
    best = best_way(runs)
    rates = [run["iterations_per_s"] for run in runs[best] if "failed" not in run]
    failed = [run["failed"] for run in runs[best] if "failed" in run]
    epochs = [run["epoch_secs"] for run in runs[best] if run.get("epoch_secs")]
    return {
        "setting": best,
        **spread("iterations_per_s", rates or [0.0]),
        "epoch_secs": statistics.median(epochs) if epochs else None,
        "failed": failed,
    }


def summary(made: dict) -> str:
    lines = [
        f"Commit {made['commit']}, {made['date']}; {made['machine']['cpu']}, "
        f"{made['machine']['cores']} cores, torch {made['machine']['torch']}.\n",
        f"    {made['command']}\n",
        "| case | against | its best setting | its iterations/s | defaults' (min to max) | ratio "
        "| target | reached |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case in made["defaults"]:
        reached = case["reached"]
        ours = reached["defaults"]
        rate = ours["iterations_per_s"]
        spread = f"{ours['iterations_per_s_min']:.2f} to {ours['iterations_per_s_max']:.2f}"
        for name, other in reached.items():
            if name == "defaults":
                continue
            target = SWEEP_TARGET if name == "sweep" else PEER_TARGETS[case["case"]]
            theirs = other["iterations_per_s"]
            if theirs:
                ratio = f"{rate / theirs:.2f}x"
                verdict = "yes" if rate >= target * theirs else "**no**"
            else:
                ratio, verdict = f"it failed: {other['failed'][0]}", "not compared"
            lines.append(
                f"| {case['case']} | {name} | `{other['setting']}` | {theirs:.2f} "
                f"| {rate:.2f} ({spread}) | {ratio} | {target:g}x | {verdict} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    args = parse_args()
    args.workdir = args.workdir.resolve()
    with store_to_train(args) as path:
        store = lsm.GraphStore.open(path)
        results = [Case(name, store, args).measure() for name in args.cases.split(",")]
    publish_page({"graph": about(store), "defaults": results}, args, summary)


if __name__ == "__main__":
    main()
