"""A sum of memory that exceeds its budget: a warning, or an error with the remedies."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lsm.cache import memory as cache_memory
from lsm.cache.options import CacheOptions
from lsm.config.schema import Config
from lsm.core.option_types import settled
from lsm.core.units import format_bytes, sum_in_words
from lsm.train.memory_plan import Facts

_SLACK = 1.4  # the terms are upper bounds: runs took from 1/1.4 of their sum to all of it


def problem_of(
    config: Config,
    cache: CacheOptions,
    facts: Facts,
    terms: Mapping[str, int],
    *,
    enough: Callable[[], int | None],
) -> str | None:
    """The sum of ``terms``, if it exceeds an estimated budget; None if it does not.

    Args:
        config: As it was given.
        cache: With the chosen sizes.
        facts: With the budget.
        terms: Bytes by use.
        enough: A budget that has room, in bytes, if one is known.

    Raises:
        ValueError: The budget was given, or no slack of the terms makes up for the excess.
    """
    total = sum(terms.values())
    is_chosen = config.cache.bytes == "auto" and cache.policy != "none"
    lacks_rows = is_chosen and settled(cache.bytes) < facts.shape.row_bytes
    if total <= facts.budget and not lacks_rows:
        return None
    problem = (
        f"memory.bytes: expected room for one batch and the memory that is always in use: "
        f"{sum_in_words(terms)}{' and rows of a cache' if lacks_rows else ''}, got "
        f"{format_bytes(facts.budget)}"
    )
    # A cache of a size that cannot be has an error of its own, which names its key.
    upper_bound = total - cache_memory.explicit_bytes(config.cache, facts.shape)
    may_fit = upper_bound <= _SLACK * max(facts.budget, facts.available)
    if config.memory.bytes == "auto" and not lacks_rows and may_fit:
        return problem
    budget = enough()
    larger = "" if budget is None else f" ({budget >> 20}MiB has room)"
    links = "links.eval_candidates, " if config.train.task == "link" else ""
    raise ValueError(
        f"{problem}; make it larger{larger}, or train.batch_size, train.eval.batch_size, {links}"
        "sampler.num_neighbors, loader.staging_bytes or cache.bytes smaller"
    )
