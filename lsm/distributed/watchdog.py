"""Finds the rank to blame for a wait in vain: every rank writes heartbeats to the job's store.

A thread of every rank writes its heartbeat about once a second: the rank's place, the waits of its
threads, its failure. It reads the heartbeats of the others and remembers, by its own clock, when
each last changed. When a wait for other ranks fails (``awaiting``), the heartbeats tell which rank
died, is stuck or failed. Only this thread talks to the store, so that no other hangs with the
machine that holds it.
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

from lsm.core.os_error import in_words
from lsm.distributed.rendezvous import Member

_MAX_TICK_SECS = 1.0
_SILENT_TICKS = 4
_FORCE_SECS = 15.0


class PeerError(RuntimeError):
    """Another rank failed: this rank's error is only the consequence."""

    def __init__(self, message: str, *, explained: bool = False) -> None:
        """``explained``: that rank reports its error itself."""
        super().__init__(message)
        self.explained = explained


@dataclass
class Heartbeat:
    """The heartbeat of a rank."""

    beat: int = 0
    """Number of the heartbeat. A rank lives as long as it grows."""
    place: str = "its start"
    """Its place in the run."""
    awaits: list[tuple[str, float]] = field(default_factory=list)
    """Waits of its threads for other ranks, each with its seconds so far."""
    error: str = ""
    """Its failure, or ""."""
    caused: bool = False
    """True if another rank's failure caused its own."""
    left: bool = False
    """True once it has left the job as planned."""

    def doing(self) -> str:
        """Its place and its waits, in words."""
        waits = " and ".join(f"{what} (for {secs:.0f} s)" for what, secs in self.awaits)
        return f"at {self.place}" + (f", awaiting {waits}" if waits else "")


class Watch:
    """One rank's view of all ranks, after their rendezvous (``lsm.distributed.rendezvous``)."""

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
        self._own = Heartbeat()
        self._awaits: dict[int, tuple[str, float]] = {}
        self._tokens = itertools.count()
        now = time.monotonic()
        self._heard = [(now, Heartbeat()) for _ in members]
        self._exchanged = now
        self._woken = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lsm-watch", daemon=True)

    def start(self) -> None:
        self._exchange()
        self._thread.start()

    def leave(self) -> None:
        """Announces that this rank leaves as planned, and stops watching."""
        self._own.left = True
        self._end()

    def fail(self, error: BaseException) -> None:
        """Announces this rank's failure, and stops watching."""
        text = in_words(error).strip().partition("\n")[0]
        self._own.caused = isinstance(error, PeerError)
        self._own.error = text or type(error).__name__
        self._end()
        if self._rank == self._store_rank:
            time.sleep(2 * self._tick_secs)  # the store ends with this process; others still read
            # it

    def at(self, place: str) -> None:
        """Sets this rank's place."""
        self._own.place = place

    @property
    def place(self) -> str:
        """Position of this rank."""
        return self._own.place

    def begin(self, what: str) -> int:
        """Announces that a thread of this rank awaits ``what``. Returns a token for ``end``."""
        token = next(self._tokens)
        self._awaits[token] = (what, time.monotonic())
        return token

    def end(self, token: int) -> None:
        del self._awaits[token]

    def explain(self, what: str) -> tuple[str, bool]:
        """(reason why ``what`` did not arrive, True if the rank to blame has reported its error
        itself).

        Blocks for at most a few seconds, until it is clear which ranks live.
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
            f"{self._members[rank]} lives but did not come to it: it is {heartbeat.doing()}"
            for rank, (_, heartbeat) in self._others()
            if what not in (awaited for awaited, _ in heartbeat.awaits) and not heartbeat.error
        ]
        return "; ".join(elsewhere) or "all other ranks live; is the network between them?", False

    def _others(self) -> list[tuple[int, tuple[float, Heartbeat]]]:
        return [(rank, heard) for rank, heard in enumerate(self._heard) if rank != self._rank]

    def _failed(self) -> list[str]:
        """The ranks that failed by themselves, with their errors."""
        return [
            f"{self._members[rank]} failed: {heartbeat.error}"
            for rank, (_, heartbeat) in self._others()
            if heartbeat.error and not heartbeat.caused
        ]

    def _silent(self, secs: float) -> list[str]:
        """The ranks without a heartbeat for ``secs`` or more."""
        now = time.monotonic()
        return [
            f"{self._members[rank]} has been silent for {now - since:.0f} s; last heard of "
            f"{heartbeat.doing()}"
            for rank, (since, heartbeat) in self._others()
            if now - since >= secs and not heartbeat.left and not heartbeat.error
        ]

    def _store_problem(self, secs: float) -> str:
        """The problem if the store has not answered for ``secs``, which hides all heartbeats; else
        ""."""
        silence = time.monotonic() - self._exchanged
        if silence < secs:
            return ""
        if self._store_rank is None:
            return (
                f"the store of the launcher has not answered for {silence:.0f} s; has the launcher "
                "ended?"
            )
        holder, (_, heartbeat) = self._members[self._store_rank], self._heard[self._store_rank]
        return (
            f"{holder} has been silent for {silence:.0f} s, as has the store that it holds; last "
            f"heard of {heartbeat.doing()}"
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
            ending = self._ending.is_set()  # read first, so that the last heartbeat is written
            try:
                if connected:
                    self._exchange()
            except RuntimeError:
                connected = False  # the store is gone for good; waits will report it
            if not ending:
                self._end_if_lost()

    def _exchange(self) -> None:
        """Writes this rank's heartbeat and reads the others'."""
        heartbeat, now = self._own, time.monotonic()
        heartbeat.beat += 1
        heartbeat.awaits = [(what, now - since) for what, since in list(self._awaits.values())]
        self._store.set(f"heartbeat/{self._rank}", json.dumps(vars(heartbeat)))
        for rank, _ in self._others():
            if self._store.check([f"heartbeat/{rank}"]):
                self._hear(rank, json.loads(self._store.get(f"heartbeat/{rank}")))
        self._exchanged = time.monotonic()

    def _hear(self, rank: int, values: dict[str, Any]) -> None:
        if values["beat"] != self._heard[rank][1].beat:
            self._heard[rank] = (time.monotonic(), Heartbeat(**values))

    def _end_if_lost(self) -> None:
        """Ends the process if a rank has been lost for so long that every wait for it must have
        failed: this rank is stuck elsewhere."""
        limit, now = self._timeout_secs + _FORCE_SECS, time.monotonic()
        if any(
            not heartbeat.left and now - since >= limit for _, (since, heartbeat) in self._others()
        ):
            # Without the store all ranks seem silent.
            store = self._store_problem(_SILENT_TICKS * self._tick_secs)
            silent = [store] if store else self._silent(limit)
            text = "; ".join(self._failed() + silent) or "other ranks have failed"
            print(f"error: rank {self._rank}: {text}", file=sys.stderr, flush=True)
            os._exit(1)


_watch: Watch | None = None


def set_current(watch: Watch | None) -> None:
    """Makes ``watch`` (or none) the one that ``awaiting`` and ``at`` report to."""
    global _watch
    _watch = watch


def at(place: str) -> None:
    """Sets this rank's place, such as ``epoch 1, iteration 3``."""
    if _watch is not None:
        _watch.at(place)


@contextmanager
def saying(what: str) -> Iterator[None]:
    """A context around a wait that raises errors of its own. Only announces the wait to the
    others."""
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
    """A context around a wait for other ranks: ``with awaiting("the rows of iteration 3")``.

    A wait that fails or times out raises PeerError, which names ``what`` and the rank to blame.
    Other errors pass. For any thread.
    """
    watch, start = _watch, time.monotonic()
    with saying(what):  # until explained, so that others do not take this rank for the missing one
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
