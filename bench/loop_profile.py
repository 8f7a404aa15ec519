"""Python time per iteration of a loader's loop, without a model: ``python bench/loop_profile.py``.

``python bench/loop_profile.py --nodes 200000 --iters 200``

Iterates over a NeighborLoader on a generated graph and profiles all of its threads. Python time is
each thread's CPU time outside native functions, so waits do not count and other programs hardly
matter. Operators on tensors count as Python: an interpreter's hook does not see them. The hook adds
time, so compare figures of this script with one another only. ``PYTHONPATH`` says which checkout is
profiled. Prints one JSON record, with the functions that took most.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

import lsm
from common import BATCH_SIZE, FANOUTS, numbers, parser, publish
from lsm.data.synth import synthesize

WINDOW_BYTES = 1 << 30


class PythonTime:
    """CPU time outside native functions, of one thread, by function."""

    def __init__(self) -> None:
        self.nanoseconds: Counter[CodeType] = Counter()
        self.calls: Counter[CodeType] = Counter()
        self._inside: list[CodeType | None] = [None]  # None: a native function, or the start
        self._since = time.thread_time_ns()

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        """The hook of sys.setprofile(): closes the span since the last event."""
        now = time.thread_time_ns()
        inside = self._inside
        if inside[-1] is not None:
            self.nanoseconds[inside[-1]] += now - self._since
        if event == "call":
            inside.append(frame.f_code)
            self.calls[frame.f_code] += 1
        elif event == "c_call":
            inside.append(None)
        elif len(inside) > 1:
            inside.pop()
        self._since = time.thread_time_ns()


class Profile:
    """The PythonTime of every thread that starts inside, and of this one."""

    def __init__(self) -> None:
        self._threads: list[PythonTime] = []

    def __enter__(self) -> Profile:
        threading.setprofile(self._begin)
        sys.setprofile(self._new())
        return self

    def __exit__(self, *_exception: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def totals(self) -> tuple[Counter[CodeType], Counter[CodeType]]:
        """Nanoseconds and calls so far, by function."""
        nanoseconds: Counter[CodeType] = Counter()
        calls: Counter[CodeType] = Counter()
        for thread in self._threads:
            nanoseconds.update(thread.nanoseconds.copy())
            calls.update(thread.calls.copy())
        return nanoseconds, calls

    def _new(self) -> PythonTime:
        self._threads.append(PythonTime())
        return self._threads[-1]

    def _begin(self, frame: FrameType, event: str, argument: Any) -> None:
        """Replaces itself, at a thread's first event, by a hook of that thread."""
        hook = self._new()
        sys.setprofile(hook)
        hook(frame, event, argument)


def parse_args() -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("--nodes", type=int, default=100_000)
    options.add_argument("--dim", type=int, default=32)
    options.add_argument("--batch-size", type=int, default=BATCH_SIZE)
    options.add_argument("--fanouts", default=FANOUTS, help="per hop, seeds first")
    options.add_argument("--cache", action="store_true", help="io_uring behind a cache, no memory")
    options.add_argument("--iters", type=int, default=300)
    options.add_argument("--warmup", type=int, default=20)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--top", type=int, default=25, help="functions to list")
    return options.parse_args()


def functions(nanoseconds: Counter[CodeType], calls: Counter[CodeType], count: int) -> list[dict]:
    """Microseconds and calls per iteration of the functions that took most."""
    return [
        {
            "function": f"{Path(code.co_filename).parent.name}/{Path(code.co_filename).name}"
            f":{code.co_qualname}",
            "us": round(nanoseconds[code] / 1000 / count, 2),
            "calls": round(calls[code] / count, 2),
        }
        for code, _ in nanoseconds.most_common()
    ]


def measure(store: lsm.GraphStore, args: argparse.Namespace) -> dict:
    cache = {"bytes": args.nodes * args.dim, "policy": "lookahead", "window": 32, "score": "none"}
    loader = lsm.NeighborLoader(
        store,
        numbers(args.fanouts),
        None,
        args.batch_size,
        shuffle=True,
        drop_last=True,
        storage={"engine": "io_uring" if args.cache else "memory"},
        cache=cache if args.cache else None,
        window_bytes=WINDOW_BYTES if args.cache else None,  # as training bounds it
    )

    def endless():
        while True:
            yield from loader

    rounds = []
    with loader, Profile() as profile:
        batches = endless()
        for _ in range(args.warmup):
            next(batches)
        for _ in range(args.rounds):
            before = profile.totals()
            for _ in range(args.iters):
                next(batches)
            after = profile.totals()
            rounds.append([now - then for now, then in zip(after, before, strict=True)])
        batches.close()
    rounds.sort(key=lambda each: each[0].total())
    nanoseconds, calls = rounds[len(rounds) // 2]
    return {
        "python_us_per_iteration": round(nanoseconds.total() / 1000 / args.iters, 1),
        "all_rounds": [round(each.total() / 1000 / args.iters, 1) for each, _ in rounds],
        "python_calls_per_iteration": round(calls.total() / args.iters, 1),
        "functions": functions(nanoseconds, calls, args.iters)[: args.top],
    }


def main() -> None:
    args = parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "graph")
        store = synthesize(path, nodes=args.nodes, dim=args.dim, classes=5, avg_degree=15)
        publish({"loop_profile": measure(store, args)}, args)


if __name__ == "__main__":
    main()
