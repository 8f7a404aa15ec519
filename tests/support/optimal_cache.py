"""The most hits that any cache can have, knowing the future: two computations that share nothing
with the planners.

A cache may keep, after iteration t, any ``num_lines`` of the rows it had and of those it read at t
(so bypassing is allowed); a hit is a row that is kept when its batch comes. The planner is such a
cache, with more rules.
"""

from itertools import combinations


def next_uses(batches):
    """``next_uses[t][node]``: the first iteration after t that requests it, infinity if none."""
    result, upcoming = [], {}
    for t in reversed(range(len(batches))):
        result.append({node: upcoming.get(node, float("inf")) for node in batches[t]})
        upcoming.update(dict.fromkeys(batches[t], t))
    return result[::-1]


def optimal_hits(batches, num_lines):
    """Belady's MIN with bypass: keep the rows whose next use is nearest.

    A hit occupies one line from one request of a row to the next; choosing the most such intervals
    with at most ``num_lines`` at any time is solved by always dropping the one that ends last.
    """
    hits, kept = 0, {}  # kept: node -> its next use
    for batch, upcoming in zip(batches, next_uses(batches), strict=True):
        hits += sum(node in kept for node in batch)
        kept |= upcoming
        nearest = sorted((use, node) for node, use in kept.items() if use != float("inf"))
        kept = {node: use for use, node in nearest[:num_lines]}
    return hits


def exhaustive_hits(batches, num_lines):
    """The same by trying every content of the cache after every iteration."""
    best = {frozenset(): 0}
    for batch in batches:
        after = {}
        for kept, hits in best.items():
            hits += len(kept & set(batch))
            available = sorted(kept | set(batch))
            for content in combinations(available, min(num_lines, len(available))):
                content = frozenset(content)
                after[content] = max(after.get(content, 0), hits)
        best = after
    return max(best.values())
