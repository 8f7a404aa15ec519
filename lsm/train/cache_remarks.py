"""Remarks on a cache whose settings do no good, in words for the user."""

from __future__ import annotations

from typing import Any

from lsm.cache.options import CacheOptions
from lsm.cache.tier_sizes import TierSizes
from lsm.core.option_types import settled
from lsm.core.units import format_bytes
from lsm.data.graph_store import GraphStore

_USELESS = 0.0005  # hits that print as 0.0%
_HITS = ("hits", "static_hits", "victim_hits", "constant_hits")


def without_cache(changed: list[str], choice: str) -> str | None:
    """The settings that have no effect because there is no cache; None if there are none.
    ``changed``: keys of the section with values of their own. ``choice``: the reason."""
    keys = [key for key in changed if key != "cache.policy"]
    if not keys:
        return None
    have = "have" if len(keys) > 1 else "has"
    them = "them" if len(keys) > 1 else "it"
    other = ", or set cache.policy=lookahead" if choice == "cache.policy=none" else ""
    why = choice.removesuffix(": no cache")
    return f"there is no cache ({why}): {', '.join(keys)} {have} no effect; leave {them} out{other}"


def rounded_lines(given: CacheOptions, tiers: TierSizes, row_bytes: int) -> str | None:
    """The number of lines, if it is less than ``cache.bytes`` of the user could hold."""
    if given.bytes == "auto":
        return None
    fitting, planner = given.bytes // row_bytes, tiers.planner
    ways = planner.ways if given.ways == "auto" else given.ways
    if (planner.num_lines, planner.ways) == (fitting, ways):
        return None
    return (
        f"cache.bytes: room for {fitting} rows, which do not make whole sets of {ways} "
        f"(cache.ways); using {planner.num_lines} lines in sets of {planner.ways}"
    )


def more_than_useful(given: CacheOptions, tiers: TierSizes, store: GraphStore) -> str | None:
    """``cache.bytes`` of the user that the nodes of the graph cannot fill; None if they can."""
    usable, lines = tiers.within(store.num_nodes).planner.num_lines, tiers.planner.num_lines
    if given.bytes == "auto" or usable >= lines:
        return None
    return (
        f"cache.bytes: {format_bytes(given.bytes)} are {lines:,} lines, more than the "
        f"{store.num_nodes:,} nodes of the graph can fill; cache.bytes={usable * store.row_bytes} "
        "holds as many rows"
    )


def without_hits(
    record: dict[str, Any], options: CacheOptions, num_nodes: int, num_ranks: int
) -> str | None:
    """A cache that served next to no row of an epoch, whose ``record`` of all ranks this is. None
    if it served some, or if it could not: in the first epoch of few batches, a rank requests few
    rows twice."""
    requests, hits = record["requests"], sum(record[name] for name in _HITS)
    could = record["epoch"] > 1 or requests > num_nodes * num_ranks
    if not could or not requests or hits > requests * _USELESS:
        return None
    return (
        f"the cache served {hits:,} of {requests:,} rows of epoch {record['epoch']}: set "
        f"cache.bytes higher (it is {format_bytes(settled(options.bytes))}), or cache.policy=none, "
        "which saves its memory"
    )
