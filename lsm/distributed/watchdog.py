"""Who is to blame when a rank waits in vain: every rank says what it does, in the job's store.

A thread of every rank writes a word about it to the store about once a second: where it is, what
its threads await, how it failed. It reads the words of the others and remembers when each last
changed, by its own clock. When a wait for other ranks fails (``awaiting``), the rank that died, is
stuck or failed is named from what was heard. Only this thread talks to the store, so that nobody
hangs with the machine that holds it.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch.distributed import Store

from lsm.distributed.rendezvous import Member

_MAX_TICK_SECS = 1.0
_SILENT_TICKS = 4
_FORCE_SECS = 15.0


class PeerError(RuntimeError):
    """Another rank failed: this rank's error is only the consequence."""

    def __init__(self, message: str, *, explained: bool = False) -> None:
        """``explained``: that rank says itself what went wrong."""
        super().__init__(message)
        self.explained = explained


@dataclass
class Word:
    """What a rank says about itself."""

    beat: int = 0
    """Counts the words of a rank: it lives as long as this grows."""
    place: str = "its start"
    """Where it is in its work."""
    awaits: list[tuple[str, float]] = field(default_factory=list)
    """What its threads await of other ranks, and for how many seconds."""
    error: str = ""
    """How it failed."""
    caused: bool = False
    """Whether another rank's failure was the reason."""
    left: bool = False
    """Whether it has left the job, as planned."""

    def doing(self) -> str:
        """In words: where it was, and what it awaited."""
        waits = " and ".join(f"{what} (for {secs:.0f} s)" for what, secs in self.awaits)
        return f"at {self.place}" + (f", awaiting {waits}" if waits else "")


class Watch:
    """One rank's view of all ranks. Made after they have met (``lsm.distributed.rendezvous``)."""

    def __init__(
        self,
        store: Store,
        members: list[Member],
        rank: int,
        *,
        timeout_secs: float,
        store_rank: int | None,
    ) -> None:
        """``store``: a connection of its own. ``store_rank``: the rank whose process holds the
        store; None if the launcher does."""
        self._store = store
        self._store_rank = store_rank
        self._members = members
        self._rank = rank
        self._timeout_secs = timeout_secs
        self._tick_secs = min(_MAX_TICK_SECS, timeout_secs / 10)
        self._word = Word()
        self._awaits: dict[int, tuple[str, float]] = {}
        self._tokens = itertools.count()
        now = time.monotonic()
        self._heard = [(now, Word()) for _ in members]
        self._exchanged = now
        self._woken = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lsm-watch", daemon=True)

    def start(self) -> None:
        self._exchange()
        self._thread.start()

    def leave(self) -> None:
        """Says that this rank leaves as planned, and stops watching."""
        self._word.left = True
        self._end()

    def fail(self, error: BaseException) -> None:
        """Says how this rank failed, and stops watching."""
        text = str(error).strip().partition("\n")[0]
        self._word.caused = isinstance(error, PeerError)
        self._word.error = text or type(error).__name__
        self._end()
        if self._rank == self._store_rank:
            time.sleep(2 * self._tick_secs)  # the store ends with this process: let the others read

    def at(self, place: str) -> None:
        """Says where this rank is."""
        self._word.place = place

    @property
    def place(self) -> str:
        """Where this rank is."""
        return self._word.place

    def begin(self, what: str) -> int:
        """Says that a thread of this rank awaits ``what``; returns what ``end`` needs."""
        token = next(self._tokens)
        self._awaits[token] = (what, time.monotonic())
        return token

    def end(self, token: int) -> None:
        del self._awaits[token]

    def explain(self, what: str) -> tuple[str, bool]:
        """Why ``what`` did not come, and whether the rank to blame has said so itself.

        Blocks for a few seconds at most, until it is clear who still lives.
        """
        deadline = time.monotonic() + (_SILENT_TICKS + 1) * self._tick_secs
        while time.monotonic() < deadline:
            failed = self._failed()
            if failed:
                return "; ".join(failed), True
            time.sleep(self._tick_secs / 4)
        limit = _SILENT_TICKS * self._tick_secs
        silent = self._store_problem(limit) or "; ".join(self._silent(limit))
        if silent:
            return silent, False
        elsewhere = [
            f"{self._members[rank]} lives but did not come to it: it is {word.doing()}"
            for rank, (_, word) in self._others()
            if what not in (awaited for awaited, _ in word.awaits) and not word.error
        ]
        return "; ".join(elsewhere) or "all other ranks live; is the network between them?", False

    def _others(self) -> list[tuple[int, tuple[float, Word]]]:
        return [(rank, heard) for rank, heard in enumerate(self._heard) if rank != self._rank]

    def _failed(self) -> list[str]:
        """The ranks that failed by themselves, and how."""
        return [
            f"{self._members[rank]} failed: {word.error}"
            for rank, (_, word) in self._others()
            if word.error and not word.caused
        ]

    def _silent(self, secs: float) -> list[str]:
        """The ranks that have said nothing for ``secs`` or more, though they should."""
        now = time.monotonic()
        return [
            f"{self._members[rank]} has been silent for {now - since:.0f} s; last heard of "
            f"{word.doing()}"
            for rank, (since, word) in self._others()
            if now - since >= secs and not word.left and not word.error
        ]

    def _store_problem(self, secs: float) -> str:
        """What is wrong if the store has not answered for ``secs``; then nobody can be heard."""
        silence = time.monotonic() - self._exchanged
        if silence < secs:
            return ""
        if self._store_rank is None:
            return f"the store of the launcher has not answered for {silence:.0f} s"
        holder, (_, word) = self._members[self._store_rank], self._heard[self._store_rank]
        return (
            f"{holder} has been silent for {silence:.0f} s, as has the store that it holds; last "
            f"heard of {word.doing()}"
        )

    def _end(self) -> None:
        self._ending.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join(3 * self._tick_secs)

    def _run(self) -> None:
        ending, connected = False, True
        while not ending:
            self._woken.wait(self._tick_secs)
            ending = self._ending.is_set()  # before the exchange, so that the last word is written
            try:
                if connected:
                    self._exchange()
            except RuntimeError:
                connected = False  # the store is gone, for good, and will be missed
            if not ending:
                self._end_if_lost()

    def _exchange(self) -> None:
        """Writes this rank's word and reads the others'."""
        word, now = self._word, time.monotonic()
        word.beat += 1
        word.awaits = [(what, now - since) for what, since in list(self._awaits.values())]
        self._store.set(f"word/{self._rank}", json.dumps(vars(word)))
        for rank, _ in self._others():
            if self._store.check([f"word/{rank}"]):
                self._hear(rank, json.loads(self._store.get(f"word/{rank}")))
        self._exchanged = time.monotonic()

    def _hear(self, rank: int, values: dict[str, Any]) -> None:
        if values["beat"] != self._heard[rank][1].beat:
            self._heard[rank] = (time.monotonic(), Word(**values))

    def _end_if_lost(self) -> None:
        """Ends the process if a rank was lost so long ago that every wait for it has failed: this
        rank is stuck in something else."""
        limit, now = self._timeout_secs + _FORCE_SECS, time.monotonic()
        if any(not word.left and now - since >= limit for _, (since, word) in self._others()):
            text = "; ".join(self._failed() + self._silent(limit)) or "other ranks have failed"
            print(f"error: rank {self._rank}: {text}", file=sys.stderr, flush=True)
            os._exit(1)


_watch: Watch | None = None


def set_current(watch: Watch | None) -> None:
    """Makes ``watch`` the one that ``awaiting`` and ``at`` speak to; None: there is none."""
    global _watch
    _watch = watch


def at(place: str) -> None:
    """Says where this rank is, such as ``epoch 1, iteration 3``."""
    if _watch is not None:
        _watch.at(place)


@contextmanager
def saying(what: str) -> Iterator[None]:
    """Around a wait that makes errors of its own: only tells the others what this rank awaits."""
    watch = _watch
    if watch is None:
        yield
        return
    token = watch.begin(what)
    try:
        yield
    finally:
        watch.end(token)


@contextmanager
def awaiting(what: str) -> Iterator[None]:
    """Around a wait for other ranks, from any thread: ``with awaiting("the rows of iteration 3")``.

    A wait inside that fails or runs out of time becomes a PeerError that names ``what`` and the
    rank to blame. Other errors pass.
    """
    watch, start = _watch, time.monotonic()
    with saying(what):  # until it is explained, so that nobody takes this rank for the one missing
        try:
            yield
        except (RuntimeError, TimeoutError) as error:
            if isinstance(error, PeerError) or not _is_of_peers(error):
                raise
            secs = time.monotonic() - start
            reason = str(error).strip().partition("\n")[0]
            text, explained, place = "its own error may be above", False, ""
            if watch is not None:
                (text, explained), place = watch.explain(what), f" at {watch.place}"
            raise PeerError(
                f"another rank ended or did not answer during {what}{place}, awaited for "
                f"{secs:.1f} s: {text} ({reason})",
                explained=explained,
            ) from error


def _is_of_peers(error: Exception) -> bool:
    text = str(error).lower()
    signs = ("gloo", "nccl", "connection closed", "connection reset", "timed out", "pair closure")
    return isinstance(error, TimeoutError) or any(sign in text for sign in signs)
