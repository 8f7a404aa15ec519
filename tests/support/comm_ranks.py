"""Ranks for tests of the communication layer: processes that run cases by name, started once."""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import traceback
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as torch_dist

from support import gpus

CASE_SECS = 200
SLOW_SECS = 15
"""After so long, less than the longest wait for a peer, a rank writes the stacks of its threads."""


class Ranks:
    """``size`` processes in one job over Gloo. run() runs a function on all of them."""

    def __init__(self, size: int, directory: Path) -> None:
        # A fork of a process that has asked the driver for GPUs, as imports may, cannot use them.
        context = multiprocessing.get_context("forkserver" if gpus.PROBLEM else "spawn")
        if gpus.PROBLEM:
            context.set_forkserver_preload(["pytest", "lsm.train.trainer"])
        self.size = size
        self._directory = directory
        self._pipes, self.processes = [], []
        for rank in range(size):
            here, there = context.Pipe()
            process = context.Process(
                target=_serve, args=(there, rank, size, directory), daemon=True
            )
            process.start()
            self._pipes.append(here)
            self.processes.append(process)

    def run(self, case, *arguments, ranks=None, seconds: float = CASE_SECS) -> list:
        """The result of ``case(context, *arguments)`` on each rank (or on ``ranks``): its value, or
        the exception that it raised."""
        ranks = range(self.size) if ranks is None else ranks
        for rank in ranks:
            self._pipes[rank].send((case, arguments))
        return [self._answer(rank, seconds) for rank in ranks]

    def check(self, case, *arguments) -> list:
        """As run(), but an exception of any rank is raised, with the stacks of slow ranks."""
        answers = self.run(case, *arguments)
        for answer in answers:
            if isinstance(answer, BaseException):
                for stacks in sorted(self._directory.glob("stacks-*")):
                    answer.add_note(f"{stacks.name}, slow cases so far:\n{stacks.read_text()}")
                raise answer
        return answers

    def _answer(self, rank: int, seconds: float):
        if not self._pipes[rank].poll(seconds):
            return TimeoutError(f"the test waited {seconds} s for rank {rank}")
        try:
            return self._pipes[rank].recv()
        except EOFError:
            return EOFError(f"rank {rank} has ended")

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()


class Context:
    """The process of a case: its rank, and cache groups of the first ranks."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._groups: dict[tuple, object] = {}
        self.kept: dict = {}

    def group(self, size: int, **options):
        """A CacheGroup of ranks 0 to ``size - 1``; None on the others. Every rank must call it."""
        from lsm.comm.group import CacheGroup
        from lsm.comm.options import CommOptions

        options = CommOptions(**({"timeout_secs": 20.0} | options))
        key = size, options.transport, options.timeout_secs
        if key not in self._groups:
            pair = [torch_dist.new_group(range(size), backend="gloo") for _ in range(2)]
            member = self.rank < size
            self._groups[key] = CacheGroup.over(*pair, "host", options) if member else None
        if self.rank >= size:
            return None
        return replace(self._groups[key], options=options, links={})


def deliver(exchange, request, rows: torch.Tensor) -> torch.Tensor:
    """This rank's batch; ``rows``: those of ``request.ids``."""
    delivery = exchange.open(request)
    for row_of, target, places in exchange.targets(delivery):
        where = places.long() if len(places) else slice(len(row_of))
        target[where] = rows[row_of.long()]
    return exchange.finish(delivery)


def _serve(pipe, rank: int, size: int, directory: Path) -> None:
    gc.freeze()  # exempts all that was preloaded
    stacks = (directory / f"stacks-{rank}").open("w")
    torch.set_num_threads(1)
    torch_dist.init_process_group(
        "gloo",
        init_method=f"file://{directory}/rendezvous",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=CASE_SECS),
    )
    context = Context(rank, size)
    while True:
        try:
            case, arguments = pipe.recv()
        except EOFError:
            return
        faulthandler.dump_traceback_later(SLOW_SECS, file=stacks)
        try:
            answer = case(context, *arguments)
        except BaseException as error:
            error.add_note(traceback.format_exc())
            answer = error
        finally:
            faulthandler.cancel_dump_traceback_later()
        try:
            pipe.send(answer)
        except Exception as error:
            pipe.send(RuntimeError(f"{answer!r} cannot be sent: {error}"))
