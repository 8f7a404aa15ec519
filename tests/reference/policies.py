"""The eviction policies of the planner, one class each, over plain Python containers.

A policy chooses a victim among ``ways``: the untouched ways of a full set, ascending and not empty.
Without any it is not called, so no pointer, hand or bit moves. A policy that ranks newcomers
chooses among all ways.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from reference.hashing import mix64, philox4x32

if TYPE_CHECKING:
    from reference.planner import ReferencePlanner

# A key part above every iteration.
NEVER = 2**62


class Policy(ABC):
    """``planner`` answers next_use(node, t), score(node), node_of(set, way); it has the config."""

    def __init__(self, planner: ReferencePlanner) -> None:
        self.planner = planner

    def refresh(self, t: int) -> None:  # noqa: B027  most policies need none of these three
        """Iteration t begins; the batches of its window are known."""

    def on_hit(self, set_: int, way: int, t: int) -> None: ...  # noqa: B027

    def on_insert(self, set_: int, way: int, t: int) -> None: ...  # noqa: B027

    @abstractmethod
    def victim(self, set_: int, ways: list[int], t: int, num_evicted: int) -> int | None:
        """The way to evict, ``num_evicted`` having left this set at t before; None: bypass."""


class RankingPolicy(Policy):
    """Compares newcomers with lines: the highest keys of both stay."""

    @abstractmethod
    def node_key(self, node: int, t: int) -> Any:
        """Comparable with those of all other nodes, in lines or not."""

    def victim(self, set_: int, ways: list[int], t: int, num_evicted: int) -> int:
        node_of = self.planner.node_of
        return min(ways, key=lambda way: (self.node_key(node_of(set_, way), t), way))


class RoundRobin(Policy):
    def __init__(self, planner: ReferencePlanner) -> None:
        super().__init__(planner)
        self.pointer = [0] * planner.num_sets

    def victim(self, set_: int, ways: list[int], t: int, num_evicted: int) -> int | None:
        num_ways = self.planner.ways
        way = min(ways, key=lambda way: (way - self.pointer[set_]) % num_ways)
        self.pointer[set_] = (way + 1) % num_ways
        return way


class Random(Policy):
    def victim(self, set_: int, ways: list[int], t: int, num_evicted: int) -> int | None:
        word = philox4x32([set_, t, num_evicted, 0], self.planner.config.seed)[0]
        return ways[word * len(ways) >> 32]


class Window(Random):
    """GIDS: lines with a next use are pinned, one of the others leaves at random."""

    def victim(self, set_: int, ways: list[int], t: int, num_evicted: int) -> int | None:
        next_use, node_of = self.planner.next_use, self.planner.node_of
        free = [way for way in ways if next_use(node_of(set_, way), t) is None]
        return super().victim(set_, free, t, num_evicted) if free else None


class Keyed(Policy):
    """Evicts the lowest key, ties the lowest way."""

    @abstractmethod
    def key(self, set_: int, way: int, t: int) -> Any:
        """Comparable with the keys of the other ways of the set."""

    def victim(self, set_: int, ways: list[int], t: int, num_evicted: int) -> int | None:
        return min(ways, key=lambda way: (self.key(set_, way, t), way))


class Lru(Keyed):
    def __init__(self, planner: ReferencePlanner) -> None:
        super().__init__(planner)
        self.last: dict[tuple[int, int], int] = {}

    def on_hit(self, set_: int, way: int, t: int) -> None:
        self.last[set_, way] = t

    on_insert = on_hit

    def key(self, set_: int, way: int, t: int) -> Any:
        return self.last[set_, way]


class Lfu(Keyed):
    def __init__(self, planner: ReferencePlanner) -> None:
        super().__init__(planner)
        self.count: dict[tuple[int, int], int] = {}
        self.last: dict[tuple[int, int], int] = {}

    def on_hit(self, set_: int, way: int, t: int) -> None:
        self.count[set_, way] += 1
        self.last[set_, way] = t

    def on_insert(self, set_: int, way: int, t: int) -> None:
        self.count[set_, way] = 1
        self.last[set_, way] = t

    def key(self, set_: int, way: int, t: int) -> Any:
        return self.count[set_, way], self.last[set_, way]


class Clock(Policy):
    """One reference bit per line and a hand per set. The hand steps over touched lines and leaves
    their bits alone: their next chance comes when they are not pinned."""

    def __init__(self, planner: ReferencePlanner) -> None:
        super().__init__(planner)
        self.hand = [0] * planner.num_sets
        self.referenced: set[tuple[int, int]] = set()

    def on_hit(self, set_: int, way: int, t: int) -> None:
        self.referenced.add((set_, way))

    def on_insert(self, set_: int, way: int, t: int) -> None:
        self.referenced.discard((set_, way))

    def victim(self, set_: int, ways: list[int], t: int, num_evicted: int) -> int | None:
        while True:
            way = self.hand[set_]
            self.hand[set_] = (way + 1) % self.planner.ways
            if way in ways:
                if (set_, way) not in self.referenced:
                    return way
                self.referenced.remove((set_, way))


class Sieve(Policy):
    """Zhang et al., NSDI 2024: the hand walks from the oldest to the newest line and stays where it
    took one. Touched lines are stepped over and keep their bit."""

    def __init__(self, planner: ReferencePlanner) -> None:
        super().__init__(planner)
        self.order: list[list[int]] = [[] for _ in range(planner.num_sets)]  # ways, oldest first
        self.hand: list[int | None] = [None] * planner.num_sets  # a way; None: the oldest
        self.visited: set[tuple[int, int]] = set()

    def on_hit(self, set_: int, way: int, t: int) -> None:
        self.visited.add((set_, way))

    def on_insert(self, set_: int, way: int, t: int) -> None:
        self.visited.discard((set_, way))
        self.order[set_].append(way)

    def victim(self, set_: int, ways: list[int], t: int, num_evicted: int) -> int | None:
        order = self.order[set_]
        hand = self.hand[set_]
        i = 0 if hand is None else order.index(hand)
        while order[i] not in ways or (set_, order[i]) in self.visited:
            if order[i] in ways:
                self.visited.remove((set_, order[i]))
            i = (i + 1) % len(order)
        way = order.pop(i)
        self.hand[set_] = order[i] if i < len(order) else None
        return way


def _fingerprint(node: int) -> int:
    """The fingerprint of a node in the ghost queue of S3-FIFO: 32 bits, as published."""
    return mix64(node) >> 32


class S3Fifo(Policy):
    """Yang et al., SOSP 2023, algorithm 1, per set. A step looks at the oldest untouched line of
    the small queue S if S has its share of the ways, else of the main queue M; where that queue
    has only touched lines, at the other's. Steps go on until one line is evicted."""

    def __init__(self, planner: ReferencePlanner) -> None:
        super().__init__(planner)
        num_sets = planner.num_sets
        self.small_share = max(1, planner.ways // 10)
        self.small: list[list[int]] = [[] for _ in range(num_sets)]  # ways, oldest first
        self.main: list[list[int]] = [[] for _ in range(num_sets)]
        self.ghost: list[list[int]] = [[] for _ in range(num_sets)]  # fingerprints, oldest first
        self.frequency: dict[tuple[int, int], int] = {}

    def on_hit(self, set_: int, way: int, t: int) -> None:
        self.frequency[set_, way] = min(self.frequency[set_, way] + 1, 3)

    def on_insert(self, set_: int, way: int, t: int) -> None:
        node = self.planner.node_of(set_, way)
        if _fingerprint(node) in self.ghost[set_]:
            self.ghost[set_].remove(_fingerprint(node))
            self.main[set_].append(way)
        else:
            self.small[set_].append(way)
        self.frequency[set_, way] = 0

    def victim(self, set_: int, ways: list[int], t: int, num_evicted: int) -> int | None:
        small, main = self.small[set_], self.main[set_]
        while True:
            small_ways = [way for way in small if way in ways]  # oldest first
            main_ways = [way for way in main if way in ways]
            share_filled = len(small) >= self.small_share
            if not main_ways or (share_filled and small_ways):
                way = small_ways[0]
                small.remove(way)
                if self.frequency[set_, way] <= 1:
                    ghost = self.ghost[set_]
                    ghost.append(_fingerprint(self.planner.node_of(set_, way)))
                    del ghost[: -self.planner.ways]
                    return way
                self.frequency[set_, way] = 0
            else:
                way = main_ways[0]
                main.remove(way)
                if self.frequency[set_, way] == 0:
                    return way
                self.frequency[set_, way] -= 1
            main.append(way)


class Static(Keyed):
    def key(self, set_: int, way: int, t: int) -> Any:
        return self.planner.score(self.planner.node_of(set_, way))


class Refreshed(Keyed):
    """Reuse as of the last refresh: an iteration, None (not in the window), or absent (unknown:
    the line was inserted or hit since)."""

    def __init__(self, planner: ReferencePlanner) -> None:
        super().__init__(planner)
        self.reuse: dict[tuple[int, int], int | None] = {}

    def refresh(self, t: int) -> None:
        planner = self.planner
        if t % planner.config.update_period == 0:
            self.reuse = {place: planner.next_use(n, t - 1) for place, n in planner.resident()}

    def on_hit(self, set_: int, way: int, t: int) -> None:
        self.reuse.pop((set_, way), None)

    on_insert = on_hit


class Dynamic(Refreshed):
    def key(self, set_: int, way: int, t: int) -> Any:
        if (set_, way) not in self.reuse:
            return 1, 0
        reuse = self.reuse[set_, way]
        return (0, 0) if reuse is None else (2, -reuse)


class Hybrid(Refreshed):
    def level(self, set_: int, way: int, t: int) -> int:
        config = self.planner.config
        none, far = (0, 1) if config.victim_mode == "none" else (1, 0)
        if (set_, way) not in self.reuse:
            return 2
        reuse = self.reuse[set_, way]
        if reuse is None:
            return none
        return far if reuse - t > config.near_fraction * config.window else 3

    def key(self, set_: int, way: int, t: int) -> Any:
        return self.level(set_, way, t), self.planner.score(self.planner.node_of(set_, way))


class Lookahead(RankingPolicy):
    def node_key(self, node: int, t: int) -> Any:
        next_use = self.planner.next_use(node, t)
        return (0, self.planner.score(node)) if next_use is None else (1, -next_use)


class Belady(RankingPolicy):
    def node_key(self, node: int, t: int) -> Any:
        return -(self.planner.next_use_in_trace(node, t) or NEVER)


POLICIES: dict[str, type[Policy]] = {
    "round_robin": RoundRobin,
    "random": Random,
    "lru": Lru,
    "clock": Clock,
    "sieve": Sieve,
    "s3fifo": S3Fifo,
    "lfu": Lfu,
    "window": Window,
    "static": Static,
    "dynamic": Dynamic,
    "hybrid": Hybrid,
    "lookahead": Lookahead,
    "belady": Belady,
}
