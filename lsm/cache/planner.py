"""The planner of the feature cache: what happens to the cache at each iteration, from ids alone.

Batches enter a window (:meth:`Planner.push`), plans leave it (:meth:`Planner.plan`); moving the
rows is the executor's part. The decisions are native and batch-synchronous: first all look-ups of
an iteration, then the rows that ask for a line, set by set. A plan is a function of the arguments
and the seed, whatever the number of threads.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any

import torch
from pydantic import model_validator

from lsm import native
from lsm.cache.options import PlannerOptions

POLICIES: tuple[str, ...] = tuple(native.policy_names())
ONLINE_POLICIES: tuple[str, ...] = tuple(policy for policy in POLICIES if policy != "belady")
"""Policies that decide from what is known during training."""
#: Policies that are nothing without a window of coming batches.
NEEDS_WINDOW: frozenset[str] = frozenset(p for p in POLICIES if native.needs_window(p))
VICTIM_MODES: tuple[str, ...] = ("none", "queues", "pool")
COUNTERS: tuple[str, ...] = tuple(native.COUNTER_NAMES)


class Source(IntEnum):
    """The tier that serves a request."""

    STATIC = 0
    CACHE = 1
    VICTIM = 2
    CONSTANT = 3
    STORAGE = 4


def without_empty_window(values: dict[str, Any], victim: str) -> dict[str, Any]:
    """``values`` of a PlannerOptions with the window 0, of a policy that does not look ahead and
    without a victim buffer, replaced by the window 1, which is the same."""
    looks_ahead = values.get("policy", "lookahead") in NEEDS_WINDOW or victim != "none"
    return values if looks_ahead or values.get("window") != 0 else values | {"window": 1}


class PlannerConfig(PlannerOptions):
    """Plans of one owner's cache.

    The lines are rounded down to whole sets, but at least one set, with a warning. ``window``
    batches are known ahead, the one that is planned included; policies that are not in NEEDS_WINDOW
    also take 0 if there is no victim buffer. Raises ValueError for what no planner can do.
    """

    num_lines: int
    """Lines of the cache."""
    victim_mode: str = "none"
    """One of VICTIM_MODES."""
    victim_rows: int = 0
    """Rows of each queue, or of the pool."""

    @model_validator(mode="before")
    @classmethod
    def _rounded(cls, values: dict[str, Any]) -> dict[str, Any]:
        lines, ways = values.get("num_lines"), values.get("ways", cls.model_fields["ways"].default)
        if isinstance(lines, int) and isinstance(ways, int) and lines > 0 < ways and lines % ways:
            num_lines = max(1, lines // ways) * ways
            warnings.warn(
                f"cache: {lines} lines do not make whole sets of {ways}; using {num_lines} lines",
                stacklevel=4,
            )
            values = values | {"num_lines": num_lines}
        return without_empty_window(values, values.get("victim_mode", "none"))

    @model_validator(mode="after")
    def _can_be_planned(self) -> PlannerConfig:
        native.check_planner_config(self.to_native())
        return self

    def to_native(self, num_nodes: int | None = None) -> native.PlannerConfig:
        """The same for the native planner; ids are checked against ``num_nodes`` if it is given."""
        config = native.PlannerConfig()
        for name in PlannerConfig.model_fields:
            setattr(config, name, getattr(self, name))
        config.num_nodes = -1 if num_nodes is None else num_nodes
        return config


@dataclass(frozen=True)
class Plan:
    """The moves of one iteration; host tensors.

    ``ids`` [n] int64: the requests. ``source`` [n] uint8: a Source. ``slot`` [n] int64: the line,
    the victim slot, the index in the list of static or constant ids, or -1 for storage.
    ``evict_line``, ``evict_slot`` [m] int64: rows that leave their line, for a victim slot or, if
    -1, for good; ``evict_word`` [m] int64: their metadata words (0 with slot -1).
    ``insert_position``, ``insert_line`` [k] int64: requests, as indices into ``ids``, that enter a
    line. ``spill_position``, ``spill_slot``, ``spill_word`` [j] int64: requests that
    got no line and go to the victim buffer.

    A metadata word (LSM-GNN, section 4.3.3) says for what a row waits in the victim buffer: its
    next use mod 2^16 in the upper 16 bits, the rank that requests it first then in the next 8, and
    its position in that batch in the lower 40.

    ``tag_slot``, ``tag_word`` [l] int64: rows that waited in the victim buffer with the word -1, of
    an unknown next use (pool only), and that batches pushed since the last plan request, later than
    at this iteration. The moves of this plan may write these slots; their words then count.

    Victim slots that the look-ups of this plan free may be used by its ``evict_slot`` and
    ``spill_slot``: gather the rows before writing any. Evicted rows leave before the rows inserted
    in their lines enter. Moves are in the order of the decisions: by set, then by request.
    """

    iteration: int
    ids: torch.Tensor
    source: torch.Tensor
    slot: torch.Tensor
    evict_line: torch.Tensor
    evict_slot: torch.Tensor
    evict_word: torch.Tensor
    insert_position: torch.Tensor
    insert_line: torch.Tensor
    spill_position: torch.Tensor
    spill_slot: torch.Tensor
    spill_word: torch.Tensor
    tag_slot: torch.Tensor
    tag_word: torch.Tensor
    counters: dict[str, int]

    def moves(self) -> dict[str, torch.Tensor]:
        """The tensors that a replay needs, by name: all but ``ids``."""
        return {name: getattr(self, name) for name in _MOVES}


_MOVES = tuple(
    field.name for field in fields(Plan) if field.name not in ("iteration", "ids", "counters")
)


class Planner:
    """Plans one owner's cache, iteration by iteration. Not thread-safe; releases the GIL.

    ``scores`` [N] float32, finite and >= 0: static scores by id; ids beyond it score 0. It is read
    in place. ``static_ids``, ``constant_ids`` int64, distinct: rows of the static partition and of
    the constant buffer. ``trace``: all batches, for ``belady`` and for it only. ``num_nodes``: ids
    must be below it. ``num_threads`` share the sets of the cache. ``sets``: where decisions about
    sets are made: on the ``host``; on a GPU, number ``device`` (``device``); or, for tests, as on a
    GPU but by one thread of the host (``twin``, ``twin_backwards``). Plans are the same.
    """

    def __init__(
        self,
        config: PlannerConfig,
        *,
        scores: torch.Tensor | None = None,
        static_ids: torch.Tensor | None = None,
        constant_ids: torch.Tensor | None = None,
        trace: Sequence[torch.Tensor] | None = None,
        num_nodes: int | None = None,
        num_threads: int = 1,
        sets: str = "host",
        device: int = 0,
    ) -> None:
        if config.policy == "belady" and trace is None:
            raise ValueError("trace: policy 'belady' expects the list of all batches, got none")
        self.config = config
        self.place = "host" if sets == "host" else "device"
        """Where decisions about sets are made."""
        threads = native.ThreadPool(num_threads)
        self._new_native = lambda scores: native.Planner(
            config.to_native(num_nodes),
            scores,
            static_ids,
            constant_ids,
            None if trace is None else list(trace),
            threads,
            sets,
            device,
        )
        self.scores = scores
        """Static scores by id: those that were set last."""
        self._native = self._new_native(scores)

    def restart(self) -> None:
        """Starts anew, with an empty cache and window, by the scores that were set last."""
        del self._native  # gives up its memory first
        self._native = self._new_native(self.scores)

    def close(self) -> None:
        """Frees the planner's memory; no other method may be called after this."""
        del self._native

    @property
    def num_pushed(self) -> int:
        """Batches that have entered the window so far."""
        return self._native.num_pushed

    @property
    def num_planned(self) -> int:
        """Iterations planned so far."""
        return self._native.num_planned

    def push(self, ids: torch.Tensor, rank_starts: torch.Tensor | None = None) -> None:
        """Appends the next batch to the window: [n] int64, distinct, in the order of the requests.

        ``rank_starts`` [number of ranks] int64: where the ids begin that rank r requests and no
        rank before it, so it rises from 0 to at most n. Without it, rank 0 requests all. Raises
        ValueError, and changes nothing, if an id is repeated or out of range, if ``window`` batches
        already wait for their plans, or if the batch is not that of belady's trace.
        """
        self._native.push(ids, rank_starts)

    def set_scores(self, scores: torch.Tensor) -> None:
        """Goes by these static scores from the next plan on, for the rows held by then as well.

        ``scores``: as for the constructor; read in place. ``static_ids`` and ``constant_ids`` stay.
        The plans depend on the iteration at which this is called.
        """
        self._native.set_scores(scores)
        self.scores = scores

    def plan(self) -> Plan:
        """The plan of the next iteration. What it does depends on the batches pushed so far: push
        ``window`` of them, or all there are, before. Raises ValueError if its own is missing."""
        plan = self._native.plan()
        return Plan(
            iteration=plan.iteration,
            ids=native.as_tensor(plan.take_ids(), torch.int64),
            source=native.as_tensor(plan.take_source(), torch.uint8),
            slot=native.as_tensor(plan.take_slot(), torch.int64),
            evict_line=native.as_tensor(plan.take_evict_line(), torch.int64),
            evict_slot=native.as_tensor(plan.take_evict_slot(), torch.int64),
            evict_word=native.as_tensor(plan.take_evict_word(), torch.int64),
            insert_position=native.as_tensor(plan.take_insert_position(), torch.int64),
            insert_line=native.as_tensor(plan.take_insert_line(), torch.int64),
            spill_position=native.as_tensor(plan.take_spill_position(), torch.int64),
            spill_slot=native.as_tensor(plan.take_spill_slot(), torch.int64),
            spill_word=native.as_tensor(plan.take_spill_word(), torch.int64),
            tag_slot=native.as_tensor(plan.take_tag_slot(), torch.int64),
            tag_word=native.as_tensor(plan.take_tag_word(), torch.int64),
            counters=dict(zip(COUNTERS, plan.counters(), strict=True)),
        )

    def metadata_bytes(self) -> dict[str, int]:
        """Bytes of the metadata of all lines (``lines``), of the window (``window``) and of the
        victim buffer's rows (``victims``), and the ids that are in the window
        (``window_entries``)."""
        return {
            "lines": self._native.line_bytes,
            "window": self._native.window_bytes,
            "victims": self._native.victim_bytes,
            "window_entries": self._native.window_entries,
        }


def simulate(
    batches: Sequence[torch.Tensor],
    config: PlannerConfig,
    *,
    scores: torch.Tensor | None = None,
    static_ids: torch.Tensor | None = None,
    constant_ids: torch.Tensor | None = None,
    num_nodes: int | None = None,
    num_threads: int = 1,
) -> list[dict[str, int]]:
    """The counters of each iteration of a whole trace. Native; releases the GIL.

    Arguments as for :class:`Planner`; ``belady`` takes ``batches`` for its trace, and with a single
    set and no victim buffer it is computed without a scan over the ways.
    """
    counters = native.simulate_cache(
        list(batches),
        config.to_native(num_nodes),
        scores,
        static_ids,
        constant_ids,
        native.ThreadPool(num_threads),
    )
    return _by_name(counters)


def simulate_optimal(
    batches: Sequence[torch.Tensor],
    num_lines: int,
    *,
    static_ids: torch.Tensor | None = None,
    constant_ids: torch.Tensor | None = None,
) -> list[dict[str, int]]:
    """The counters of a fully associative cache of ``num_lines`` that no policy can beat.

    Belady's MIN with bypass, free to give up any row after any iteration. ``belady`` follows the
    planner's rules instead: a line touched at t stays at t. The two differ when a batch is not
    small against the cache; then a set-associative policy can have more hits than a fully
    associative ``belady``, but never more than this.
    """
    return _by_name(native.simulate_optimal(list(batches), num_lines, static_ids, constant_ids))


def _by_name(counters: native.PlanArray) -> list[dict[str, int]]:
    table = native.as_tensor(counters, torch.int64).view(-1, len(COUNTERS))
    return [dict(zip(COUNTERS, row, strict=True)) for row in table.tolist()]
