"""Divides a rank's budget of host memory (``memory.bytes``) among all its uses.

``memory_facts`` does the measuring. The same facts give the same shares, so ranks that agree about
the facts agree about the window and the cache.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from lsm.cache.planner import NEEDS_WINDOW
from lsm.config.schema import Config
from lsm.core.option_types import Auto
from lsm.core.units import format_bytes
from lsm.features.cached import COMPLETED_AHEAD
from lsm.loader.pipeline import PLANNER_BYTES_PER_ID

STAGING_BYTES = 256 << 20
_STAGED_ITERATIONS = 4
_MAX_READ_AHEAD = 64

# A pooled block has an eighth of headroom, for the next, slightly larger batch.
_HEADROOM = 1.125
# Freed memory leaves holes: the largest ratio of resident to live memory that was seen.
_FRAGMENTED = 1.25
_LINE_BYTES = 32  # of a line's tag and reuse data, its share of a set's, and its flags
_SLOT_BYTES = 64  # of a victim slot: its metadata word, and its places in the planner's order
_TOPOLOGY_SHARE = 4  # a topology in memory takes at most this fraction of the budget
_WINDOW_SHARE = 4  # and the window this fraction of the memory of rows and window
_SCORE_BYTES = 4
_COMPUTED_SCORE_BYTES = 24
_MIN_ROWS = 1024  # a smaller cache is of no use


@dataclass(frozen=True)
class BatchSize:
    """The largest of some sampled batches."""

    nodes: int = 0
    edges: int = 0
    expanded: int = 0
    """Nodes whose in-edges are in the batch."""

    @property
    def graph_bytes(self) -> int:
        """Memory of the graph in training."""
        return 16 * self.edges + 8 * (self.nodes + self.expanded)

    @property
    def window_bytes(self) -> int:
        """Memory of the graph in the window, with a planner's metadata of its ids."""
        return 4 * self.edges + 8 * self.expanded + (8 + PLANNER_BYTES_PER_ID) * self.nodes

    @property
    def sampling_bytes(self) -> int:
        """Memory of a thread that samples one: the growing output and a table of ids."""
        output = 8 * (self.nodes + self.edges) + 2 * 16 * self.edges + 8 * self.expanded
        return int(_HEADROOM * output) + 16 * (self.nodes + self.edges)

    def at_least(self, other: BatchSize) -> BatchSize:
        """The maximum of both in each field."""
        return BatchSize(
            max(self.nodes, other.nodes),
            max(self.edges, other.edges),
            max(self.expanded, other.expanded),
        )


@dataclass(frozen=True)
class Facts:
    """The measurements that the shares depend on, beside the configuration. Bytes are of one
    rank."""

    budget: int
    """memory.bytes, or the value of auto."""
    available: int
    """Free memory plus that of the process itself: the upper bound of auto."""
    process: int
    """Resident memory of interpreter and libraries."""
    libraries: int
    """The pages of files in it."""
    topology: int
    labels: int
    features: int
    num_nodes: int
    row_bytes: int
    iterations: int
    """Iterations of the longest split."""
    batch: BatchSize
    step: int
    """Memory of a step beside its batch: activations, gradients, the model."""
    on_gpu: bool = False
    device_room: int = 0
    """GPU memory that a cache can take."""
    shares_cache: bool = False


@dataclass(frozen=True)
class MemoryPlan:
    """The configuration with a number for each ``auto`` of memory, and the sum behind it."""

    config: Config
    budget: int
    terms: dict[str, int]
    """Bytes by use."""
    window_bytes: int
    """Upper bound of the window's memory."""
    batch_bytes: int
    """Memory of one batch's rows."""
    libraries: int
    """As in Facts."""
    choice: str = ""
    """The choice, with its reason."""
    notes: tuple[str, ...] = field(default=())
    """Sizes that are smaller than requested."""
    problem: str | None = None
    """A sum above the budget, if the budget is an estimate."""

    @property
    def total(self) -> int:
        return sum(self.terms.values())

    def in_words(self) -> str:
        """One line for a user."""
        return (
            f"memory: planned {format_bytes(self.total)} per rank of a budget of "
            f"{format_bytes(self.budget)}; {self.choice}"
        )

    def terms_in_words(self) -> str:
        """The sum with its terms."""
        return _sum_of(self.terms)


def share_out(config: Config, facts: Facts) -> MemoryPlan:
    """The shares of ``facts.budget``. Raises ValueError, with the sum, if the budget is too small
    for the explicit sizes of the configuration, or for a single batch."""
    if config.memory.bytes != "auto":
        return _Sharing(config, facts).plan()
    # Explicit sizes beyond auto's share win, as far as memory is available. Staging grows with the
    # budget, by an eighth of it.
    while (least := min(_Sharing(config, facts).least(), facts.available)) > facts.budget:
        facts = replace(facts, budget=least)
    return _Sharing(config, facts).plan()


def idle_bytes(batch_bytes: int, staging_bytes: int) -> int:
    """Idle memory that a pool of rows keeps. On the host it is that of batches which are counted;
    page-locked memory, which holds rows from storage only, counts it as well."""
    return max(2 * batch_bytes, staging_bytes // 4)


class _Sharing:
    """One division of a budget: plan() once."""

    def __init__(self, config: Config, facts: Facts) -> None:
        self._config, self._facts, self._budget = config, facts, facts.budget
        self._rows = facts.batch.nodes * facts.row_bytes
        self._terms: dict[str, int] = {}
        self._notes: list[str] = []
        self._problem: str | None = None
        self._window_bytes = 0
        self._settings: dict[str, dict[str, Any]] = {}

    def plan(self) -> MemoryPlan:
        facts = self._facts
        engine, policy, choice = self._choose_tiers()
        topology = self._choose_topology(facts.features if engine == "memory" else 0)
        self._set("data", topology="memory" if topology else "mmap")
        self._set("storage", engine=engine)
        self._set("loader", staging_bytes=self._staging())
        self._terms = self._common() | {"topology": topology}
        if policy != "none":
            beside = dict(self._terms)
            self._share_rows(policy)
            if self._config.cache.policy == "auto" and not self._has_cache():
                self._terms, self._notes, self._window_bytes = beside, [], 0
                self._settings["cache"] = {}
                policy, choice = "none", f"{choice} has no room: every row is read"
        if policy == "none":
            self._terms["batches"] = self._uncached_batches()
            self._terms["features"] = facts.features if engine == "memory" else 0
            self._set("cache", policy="none", score="none")
        self._check()
        return MemoryPlan(
            _replaced(self._config, self._settings),
            self._budget,
            {name: size for name, size in self._terms.items() if size},
            window_bytes=self._window_bytes,
            batch_bytes=self._rows,
            libraries=facts.libraries,
            choice=choice,
            notes=tuple(self._notes),
            problem=self._problem,
        )

    def least(self) -> int:
        """A budget for all explicit sizes, one batch, and a window of a quarter of the available
        memory."""
        config, facts = self._config, self._facts
        cache = config.cache
        explicit = [cache.constant.bytes]
        if config.data.topology == "memory":
            explicit.append(facts.topology + facts.labels)
        if config.storage.engine == "memory":
            explicit.append(facts.features)
        sizes = [] if facts.on_gpu else [cache.bytes, cache.static.bytes]
        if cache.victim.mode not in ("auto", "none"):
            sizes.append(cache.victim.bytes)
        if cache.policy != "none":
            explicit += [self._with_slots(size) for size in sizes if size != "auto"]
        batches, window = self._uncached_batches(), 0
        if cache.policy not in ("auto", "none"):
            batches = max(batches, self._cached_batches(cache.victim.prefetch))
            window = min(self._window_iterations() * self._window_each(), facts.available // 4)
        return sum((*self._common().values(), batches, window, *explicit))

    def _has_cache(self) -> bool:
        """True if everything fits with a cache that is large enough to be of use."""
        lines = self._settings["cache"]["bytes"]
        most = min(_MIN_ROWS, self._facts.num_nodes) * self._facts.row_bytes
        return lines >= most and sum(self._terms.values()) <= self._budget

    def _set(self, section: str, **values: Any) -> None:
        self._settings.setdefault(section, {}).update(values)

    def _choose_tiers(self) -> tuple[str, str, str]:
        """storage.engine, cache.policy, and the reason."""
        engine, policy = self._config.storage.engine, self._config.cache.policy
        features = self._facts.features
        if engine == "auto" and policy in ("auto", "none"):
            beside = sum(self._common().values()) + self._uncached_batches()
            if features + beside <= self._budget:
                return "memory", "none", f"features {format_bytes(features)} fit: no cache"
        if policy != "auto":
            return engine, policy, f"cache.policy={policy}"
        if engine == "memory":
            return engine, "none", "storage.engine=memory: no cache"
        if self._facts.on_gpu and self._facts.device_room < _MIN_ROWS * self._facts.row_bytes:
            return engine, "none", "the GPU has no room for a cache"
        reason = f"features {format_bytes(features)} do not fit"
        if engine != "auto":
            reason = f"storage.engine={engine}"
        return engine, "lookahead", f"{reason}: lookahead cache"

    def _choose_topology(self, features: int) -> int:
        """Bytes of the topology and the labels in memory; 0: they are mapped."""
        size = self._facts.topology + self._facts.labels
        choice = self._config.data.topology
        if choice == "auto":
            beside = features + sum(self._common().values()) + self._uncached_batches()
            fits = size <= self._budget // _TOPOLOGY_SHARE and size + beside <= self._budget
            choice = "memory" if fits else "mmap"
        return size if choice == "memory" else 0

    def _common(self) -> dict[str, int]:
        """Bytes that do not depend on the tiers of rows."""
        facts = self._facts
        has_score = self._score(self._config.cache.policy) != "none"
        return {
            "process": facts.process,
            "step": int(_FRAGMENTED * facts.step),
            "sampling": 2 * self._config.loader.num_threads * facts.batch.sampling_bytes,
            "staging": self._staged(),
            "scores": has_score * _SCORE_BYTES * facts.num_nodes,
        }

    def _score(self, policy: str) -> str:
        score = self._config.cache.score
        # Computing one beside training takes more than keeping it.
        fits = _COMPUTED_SCORE_BYTES * self._facts.num_nodes <= self._budget // 16
        return "none" if policy == "none" or (score == "auto" and not fits) else score

    def _staging(self) -> int:
        given = self._config.loader.staging_bytes
        if given != "auto":
            return given
        if self._facts.on_gpu:
            return STAGING_BYTES
        few = min(_STAGED_ITERATIONS * self._rows, self._budget // 8)
        return max(1, few, min(STAGING_BYTES, self._budget // 16))

    def _staged(self) -> int:
        """Upper bound of the memory of rows in flight: at least one batch, whatever the staging
        budget."""
        staged = max(self._rows, min(self._staging(), _MAX_READ_AHEAD * self._rows))
        twice = self._facts.shares_cache and self._config.cache.policy != "none"
        in_flight = int((2 if twice else 1) * _HEADROOM * staged)
        return in_flight + (idle_bytes(self._rows, self._staging()) if self._facts.on_gpu else 0)

    def _prefetch(self) -> int:
        prefetch = self._config.loader.prefetch
        return _STAGED_ITERATIONS if prefetch == "auto" else prefetch

    def _uncached_batches(self) -> int:
        """The batch that trains, and the graphs of those read ahead."""
        graphs = 2 + 2 * (self._prefetch() + self._config.loader.num_threads)
        return int(_HEADROOM * (self._rows + graphs * self._facts.batch.graph_bytes))

    def _cached_batches(self, victim_prefetch: int) -> int:
        """The batch in training, complete batches, batches open for rows of the victim buffer, and
        packed graphs before they enter the window."""
        batch, config = self._facts.batch, self._config
        whole = 1 + COMPLETED_AHEAD + 1
        packed = self._prefetch() + config.loader.num_threads
        on_host = 0 if self._facts.on_gpu else (whole + victim_prefetch) * self._rows
        graphs = whole * batch.graph_bytes + packed * batch.window_bytes
        return int(_HEADROOM * (on_host + graphs))

    def _window_each(self) -> int:
        """Memory of one iteration of the window. Ranks that share a cache also plan for others."""
        more = 16 * self._facts.batch.nodes if self._facts.shares_cache else 0
        return max(1, self._facts.batch.window_bytes + more)

    def _window_iterations(self) -> int:
        """Iterations of the window that the configuration wants."""
        cache = self._config.cache
        looks_ahead = cache.policy == "auto" or cache.policy in NEEDS_WINDOW
        if not looks_ahead and cache.victim.mode in ("auto", "none"):
            return 1
        return max(1, min(cache.window, self._facts.iterations))

    def _share_rows(self, policy: str) -> None:
        """Divides the rest between window, cache and victim buffer."""
        cache, facts = self._config.cache, self._facts
        mode = cache.victim.mode
        if mode == "auto":
            mode = "pool" if cache.policy == "auto" else "none"
        fixed = sum(self._terms.values()) + cache.constant.bytes
        fixed += 0 if facts.on_gpu else cache.static.bytes
        prefetch = cache.victim.prefetch if mode != "none" else 0
        if not facts.on_gpu and self._rows:
            # Each takes a batch; together they take at most an eighth of the rest.
            left = max(0, self._budget - fixed - self._cached_batches(0))
            prefetch = min(prefetch, left // 8 // self._rows)
        batches = self._cached_batches(prefetch)
        left = self._budget - fixed - batches
        victim_bytes = cache.victim.bytes if mode != "none" else 0
        given: dict[str, int | Auto] = {"cache": cache.bytes, "victim": victim_bytes}
        if facts.on_gpu:
            given["cache"] = 0
        window = self._fit_window(left, given)
        left -= window * self._window_each()
        lines, slots = self._split(max(0, left), given)
        if facts.on_gpu:
            lines = min(facts.device_room, _all_rows(facts))
            lines = lines if cache.bytes == "auto" else cache.bytes
        self._terms |= {"batches": batches, "window": window * self._window_each()}
        self._terms["cache"] = 0 if facts.on_gpu else self._with_lines(lines)
        self._terms["victim buffer"] = self._with_slots(slots)
        self._terms["hot rows"] = cache.constant.bytes
        self._terms["hot rows"] += 0 if facts.on_gpu else cache.static.bytes
        if cache.victim.bytes == "auto" and slots < facts.row_bytes:
            mode = "none"
        victim = cache.victim.model_copy(
            update={"mode": mode, "bytes": slots, "prefetch": prefetch}
        )
        self._set(
            "cache",
            policy=policy,
            bytes=lines,
            victim=victim,
            window=max(1, min(cache.window, window)),
            score=self._score(policy),
        )

    def _fit_window(self, left: int, given: dict[str, int | Auto]) -> int:
        """Iterations of the window that fit, one at least."""
        wanted, each = self._window_iterations(), self._window_each()
        lines, slots = given["cache"], given["victim"]
        fixed = self._with_lines(lines if lines != "auto" else 0)
        fixed += self._with_slots(slots if slots != "auto" else 0)
        room = left - fixed
        if "auto" in given.values():
            room //= _WINDOW_SHARE
        window = max(1, min(wanted, room // each))
        # With a margin; otherwise a few larger batches would shorten the window.
        self._window_bytes = max(window * each, min(room, window * each * 5 // 4))
        if window < wanted:
            self._notes.append(
                f"cache.window: {wanted} iterations of {format_bytes(each)} do not fit in "
                f"memory.bytes with the rest; using {window}"
            )
        return window

    def _split(self, left: int, given: dict[str, int | Auto]) -> tuple[int, int]:
        """Bytes of rows in cache and victim buffer, with ``left`` bytes for both. An equal split is
        no worse than one cache of the sum."""
        lines, slots = given["cache"], given["victim"]
        row, all_rows = self._facts.row_bytes, _all_rows(self._facts)
        if not isinstance(slots, str):
            left -= self._with_slots(slots)
        if isinstance(lines, str):
            part = left // 2 if isinstance(slots, str) else left
            most_lines: int = min(part // (row + _LINE_BYTES) * row, all_rows)
            lines = most_lines
        left -= self._with_lines(lines)
        if isinstance(slots, str):
            most = all_rows if self._facts.on_gpu else min(lines, max(0, all_rows - lines))
            most_slots: int = min(max(0, left) // (row + _SLOT_BYTES) * row, most)
            slots = most_slots
        return max(0, lines), slots

    def _with_lines(self, num_bytes: int) -> int:
        """``num_bytes`` of cached rows plus the metadata of their lines. A graph of few nodes uses
        fewer."""
        num_bytes = min(num_bytes, 2 * _all_rows(self._facts))
        return num_bytes + num_bytes // self._facts.row_bytes * _LINE_BYTES

    def _with_slots(self, num_bytes: int) -> int:
        return num_bytes + num_bytes // self._facts.row_bytes * _SLOT_BYTES

    def _check(self) -> None:
        """Raises ValueError with the sum if it exceeds the budget."""
        total, auto = sum(self._terms.values()), self._config.cache.bytes == "auto"
        cache = self._settings["cache"]
        empty = cache["policy"] != "none" and auto and cache["bytes"] < self._facts.row_bytes
        if total <= self._budget and not empty:
            return
        problem = (
            f"memory.bytes: expected room for one batch and what is kept beside it: "
            f"{_sum_of(self._terms)}{' and rows of a cache' if empty else ''}, got "
            f"{format_bytes(self._budget)}"
        )
        if self._config.memory.bytes == "auto" and not empty:
            # The terms are upper bounds, so the run may still fit.
            self._problem = problem
            return
        raise ValueError(
            f"{problem}; make it larger, or train.batch_size, sampler.num_neighbors, "
            "loader.staging_bytes or cache.bytes smaller"
        )


def _sum_of(terms: dict[str, int]) -> str:
    each = " + ".join(f"{name} {format_bytes(size)}" for name, size in terms.items() if size)
    return f"{each} = {format_bytes(sum(terms.values()))}"


def _all_rows(facts: Facts) -> int:
    """Bytes of a cache whose sets, which fill unevenly, hold every row."""
    return (facts.features * 3 // 2 // facts.row_bytes + 64) * facts.row_bytes


def _replaced(config: Config, settings: dict[str, dict[str, Any]]) -> Config:
    sections = {
        name: getattr(config, name).model_copy(update=values) for name, values in settings.items()
    }
    return config.model_copy(update=sections)
