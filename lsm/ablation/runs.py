"""Simulates caches over a trace: hits and misses of each combination of parameters."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from pydantic import model_validator

from lsm.ablation.trace import OwnerHash, Trace
from lsm.cache import planner
from lsm.cache.options import PlannerOptions
from lsm.core.progress import counting
from lsm.core.units import format_bytes

OFFLINE = ("belady", "optimal")
"""Those that know the whole trace, so no run can use them. ``belady`` has the sets of the other
policies and is the bound of all of them without a victim buffer; ``optimal`` is ``belady`` with
one set, and no cache of as many rows has more hits."""

POLICIES = (*planner.POLICIES, "optimal", "none")
"""``none``: no cache; every request is a miss."""

_TIERS = ("hits", "static_hits", "victim_hits", "constant_hits")
_COUNTED = (
    "requests",
    "hits",
    "victim_hits",
    "misses",
    "static_hits",
    "constant_hits",
    "bypasses",
    "evictions",
    "spilled",
    "victim_overflow",
)


class Combination(PlannerOptions):
    """One cache to simulate on every rank. Parameters that its policy ignores change nothing.

    lines, victim_rows: per rank. mode: ``shared`` (one cache over all ranks: an id counts once per
    owner and iteration) or ``independent`` (each rank caches its own requests). constant_rows:
    number of the graph's nodes whose rows are in host memory: the best by constant_score
    (``random``, or the trace's own ``static_score``).
    """

    lines: int
    victim: str = "none"
    ways: int = 32
    victim_rows: int = 0
    mode: str = "shared"
    hash: OwnerHash = "stride"
    constant_rows: int = 0
    constant_score: str = "static_score"

    @model_validator(mode="before")
    @classmethod
    def _has_a_window(cls, values: dict[str, Any]) -> dict[str, Any]:
        return planner.without_empty_window(values, values.get("victim", "none"))

    @property
    def planner_options(self) -> dict[str, Any]:
        """The fields of PlannerOptions, by name."""
        return {name: getattr(self, name) for name in PlannerOptions.model_fields}

    def ignored(self) -> dict:
        """The parameters that this cache ignores, each with a fixed value."""
        if self.policy == "none":
            return _defaults_but(("policy", "mode", "hash")) | {"lines": 0, "constant_score": ""}
        if self.policy == "optimal":
            kept = ("policy", "lines", "mode", "hash", "constant_rows", "constant_score")
            unused = {} if self.constant_rows else {"constant_score": ""}
            return _defaults_but(kept) | unused
        out: dict = {}
        if not planner.looks_ahead(self.policy, self.victim):
            out["window"] = 1
        if self.policy not in ("dynamic", "hybrid"):
            out["update_period"] = 1
        if self.policy != "hybrid":
            out["near_fraction"] = 0.125
        if self.victim == "none":
            out["victim_rows"] = 0
        if self.mode == "independent":
            out["hash"] = "stride"
        if self.constant_rows == 0:
            out["constant_score"] = ""
        return out

    def simplified(self) -> Combination:
        """This cache with every ignored parameter at its fixed value. Equal caches have equal
        ones."""
        return self.model_copy(update=self.ignored())

    def planner_bytes(self) -> int:
        """Estimated memory of its simulation: 32 bytes per line and per victim slot."""
        per_row = {"none": 0, "pool": 1, "queues": self.window}
        return 32 * (self.lines + self.victim_rows * per_row.get(self.victim, 0))

    def planner_config(self) -> planner.PlannerConfig | None:
        """The planner's configuration; None without a cache. Raises ValueError for a value that the
        planner does not support."""
        if self.policy == "none":
            return None
        if self.policy == "optimal":  # one set of all lines
            return planner.PlannerConfig(
                num_lines=self.lines, ways=max(1, self.lines), policy="belady", window=1
            )
        return planner.PlannerConfig(
            num_lines=self.lines,
            victim_mode=self.victim,
            victim_rows=0 if self.victim == "none" else self.victim_rows,
            **self.planner_options,
        )


def _defaults_but(kept: Sequence[str]) -> dict[str, Any]:
    """The defaults of a Combination's fields that are not in ``kept``."""
    fields = Combination.model_fields
    return {name: field.default for name, field in fields.items() if name not in kept}


def ignored(record: dict) -> set[str]:
    """The parameters of ``record`` that its cache ignores."""
    names = Combination.model_fields
    unused = set(Combination(**{name: record[name] for name in names}).ignored())
    return unused | ({"size"} if "lines" in unused else set())


@contextmanager
def naming(names: Mapping[str, str]) -> Iterator[None]:
    """A context that renames settings in the planner's errors. ``names``: the study's name by the
    planner's (``cache.num_lines``, ...)."""
    try:
        yield
    except ValueError as error:
        longest_first = sorted(names, key=len, reverse=True)
        pattern = "|".join(re.escape(name) for name in longest_first)
        message = re.sub(rf"(?:{pattern})\b", lambda found: names[found[0]], str(error))
        raise ValueError(message) from None


def planner_configs(
    combinations: Sequence[Combination],
) -> dict[Combination, planner.PlannerConfig | None]:
    """The planner's configuration of each combination.

    Raises ValueError for the first that cannot be simulated. Warns of lines that are rounded.
    """
    available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    configs = {}
    for each in combinations:
        if each.planner_bytes() > available:
            raise ValueError(
                f"lines {each.lines}, victim rows {each.victim_rows}: expected a cache that this "
                f"machine's memory ({format_bytes(available)}) can simulate, got one that takes "
                f"{format_bytes(each.planner_bytes())}"
            )
        configs[each] = each.planner_config()
    return configs


def run(
    trace: Trace,
    combinations: Sequence[Combination],
    *,
    jobs: int | None = None,
    progress: bool | None = None,
) -> list[dict]:
    """One record per combination, in their order; the caches of all ranks are simulated and summed.

    A record holds the combination, the trace's size, and over the whole trace and (with the suffix
    ``_2nd``) over its second half: requests, hits (of the cache), victim_hits, misses, ...,
    hit_ratio (of all memory tiers). ``jobs`` simulations run at once (None: this machine's cores);
    the records do not depend on it. Equal caches are simulated once.
    """
    distinct = list(dict.fromkeys(each.simplified() for each in combinations))
    configs = planner_configs(distinct)
    _warn_of_surprises(trace, distinct)
    scores = None if trace.static_score is None else torch.from_numpy(trace.static_score)
    batches = {
        (mode, hash): [
            trace.owner_batches(rank, hash, shared=mode == "shared")
            for rank in range(trace.num_ranks)
        ]
        for mode, hash in {(each.mode, each.hash) for each in distinct}
    }
    constant = {key: _constant_ids(trace, *key) for key in set(map(_constant_key, distinct))}
    totals = {each: np.zeros((2, len(_COUNTED)), np.int64) for each in distinct}
    tasks = [(each, rank) for each in distinct for rank in range(trace.num_ranks)]
    executor = ThreadPoolExecutor(jobs or len(os.sched_getaffinity(0)))
    try:
        with counting("simulating", len(tasks), progress) as advance:
            futures = {
                executor.submit(
                    _simulate,
                    each,
                    configs[each],
                    batches[each.mode, each.hash][rank],
                    constant[_constant_key(each)],
                    scores,
                ): each
                for each, rank in tasks
            }
            for future in as_completed(futures):
                totals[futures[future]] += future.result()
                advance(1)
    finally:
        # After Ctrl-C or an error, running simulations may take further minutes.
        executor.shutdown(wait=False, cancel_futures=True)
    return [_record(trace, each, totals[each.simplified()]) for each in combinations]


def _constant_key(combination: Combination) -> tuple[int, str, int]:
    return combination.constant_rows, combination.constant_score, combination.seed


def _constant_ids(trace: Trace, count: int, score: str, seed: int) -> torch.Tensor | None:
    """The nodes of the constant buffer: [count] int64, ascending; None without any."""
    if count == 0:
        return None
    if score == "random":
        order = np.random.default_rng(seed).permutation(trace.num_nodes)
    elif trace.static_score is None:
        raise ValueError("a constant buffer by static score needs a trace with a static_score")
    else:
        order = np.argsort(-trace.static_score, kind="stable")
    return torch.from_numpy(np.sort(order[:count].astype(np.int64)))


def _warn_of_surprises(trace: Trace, combinations: Sequence[Combination]) -> None:
    policies = planner.NEEDS_SCORE & {each.policy for each in combinations}
    scored = [name for name in planner.POLICIES if name in policies]
    if trace.static_score is None and scored:
        warnings.warn(
            f"the trace has no static_score: {', '.join(scored)}: every node counts as equally "
            "hot; `lsm trace --score reverse_pagerank` adds one",
            stacklevel=3,
        )


def _simulate(
    combination: Combination,
    config: planner.PlannerConfig | None,
    batches: list[torch.Tensor],
    constant_ids: torch.Tensor | None,
    scores: torch.Tensor | None,
) -> np.ndarray:
    """Counts of one rank's cache, whole trace and second half: [2, len(_COUNTED)] int64."""
    if config is None:
        counters = [
            dict.fromkeys(_COUNTED, 0) | {"requests": len(ids), "misses": len(ids)}
            for ids in batches
        ]
    elif combination.policy == "optimal":
        counters = planner.simulate_optimal(batches, config.num_lines, constant_ids=constant_ids)
    else:
        ranks_by_score = combination.policy in planner.NEEDS_SCORE or combination.victim == "pool"
        known = scores if ranks_by_score else None
        counters = planner.simulate(batches, config, scores=known, constant_ids=constant_ids)
    counts = np.array([[step[name] for name in _COUNTED] for step in counters], np.int64)
    return np.stack([counts.sum(0), counts[len(counts) // 2 :].sum(0)])


def _record(trace: Trace, combination: Combination, counts: np.ndarray) -> dict:
    settings = dict(combination)
    first = {name: settings[name] for name in ("policy", "lines")}
    record = (
        first
        | settings
        | {
            "num_ranks": trace.num_ranks,
            "num_iterations": trace.num_iterations,
            "num_nodes": trace.num_nodes,
            "mean_list": round(trace.mean_list, 2),
            "trace_requests": len(trace.ids),
        }
    )
    for suffix, row in (("", counts[0]), ("_2nd", counts[1])):
        values = dict(zip(_COUNTED, row.tolist(), strict=True))
        served = sum(values[name] for name in _TIERS)
        requests = values["requests"]
        record |= {name + suffix: value for name, value in values.items()}
        record["hit_ratio" + suffix] = served / requests if requests else 0.0
    return record
