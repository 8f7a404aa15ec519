"""The planner by its rules and without derived state.

Every decision is slow and plain: next uses are searched in the batches, victims by scanning a set,
slots by counting from zero.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import numpy as np

from reference.hashing import mix64
from reference.policies import POLICIES, RankingPolicy
from reference.victim import VictimBuffer


class Source(IntEnum):
    STATIC = 0
    CACHE = 1
    VICTIM = 2
    CONSTANT = 3
    STORAGE = 4


COUNTERS = (
    *("requests", "hits", "static_hits", "victim_hits", "constant_hits", "misses"),
    *("bypasses", "evictions", "spilled", "victim_overflow"),
)
COUNTER_OF_SOURCE = {
    Source.STATIC: "static_hits",
    Source.CACHE: "hits",
    Source.VICTIM: "victim_hits",
    Source.CONSTANT: "constant_hits",
    Source.STORAGE: "misses",
}


@dataclass
class Moves:
    """Moves of one iteration, in the order of its events. Victim slots come last, because the
    buffer chooses among all rows that leave."""

    evicted: list[tuple[int, int]] = field(default_factory=list)  # (line, node)
    inserted: list[tuple[int, int]] = field(default_factory=list)  # (position, line)
    bypassed: list[tuple[int, int]] = field(default_factory=list)  # (position, node)
    leaving: list[int] = field(default_factory=list)  # evicted and bypassed nodes


class Occurrences:
    """The iterations that request a node."""

    def __init__(self) -> None:
        self.of: dict[int, list[int]] = defaultdict(list)

    def add(self, b: int, nodes: list[int]) -> None:
        for node in nodes:
            self.of[node].append(b)

    def after(self, node: int, t: int) -> int | None:
        """The first iteration > t that requests ``node``."""
        known = self.of.get(node, [])
        i = bisect_right(known, t)
        return known[i] if i < len(known) else None


class ReferencePlanner:
    """lsm.cache.planner.Planner's interface; ``config`` has the fields of PlannerConfig.

    ``scores``: one float32 per node; ``static_ids``, ``constant_ids``: node ids; ``trace``: all
    batches, for ``belady``. Anything NumPy reads is accepted. ``num_threads`` changes nothing.
    """

    def __init__(
        self,
        config: Any,
        *,
        scores: Any = None,
        static_ids: Iterable[int] | None = None,
        constant_ids: Iterable[int] | None = None,
        trace: Iterable[Iterable[int]] | None = None,
        num_threads: int = 1,
    ) -> None:
        self.config = config
        self.ways = config.ways
        self.num_sets = max(1, config.num_lines // config.ways)
        self.scores = None if scores is None or not len(scores) else np.asarray(scores, np.float32)
        self.static = _index(static_ids)
        self.constant = _index(constant_ids)
        self.whole_trace = Occurrences()
        for b, batch in enumerate(trace or []):
            self.whole_trace.add(b, _nodes(batch))
        self.iteration = 0
        self.batches: list[list[int]] = []
        self.rank_starts: list[list[int]] = []
        self.pushed = Occurrences()
        self.lines: list[int | None] = [None] * (self.num_sets * self.ways)
        self.last_touch = [-1] * len(self.lines)
        self.last_request: dict[int, int] = {}
        self.tagged: list[int] = []  # nodes whose rows in the victim buffer got their next use
        self.victims = VictimBuffer(
            config.victim_mode, config.victim_rows, config.window, self._rank
        )
        self.policy = POLICIES[config.policy](self)

    # For policies.

    def next_use(self, node: int, t: int) -> int | None:
        return self.pushed.after(node, t)

    def next_use_in_trace(self, node: int, t: int) -> int | None:
        return self.whole_trace.after(node, t)

    def score(self, node: int) -> float:
        if self.scores is None or node >= len(self.scores):
            return 0.0
        return float(self.scores[node])

    def node_of(self, set_: int, way: int) -> int:
        node = self.lines[set_ * self.ways + way]
        assert node is not None, "policies ask of lines in use"
        return node

    def resident(self) -> list[tuple[tuple[int, int], int]]:
        """((set, way), node) of every line in use."""
        places = ((divmod(line, self.ways), node) for line, node in enumerate(self.lines))
        return [(place, node) for place, node in places if node is not None]

    # The planner's interface.

    def push(self, ids: Iterable[int], rank_starts: Iterable[int] = (0,)) -> None:
        nodes = _nodes(ids)
        if len(set(nodes)) != len(nodes):
            raise ValueError(f"batch {len(self.batches)} requests a node twice")
        t = len(self.batches)
        self.tagged += [node for node in nodes if self.victims.enter_window(node, t)]
        self.pushed.add(t, nodes)
        self.batches.append(nodes)
        self.rank_starts.append([int(start) for start in rank_starts])

    def set_scores(self, scores: Any) -> None:
        self.scores = np.asarray(scores, np.float32)

    def plan(self) -> SimpleNamespace:
        """Plans the next iteration: the fields of lsm.cache.planner.Plan, as NumPy arrays."""
        t = self.iteration
        if t >= len(self.batches):
            raise ValueError(f"plan({t}) needs batch {t}, which was not pushed")
        nodes = self.batches[t]
        counters = dict.fromkeys(COUNTERS, 0)
        later = [node for node in self.tagged if (self.victims.next_use[node] or -1) > t]
        tags = [(self.victims.slot[node], self._word(node)) for node in later]
        self.tagged = []
        self.last_request.update(dict.fromkeys(nodes, t))
        self.policy.refresh(t)
        sources, slots = self._look_up(nodes, t, counters)
        moves = self._insert(nodes, sources, t, counters)
        self._spill(moves, t, counters)
        self.iteration += 1
        return self._plan(t, nodes, sources, slots, moves, tags, counters)

    # The steps of one iteration.

    def _look_up(
        self, nodes: list[int], t: int, counters: dict[str, int]
    ) -> tuple[list[Source], list[int]]:
        line_of = {node: line for line, node in enumerate(self.lines) if node is not None}
        sources, slots = [], []
        for node in nodes:
            if node in self.static:
                source, slot = Source.STATIC, self.static[node]
            elif node in line_of:
                source, slot = Source.CACHE, line_of[node]
                self.last_touch[slot] = t
                set_, way = divmod(slot, self.ways)
                self.policy.on_hit(set_, way, t)
            elif node in self.victims.slot:
                source, slot = Source.VICTIM, self.victims.take(node)
            elif node in self.constant:
                source, slot = Source.CONSTANT, self.constant[node]
            else:
                source, slot = Source.STORAGE, -1
            sources.append(source)
            slots.append(slot)
            counters["requests"] += 1
            counters[COUNTER_OF_SOURCE[source]] += 1
        return sources, slots

    def _insert(
        self, nodes: list[int], sources: list[Source], t: int, counters: dict[str, int]
    ) -> Moves:
        by_set = defaultdict(list)
        for position, (node, source) in enumerate(zip(nodes, sources, strict=True)):
            if source in (Source.VICTIM, Source.STORAGE):
                by_set[mix64(node) % self.num_sets].append((position, node))
        moves = Moves()
        for set_ in sorted(by_set):
            placed = self._place(set_, by_set[set_], t)
            for position, node in by_set[set_]:
                if position not in placed:
                    moves.bypassed.append((position, node))
                    moves.leaving.append(node)
                    counters["bypasses"] += 1
                    continue
                line, held = placed[position]
                if held is not None:
                    moves.evicted.append((line, held))
                    moves.leaving.append(held)
                    counters["evictions"] += 1
                moves.inserted.append((position, line))
        return moves

    def _place(
        self, set_: int, newcomers: list[tuple[int, int]], t: int
    ) -> dict[int, tuple[int, int | None]]:
        """Places a set's (position, node), in request order or, if the policy ranks newcomers, the
        highest keys first. Returns the line and the node it held, by position."""
        policy, order = self.policy, newcomers
        if isinstance(policy, RankingPolicy):
            order = sorted(order, key=lambda row: policy.node_key(row[1], t), reverse=True)
        placed: dict[int, tuple[int, int | None]] = {}
        num_evicted = 0
        for position, node in order:
            way = self._way_for(node, set_, t, num_evicted)
            if way is None:
                continue
            line = set_ * self.ways + way
            placed[position] = line, self.lines[line]
            num_evicted += self.lines[line] is not None
            self.lines[line] = node
            self.last_touch[line] = t
            policy.on_insert(set_, way, t)
        return placed

    def _way_for(self, node: int, set_: int, t: int, num_evicted: int) -> int | None:
        lines = range(set_ * self.ways, (set_ + 1) * self.ways)
        for way, line in enumerate(lines):
            if self.lines[line] is None:
                return way
        policy = self.policy
        if isinstance(policy, RankingPolicy):
            way = policy.victim(set_, list(range(self.ways)), t, num_evicted)
            lower = policy.node_key(self.node_of(set_, way), t) < policy.node_key(node, t)
            return way if lower else None
        untouched = [way for way, line in enumerate(lines) if self.last_touch[line] != t]
        return policy.victim(set_, untouched, t, num_evicted) if untouched else None

    def _spill(self, moves: Moves, t: int, counters: dict[str, int]) -> None:
        rows = [(node, self.next_use(node, t)) for node in moves.leaving]
        entered, num_lost = self.victims.put(rows)
        counters["spilled"] += entered
        counters["victim_overflow"] += num_lost

    def _rank(self, node: int) -> float:
        """The rank of a row of unknown next use in the victim buffer: its score; without scores,
        the last iteration that requested it."""
        return self.last_request[node] if self.scores is None else self.score(node)

    def _plan(
        self,
        t: int,
        nodes: list[int],
        sources: list[Source],
        slots: list[int],
        moves: Moves,
        tags: list[tuple[int, int]],
        counters: dict[str, int],
    ) -> SimpleNamespace:
        victim_slot = self.victims.slot
        spilled = [
            (p, victim_slot[node], self._word(node))
            for p, node in moves.bypassed
            if node in victim_slot
        ]
        return SimpleNamespace(
            iteration=t,
            ids=_int64(nodes),
            source=np.array(sources, np.uint8),
            slot=_int64(slots),
            evict_line=_int64([line for line, _ in moves.evicted]),
            evict_slot=_int64([victim_slot.get(node, -1) for _, node in moves.evicted]),
            evict_word=_int64([self._word(node) for _, node in moves.evicted]),
            insert_position=_int64([position for position, _ in moves.inserted]),
            insert_line=_int64([line for _, line in moves.inserted]),
            spill_position=_int64([position for position, _, _ in spilled]),
            spill_slot=_int64([slot for _, slot, _ in spilled]),
            spill_word=_int64([word for _, _, word in spilled]),
            tag_slot=_int64([slot for slot, _ in tags]),
            tag_word=_int64([word for _, word in tags]),
            counters=counters,
        )

    def _word(self, node: int) -> int:
        """The metadata word of a row in the victim buffer, as a signed integer: 0 if the row is not
        there, -1 if its next use is not known."""
        if node not in self.victims.slot:
            return 0
        next_use = self.victims.next_use[node]
        if next_use is None:
            return -1
        position = self.batches[next_use].index(node)
        starts = self.rank_starts[next_use]
        rank = max(r for r, start in enumerate(starts) if start <= position)
        word = next_use % 2**16 * 2**48 + rank * 2**40 + position
        return word - 2**64 if word >= 2**63 else word


def _int64(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)


def _nodes(ids: Iterable[int]) -> list[int]:
    return [int(node) for node in ids]


def _index(ids: Iterable[int] | None) -> dict[int, int]:
    return {} if ids is None else {node: i for i, node in enumerate(_nodes(ids))}
