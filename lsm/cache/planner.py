"""The planner of the feature cache: decides the moves of each iteration from ids alone.

Batches enter a window (:meth:`Planner.push`), plans leave it (:meth:`Planner.plan`), and an
executor moves the rows. Decisions are native and batch-synchronous: first all look-ups of an
iteration, then the misses, set by set. A plan is a function of the arguments and the seed, whatever
the number of threads.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import torch
from pydantic import model_validator

from lsm import native
from lsm.cache.options import PlannerOptions
from lsm.core.option_types import Positive

POLICIES: tuple[str, ...] = tuple(native.policy_names())
ONLINE_POLICIES: tuple[str, ...] = tuple(policy for policy in POLICIES if policy != "belady")
"""Policies that need no knowledge of the whole trace."""
#: Policies that need a window of coming batches.
NEEDS_WINDOW: frozenset[str] = frozenset(p for p in POLICIES if native.needs_window(p))
#: Policies that rank rows by the scores of nodes.
NEEDS_SCORE: frozenset[str] = frozenset(p for p in POLICIES if native.needs_score(p))
#: Of these, policies that do little without scores. lookahead orders rows without a next use by it.
DEPENDS_ON_SCORE: frozenset[str] = NEEDS_SCORE - {"lookahead"}
VICTIM_MODES: tuple[str, ...] = ("none", "queues", "pool")
COUNTERS: tuple[str, ...] = tuple(native.COUNTER_NAMES)


class Source(IntEnum):
    """The tier that serves a request."""

    STATIC = 0
    CACHE = 1
    VICTIM = 2
    CONSTANT = 3
    STORAGE = 4


def looks_ahead(policy: str, victim: str) -> bool:
    """True if a cache needs a window: for its policy, or for its victim buffer. ``victim``: its
    mode; auto, which is to be settled, has none yet."""
    return policy in NEEDS_WINDOW or victim not in ("auto", "none")


def without_empty_window(values: dict[str, Any], victim: str) -> dict[str, Any]:
    """``values`` of a PlannerOptions, with window 0 replaced by window 1 if neither policy nor
    victim buffer looks ahead. Both windows mean the same then."""
    if looks_ahead(values.get("policy", "lookahead"), victim) or values.get("window") != 0:
        return values
    return values | {"window": 1}


def whole_sets(lines: int, ways: int) -> int:
    """``lines``, cut to whole sets of ``ways``, at least one."""
    return max(1, lines // ways) * ways


def rounded_text(lines: int, ways: int) -> str:
    """The warning of ``lines`` that are not whole sets."""
    used = whole_sets(lines, ways)
    return f"cache: {lines} lines do not make whole sets of {ways}; using {used} lines"


class PlannerConfig(PlannerOptions):
    """The planner of one owner's cache.

    Rounds the lines down to whole sets, at least one, with a warning. ``window``: batches known
    ahead, including the one that is planned; policies outside NEEDS_WINDOW without a victim buffer
    also take 0. Raises ValueError for a combination that no planner supports.
    """

    num_lines: int
    """Lines of the cache."""
    ways: Positive = 32
    victim_mode: str = "none"
    """One of VICTIM_MODES."""
    victim_rows: int = 0
    """Rows of each queue, or of the pool."""

    @model_validator(mode="before")
    @classmethod
    def _rounded(cls, values: dict[str, Any]) -> dict[str, Any]:
        lines, ways = values.get("num_lines"), values.get("ways", cls.model_fields["ways"].default)
        if isinstance(lines, int) and isinstance(ways, int) and lines > 0 < ways and lines % ways:
            warnings.warn(rounded_text(lines, ways), stacklevel=4)
            values = values | {"num_lines": whole_sets(lines, ways)}
        return without_empty_window(values, values.get("victim_mode", "none"))

    @model_validator(mode="after")
    def _can_be_planned(self) -> PlannerConfig:
        native.check_planner_config(self.to_native())
        return self

    def to_native(self, num_nodes: int | None = None) -> native.PlannerConfig:
        """The native configuration. With ``num_nodes`` the planner checks that ids are below it."""
        config = native.PlannerConfig()
        for name in PlannerConfig.model_fields:
            setattr(config, name, getattr(self, name))
        config.num_nodes = -1 if num_nodes is None else num_nodes
        return config


class Plan:
    """The moves of one iteration. Executors take ``native``; tensors are views of it, on the host.

    A plan that was made on a GPU keeps its moves there. The first access to one of them, ``ids``,
    ``miss_position`` or ``slot`` to ``spill_word``, copies them, and blocks. Precondition of that
    access: the plan has not been replayed.

    ``ids`` [n] int64: the requests. ``source`` [n] uint8: a Source. ``miss_position``, ``miss_id``
    [k] int64: the rows from storage; ``victim_position``, ``victim_slot`` [v] int64: those from the
    victim buffer. ``slot`` [n] int64: the line, the victim slot, the index in the list of static or
    constant ids, or -1 for storage. ``evict_line``, ``evict_slot`` [m] int64: evicted rows, and
    their victim slots or -1; ``evict_word`` [m] int64: their metadata words (0 with slot -1).
    ``insert_position``, ``insert_line`` [k] int64: requests, as indices into ``ids``, that enter a
    line. ``spill_position``, ``spill_slot``, ``spill_word`` [j] int64: requests that got no line
    and go to the victim buffer.

    A metadata word (LSM-GNN, section 4.3.3) describes the next use of a row in the victim buffer:
    the iteration mod 2^16 in the upper 16 bits, the rank that requests it first in the next 8, and
    its position in that batch in the lower 40. A plan that was made on a GPU names no next use: the
    words of its rows are -1, and it has no tags.

    ``tag_slot``, ``tag_word`` [l] int64: new words of rows in the victim buffer (pool only) whose
    next use was unknown (word -1) and that a batch pushed since the last plan requests after this
    iteration. Where the moves of this plan write the same slots, the words of the moves count.

    ``evict_slot`` and ``spill_slot`` may reuse victim slots that the look-ups of this plan free:
    gather the rows before writing any. Copy evicted rows out before inserting rows in their lines.
    Moves are in the order of the decisions: by set, then by request.
    """

    ids: torch.Tensor
    source: torch.Tensor
    miss_position: torch.Tensor
    miss_id: torch.Tensor
    victim_position: torch.Tensor
    victim_slot: torch.Tensor
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

    def __init__(self, plan: native.Plan) -> None:
        self.native = plan
        self.iteration: int = plan.iteration
        self.counters: dict[str, int] = dict(zip(COUNTERS, plan.counters(), strict=True))

    def __getattr__(self, name: str) -> torch.Tensor:
        if name not in _ARRAYS:
            raise AttributeError(name)
        dtype = torch.uint8 if name == "source" else torch.int64
        self.__dict__[name] = native.as_tensor(self.native.array(name), dtype)
        return self.__dict__[name]

    @property
    def num_rows(self) -> int:
        """Requests of the iteration."""
        return self.counters["requests"]


_ARRAYS = frozenset(Plan.__annotations__)


class Planner:
    """Plans one owner's cache, iteration by iteration. Not thread-safe; releases the GIL.

    ``scores`` [N] float32, finite and >= 0: static scores by id, read in place; ids beyond it score
    0. ``static_ids``, ``constant_ids`` int64, distinct: rows of the static partition and of the
    constant buffer. ``trace``: all batches, for ``belady`` only. ``num_nodes``: bound of the ids.
    ``num_threads`` share the sets of the cache. ``sets``: the processor that decides about sets:
    ``host``; ``device``, the GPU with number ``device``; for tests ``twin`` or ``twin_backwards``,
    the GPU's code on one thread of the host. Plans are the same.
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
        """The processor that decides about sets: host or device."""
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
        """Static scores by id, as last set."""
        self._native = self._new_native(scores)

    def restart(self) -> None:
        """Starts over with an empty cache and window. Keeps the scores that were set last."""
        del self._native  # frees its memory first
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

        ``rank_starts`` [number of ranks] int64: start of the ids that rank r is the first to
        request, rising from 0 to at most n; None: rank 0 requests all. Raises ValueError, and
        changes nothing, if an id is repeated or out of range, if ``window`` batches already wait
        for their plans, or if the batch differs from that of belady's trace.
        """
        self._native.push(ids, rank_starts)

    def set_scores(self, scores: torch.Tensor) -> None:
        """Uses these static scores from the next plan on, also for rows that the cache already
        holds.

        ``scores``: as for the constructor; read in place. ``static_ids`` and ``constant_ids`` stay.
        Plans depend on the iteration of this call.
        """
        self._native.set_scores(scores)
        self.scores = scores

    def plan(self) -> Plan:
        """The plan of the next iteration. It depends on the batches pushed so far: push ``window``
        of them first, or all that remain. Raises ValueError if the batch of this iteration is
        missing."""
        return Plan(self._native.plan())

    def metadata_bytes(self) -> dict[str, int]:
        """Bytes of metadata: of all lines (``lines``), of the window (``window``) and of the victim
        buffer's rows (``victims``); and the number of ids in the window (``window_entries``)."""
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

    Arguments as for :class:`Planner`. ``belady`` takes ``batches`` as its trace.
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

    Belady's MIN with bypass. The hits are those of ``belady`` with one set, found without a scan of
    its ways.
    """
    return _by_name(native.simulate_optimal(list(batches), num_lines, static_ids, constant_ids))


def _by_name(counters: native.PlanArray) -> list[dict[str, int]]:
    table = native.as_tensor(counters, torch.int64).view(-1, len(COUNTERS))
    return [dict(zip(COUNTERS, row, strict=True)) for row in table.tolist()]
