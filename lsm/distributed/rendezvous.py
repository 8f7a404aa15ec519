"""The rendezvous of a job's ranks: each leaves a note about itself in one store, and rank 0 reads
them.

Rank 0 checks all notes before any rank continues. A rank that is missing, duplicate or started with
other settings is an error that names it, on every rank, before the first collective could hang.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, TypeVar

from torch.distributed import PrefixStore, Store, TCPStore

from lsm.core.os_error import in_words
from lsm.distributed.environment import ADDRESS_SECS, Launch, await_address
from lsm.distributed.interfaces import source_address

_POLL_SECS = 0.02
_LINGER_SECS = 5.0
_MAX_LISTED = 5

Result = TypeVar("Result")


@dataclass(frozen=True)
class Member:
    """A rank's note about itself."""

    rank: int
    size: int
    host: str
    pid: int
    address: str
    """The address from which this machine reaches the store. Others may reach the machine there,
    unless it is a loopback address."""
    settings: dict[str, Any]

    def __str__(self) -> str:
        return f"rank {self.rank} ({self.host}, pid {self.pid})"


def meet(
    launch: Launch, timeout_secs: float, settings: Mapping[str, Any]
) -> tuple[Store, list[Member]]:
    """The store of the job, and its members by rank, once all have arrived and agree.

    ``settings``: values that must be equal on all ranks, as JSON keeps them. Raises, on every rank,
    RuntimeError if ranks do not arrive within ``timeout_secs``, ValueError if they differ.
    """
    deadline = time.monotonic() + timeout_secs
    base = _connect(launch, timeout_secs)
    store = PrefixStore(f"lsm/{launch.job}", base)
    world = launch.world
    me = Member(
        world.rank,
        world.size,
        socket.gethostname(),
        os.getpid(),
        source_address(launch.address, launch.port),
        json.loads(json.dumps(dict(settings))),
    )
    if store.add(f"taken/{world.rank}", 1) > 1:
        problem = f"two processes say they are rank {world.rank}; one is {me}"
        store.set("complaint", problem)
        raise RuntimeError(f"{problem}; how were they started?")
    store.set(f"member/{world.rank}", json.dumps(asdict(me)))
    if world.is_main:
        problem = _inspect(store, me, deadline, timeout_secs)
        store.set("verdict", problem)
        if problem and not launch.hosted:
            _linger(store, world.size)
    else:
        problem = _await_verdict(store, timeout_secs)
    if problem:
        kind, _, text = problem.partition(" ")
        raise (ValueError if kind == "differ" else RuntimeError)(text)
    keys = [f"member/{rank}" for rank in range(world.size)]
    return store, [Member(**json.loads(text)) for text in store.multi_get(keys)]


def different_keys(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The keys whose values differ, sorted."""
    return sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))


def differences(one: tuple[int, Mapping[str, Any]], other: tuple[int, Mapping[str, Any]]) -> str:
    """The differences of two ranks: ``key (value on rank 0, value on rank 1), ...``; "" without
    any.

    ``one``, ``other``: a rank and its values, by name.
    """
    (first, expected), (second, found) = one, other
    keys = different_keys(expected, found)
    listed = ", ".join(
        f"{key} ({expected.get(key)} on rank {first}, {found.get(key)} on rank {second})"
        for key in keys[:_MAX_LISTED]
    )
    return listed + (f" and {len(keys) - _MAX_LISTED} more" if len(keys) > _MAX_LISTED else "")


def _connect(launch: Launch, timeout_secs: float) -> TCPStore:
    """A connection to the store, which rank 0 opens unless the launcher holds it."""
    opens = launch.world.is_main and not launch.hosted
    where = f"{launch.address}:{launch.port}"
    started = time.monotonic()
    await_address(launch.address, min(timeout_secs, ADDRESS_SECS))
    if not opens:
        _await_listener(launch, timeout_secs)

    def connect() -> TCPStore:
        return TCPStore(
            launch.address,
            launch.port,
            is_master=opens,
            wait_for_workers=False,
            timeout=timedelta(seconds=timeout_secs),
        )

    try:
        # In a thread: on a port of another program the connection would wait for ever.
        return _within(connect, timeout_secs - (time.monotonic() - started))
    except TimeoutError:
        raise RuntimeError(
            f"could not join the other ranks within {timeout_secs:g} s (dist.timeout_secs): the "
            f"process at {where} is not the store of this job, or is stopped; choose a free port "
            "(MASTER_PORT)"
        ) from None
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        if "EADDRINUSE" in reason:
            raise RuntimeError(
                f"port {launch.port} is in use on {socket.gethostname()}, where rank 0 is to hold "
                "the store of the job; choose a free one (MASTER_PORT)"
            ) from None
        raise RuntimeError(f"could not join the other ranks at {where}: {reason}") from error


def _await_listener(launch: Launch, timeout_secs: float) -> None:
    """Blocks until a process accepts connections at the store's address."""
    deadline = time.monotonic() + timeout_secs
    while True:
        try:
            left = max(0.1, deadline - time.monotonic())
            socket.create_connection((launch.address, launch.port), timeout=left).close()
            return
        except OSError as error:
            if time.monotonic() >= deadline:
                raise RuntimeError(
                    f"could not join the other ranks within {timeout_secs:g} s "
                    f"(dist.timeout_secs): nobody answers at {launch.address}:{launch.port} "
                    f"({in_words(error)}), where rank 0 should be; is it running, and is that its "
                    "address (MASTER_ADDR, MASTER_PORT)?"
                ) from None
            time.sleep(0.1)


def _within(function: Callable[[], Result], timeout_secs: float) -> Result:
    """Runs ``function`` in a thread. Returns or raises as it does; raises TimeoutError after
    ``timeout_secs``."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append((function(), None))
        except Exception as error:  # handed to the caller
            outcome.append((None, error))

    thread = threading.Thread(target=run, name="lsm-connect", daemon=True)
    thread.start()
    thread.join(max(0.1, timeout_secs))
    if not outcome:
        raise TimeoutError
    value, error = outcome[0]
    if error is not None:
        raise error
    return value


def _inspect(store: Store, me: Member, deadline: float, timeout_secs: float) -> str:
    """Waits for every rank's note. Returns their fault, or ""."""
    missing = set(range(1, me.size))
    while missing:
        for rank in sorted(missing):
            if not store.check([f"member/{rank}"]):
                continue
            other = Member(**json.loads(store.get(f"member/{rank}")))
            if other.size != me.size:
                return f"differ {me} is one of {me.size} processes, {other} one of {other.size}"
            listed = differences((0, me.settings), (rank, other.settings))
            if listed:
                return (
                    f"differ ranks were started with different configurations: {listed}; start "
                    f"{me} and {other} alike"
                )
            missing.remove(rank)
        if store.check(["complaint"]):
            return f"wrong {store.get('complaint').decode()}"
        if missing and time.monotonic() > deadline:
            names = ", ".join(map(str, sorted(missing)))
            return (
                f"missing could not join the other ranks within {timeout_secs:g} s "
                f"(dist.timeout_secs): of {me.size} ranks, these did not come: {names}"
            )
        time.sleep(_POLL_SECS)
    return ""


def _await_verdict(store: Store, timeout_secs: float) -> str:
    try:
        store.wait(["verdict"], timedelta(seconds=timeout_secs + _LINGER_SECS))
        problem = store.get("verdict").decode()
        store.add("read", 1)
    except RuntimeError as error:
        raise RuntimeError(
            f"could not join the other ranks within {timeout_secs:g} s (dist.timeout_secs): rank 0 "
            f"did not come, or has ended ({str(error).partition(chr(10))[0]})"
        ) from error
    return problem


def _linger(store: Store, size: int) -> None:
    """Keeps the store open until the others have read the verdict, or for some time."""
    deadline = time.monotonic() + _LINGER_SECS
    readers = sum(store.check([f"member/{rank}"]) for rank in range(1, size))
    while store.add("read", 0) < readers and time.monotonic() < deadline:
        time.sleep(_POLL_SECS)
