"""Shared by the scripts: arguments and records, cold files, turns, peers, files of rows."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import torch

from lsm.core import record
from lsm.core.device import use_all_connections
from lsm.data.feature_files import FeatureFiles

use_all_connections()  # as in training, before anything of CUDA starts

BENCH = Path(__file__).parent
# Paths of this machine, which records leave out.
UNRECORDED = {
    *("json", "out", "dir", "workdir", "store", "trace"),
    *("peer_python", "disk_peer_python", "graphbolt_python", "pyg_python"),
}
# The peers' best setting: without it, the C library returns large tensors to the kernel each step.
PEER_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**32)}
HEADER_BYTES = 4096
BATCH_SIZE = 1024  # of configs/base.yaml
FANOUTS = "10,5"

Result = TypeVar("Result")


def parser(doc: str, record: str = "json") -> argparse.ArgumentParser:
    """A parser with the first line of a script's docstring as description, and with ``--json`` or
    ``--out`` for the record."""
    made = argparse.ArgumentParser(description=doc.splitlines()[0])
    note = {"json": "file for the record", "out": "NAME of NAME.json and NAME.md"}[record]
    made.add_argument(f"--{record}", type=Path, help=note)
    return made


def numbers(text: str) -> list[int]:
    """``10,5`` as a list."""
    return [int(number) for number in text.split(",")]


def publish(results: Mapping, args: argparse.Namespace, *unrecorded: str) -> dict:
    """Prints the record of ``results`` as one line of JSON, and writes it to ``--json``."""
    made = make_record(results, args, *unrecorded)
    print(json.dumps(made))
    if args.json:
        args.json.write_text(json.dumps(made, indent=1) + "\n")
    return made


def publish_page(results: Mapping, args: argparse.Namespace, page: Callable[[dict], str]) -> None:
    """Writes the record to ``--out``.json and ``page`` of it to ``--out``.md; prints the page."""
    made = make_record(results, args)
    text = page(made)
    print(text)
    if args.out:
        args.out.with_suffix(".json").write_text(json.dumps(made, indent=1) + "\n")
        args.out.with_suffix(".md").write_text(text)


def make_record(results: Mapping, args: argparse.Namespace, *unrecorded: str) -> dict:
    hidden = UNRECORDED.union(unrecorded)
    settings = {key: str(value) for key, value in vars(args).items() if key not in hidden}
    return record.make(dict(results), settings)


def about(store) -> dict[str, int]:
    """The sizes of a graph store."""
    return {"nodes": store.num_nodes, "edges": store.num_edges, "row_bytes": store.row_bytes}


def drop_cache(*paths: Path) -> None:
    """Drops files, and all files below directories, from the page cache."""
    for path in paths:
        for file_path in path.rglob("*") if path.is_dir() else [path]:
            if file_path.is_file():
                with file_path.open("rb") as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def take_turns(
    rounds: int, contenders: Mapping[str, Callable[[int], Result]]
) -> dict[str, list[Result]]:
    """The results of each contender, called with the number of the round. They take turns, so that
    other programs disturb all of them equally."""
    results: dict[str, list[Result]] = {name: [] for name in contenders}
    for turn in range(rounds):
        for name, contender in contenders.items():
            results[name].append(contender(turn))
    return results


def medians(runs: Sequence[Mapping]) -> dict:
    """The median of each figure over the runs."""
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def median_run(runs: Iterable[dict], key: str) -> dict:
    """The run whose ``key`` is the median; of two in the middle, the larger."""
    ranked = sorted(runs, key=lambda run: run[key])
    return ranked[len(ranked) // 2]


def spread(name: str, values: Sequence[float]) -> dict[str, float]:
    """Median, smallest and largest."""
    return {
        name: statistics.median(values),
        f"{name}_min": min(values),
        f"{name}_max": max(values),
    }


def run_program(command: Sequence[object], run: Callable = subprocess.run, **options) -> dict:
    """The JSON in a program's last line of output. Raises RuntimeError with the last line of its
    messages if it fails. ``run``: subprocess.run() or a function with its arguments."""
    options = {"timeout": 1800} | options
    options["env"] = os.environ | options.get("env", {})
    done = run(list(map(str, command)), capture_output=True, text=True, **options)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"exit status {done.returncode}: {last}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def run_lsm(*arguments: object) -> None:
    """``lsm ARGUMENTS``, whose output goes to standard error."""
    command = [sys.executable, "-m", "lsm", *map(str, arguments)]
    print("+", " ".join(command), file=sys.stderr, flush=True)
    subprocess.run(command, stdout=sys.stderr, check=True, timeout=3600)


def write_header(path: Path, row_bytes: int) -> None:
    """Turns the file's first 4 KiB into the .npy header of float32 rows of ``row_bytes``."""
    shape = (num_rows(path, row_bytes), row_bytes // 4)
    text = repr({"descr": "<f4", "fortran_order": False, "shape": shape})
    prefix = b"\x93NUMPY\x01\x00" + (HEADER_BYTES - 10).to_bytes(2, "little")
    with path.open("r+b") as file:
        file.write(prefix + text.ljust(HEADER_BYTES - 11).encode() + b"\n")
        os.fsync(file.fileno())


def num_rows(path: Path, row_bytes: int) -> int:
    """Rows after the header."""
    return (path.stat().st_size - HEADER_BYTES) // row_bytes


def feature_files(path: Path, row_bytes: int) -> FeatureFiles:
    """The whole file as a loader's rows; the header takes the first HEADER_BYTES / row_bytes."""
    return FeatureFiles((path,), path.stat().st_size // row_bytes, row_bytes // 4, torch.float32)
