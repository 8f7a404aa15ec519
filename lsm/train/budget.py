"""Divides a rank's budget of host memory (``memory.bytes``) among all its uses.

Each room states its own (``lsm.core.memory``), and ``memory_facts`` measures the rest. The same
facts give the same shares, so ranks that agree about the facts agree about the window and the
cache.
"""

from __future__ import annotations

from dataclasses import replace

from lsm.cache import memory as cache_memory
from lsm.cache.division import Share, divide
from lsm.comm import memory as comm_memory
from lsm.config.schema import Config
from lsm.core.memory import Terms
from lsm.core.option_types import settled
from lsm.core.units import format_bytes
from lsm.data import memory as data_memory
from lsm.loader import memory as loader_memory
from lsm.nn import memory as nn_memory
from lsm.sampler import memory as sampler_memory
from lsm.storage import memory as storage_memory
from lsm.train.memory_plan import EXACT, Facts, MemoryPlan
from lsm.train.memory_problem import problem_of

_MIB = 1 << 20
_TOPOLOGY_SHARE = 4  # data.topology=auto: in memory, it takes at most this fraction of the budget
_WINDOW_SHARE = 4  # and a window this fraction of a budget that grows for explicit sizes


def share_out(config: Config, facts: Facts) -> MemoryPlan:
    """The shares of ``facts.budget``. Raises ValueError, with the sum, if the budget is too small
    for the explicit sizes of the configuration, or for a single batch. A given budget may be
    larger than the free memory; a plan that takes more than is free has a ``problem``."""
    if config.memory.bytes == "auto":
        # Explicit sizes beyond auto's share win, as far as memory is available.
        return _Division(config, _grown(config, facts, facts.available)).plan()
    plan = _Division(config, facts).plan()
    if plan.total <= facts.available:
        return plan
    problem = (
        f"memory.bytes: {format_bytes(plan.total)} are planned of a budget of "
        f"{format_bytes(facts.budget)}, and {format_bytes(facts.available)} are free, so that the "
        f"kernel may end the run; set memory.bytes to auto or to {facts.available >> 20}MiB"
    )
    return replace(plan, problem=problem)


def _grown(config: Config, facts: Facts, most: int | None = None) -> Facts:
    """``facts`` with a budget for the explicit sizes and one batch, of at most ``most`` bytes.
    Staging grows with the budget, by an eighth of it."""
    while True:
        least = _Division(config, facts).least()
        least = least if most is None else min(least, most)
        if least <= facts.budget:
            return facts
        facts = replace(facts, budget=least)


class _Division:
    """One division of a budget."""

    def __init__(self, config: Config, facts: Facts) -> None:
        shape, loader, cache = facts.shape, config.loader, config.cache
        staging = loader_memory.staging(loader, shape, facts.budget)
        loader = loader.model_copy(update={"staging_bytes": staging})
        self._config = config.model_copy(update={"loader": loader})
        self._given, self._facts = config, facts
        self._shape, self._budget = shape, facts.budget
        self._score = cache_memory.chosen_score(cache, shape, facts.budget)
        accumulates = config.train.accumulate > 1
        self._common = (
            Terms({"process": facts.process})
            + nn_memory.terms(facts.model, facts.step, facts.embeddings, accumulates=accumulates)
            + sampler_memory.terms(loader.num_threads, shape)
            + loader_memory.terms(loader, shape)
            + Terms({EXACT: facts.exact})
            + Terms({"scores": cache_memory.score_bytes(self._score, shape)})
        ).host
        if shape.shares_cache and cache.policy != "none":
            staged = loader_memory.staged_bytes(loader, shape)
            self._common |= comm_memory.terms(staged, staging).host
        self._uncached = loader_memory.uncached_batches(loader, shape)
        self._window_each = loader_memory.window_bytes(shape)
        if shape.shares_cache:
            self._window_each += comm_memory.window_bytes(shape)

    def plan(self) -> MemoryPlan:
        engine, policy, choice = self._choose_tiers()
        features, reads = self._storage(engine)
        topology = self._choose_topology(features + reads)
        common = {**self._common, **data_memory.terms(topology == "memory", self._shape).host}
        common["reads in flight"] = reads
        share = None
        if policy != "none":
            share = self._cached(policy, self._budget - sum(common.values()))
            terms = common | share.terms.host
            fits = sum(terms.values()) <= self._budget
            useful = cache_memory.is_useful(settled(share.options.bytes), self._shape)
            if self._config.cache.policy == "auto" and not (fits and useful):
                share, choice = None, f"{choice} has no room: every row is read"
        if share is None:
            terms = common | {"batches": self._uncached, "features": features}
            cache = self._config.cache.model_copy(update={"policy": "none", "score": "none"})
        else:
            cache = share.options
        config = self._config.model_copy(
            update={
                "data": self._config.data.model_copy(update={"topology": topology}),
                "storage": self._config.storage.model_copy(update={"engine": engine}),
                "cache": cache,
            }
        )
        return MemoryPlan(
            config,
            self._budget,
            {use: size for use, size in terms.items() if size},
            window_bytes=share.window_bytes if share else 0,
            batch_bytes=self._shape.rows_bytes,
            libraries=self._facts.libraries,
            choice=choice,
            notes=(share.note,) if share and share.note else (),
            problem=problem_of(self._given, cache, self._facts, terms, enough=self._enough),
        )

    def least(self) -> int:
        """A budget for all explicit sizes, one batch, and a window of a quarter of the available
        memory."""
        config, shape, cache = self._config, self._shape, self._config.cache
        explicit = data_memory.terms(config.data.topology == "memory", shape).host
        explicit |= storage_memory.terms(config.storage.engine, shape, self._facts.reads).host
        batches, window = self._uncached, 0
        if cache.policy not in ("auto", "none"):
            batches = max(batches, self._batches(cache.victim.prefetch))
            window = cache_memory.wanted_window(cache, shape) * self._window_each
            window = min(window, self._facts.available // _WINDOW_SHARE)
        rest = batches + window + cache_memory.explicit_bytes(cache, shape)
        return sum(self._common.values()) + sum(explicit.values()) + rest

    def _storage(self, engine: str) -> tuple[int, int]:
        """Bytes of rows in memory, and of buffers for reads."""
        terms = storage_memory.terms(engine, self._shape, self._facts.reads).host
        return terms["features"], terms["reads in flight"]

    def _batches(self, num_open: int) -> int:
        return loader_memory.cached_batches(self._config.loader, self._shape, num_open)

    def _choose_tiers(self) -> tuple[str, str, str]:
        """storage.engine, cache.policy, and the reason."""
        engine, policy = self._config.storage.engine, self._config.cache.policy
        size, _ = self._storage("memory")
        fits = size + sum(self._common.values()) + self._uncached <= self._budget
        if engine == "auto" and policy in ("auto", "none") and fits:
            return "memory", "none", f"features {format_bytes(size)} fit: no cache"
        if policy != "auto":
            return engine, policy, f"cache.policy={policy}"
        if engine == "memory":
            return engine, "none", "storage.engine=memory: no cache"
        room = self._facts.gpu_room
        if self._shape.on_gpu and not cache_memory.is_useful(room, self._shape):
            return engine, "none", "the GPU has no room for a cache"
        reason = f"features {format_bytes(size)} do not fit"
        if engine != "auto":
            reason = f"storage.engine={engine}"
        return engine, "lookahead", f"{reason}: lookahead cache"

    def _choose_topology(self, features: int) -> str:
        """data.topology next to ``features`` bytes of rows and of reads."""
        if self._config.data.topology != "auto":
            return self._config.data.topology
        size = sum(data_memory.terms(True, self._shape).host.values())
        total = size + features + sum(self._common.values()) + self._uncached
        fits = size <= self._budget // _TOPOLOGY_SHARE and total <= self._budget
        return "memory" if fits else "mmap"

    def _cached(self, policy: str, left: int) -> Share:
        """The share of a cache with ``policy`` in ``left`` bytes."""
        cache = self._config.cache
        victim = cache.victim
        if victim.mode == "auto":
            mode = "pool" if cache.policy == "auto" else "none"
            victim = victim.model_copy(update={"mode": mode})
        update = {"policy": policy, "victim": victim, "score": self._score}
        return divide(
            cache.model_copy(update=update),
            self._shape,
            left,
            batches=self._batches,
            window_each=self._window_each,
            gpu_room=self._facts.gpu_room,
        )

    def _enough(self) -> int | None:
        """A larger budget, in whole MiB, that has room; None if none is known."""
        budget = -(-_grown(self._given, self._facts).budget // _MIB) * _MIB
        if budget <= self._budget:
            return None
        try:
            _Division(self._given, replace(self._facts, budget=budget)).plan()
        except ValueError:
            return None
        return budget
