"""Bytes read with one cache over types of three row sizes: ``python bench/typed_cache.py``.

The graph of typed_sampler.py, whose papers have rows of 512 bytes, authors of 64 and topics of
2048; institutes have none. The planner replays the requests of batches for each type. The cache is
divided as open_feature_sets divides it, by the requests of other batches; by the bytes of rows; and
by every fixed split in steps of ``--step``, of which the best is the reference. For each cache, a
share of all rows: bytes of rows that are read, and their ratio to those of the best split. Prints
one JSON line.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from itertools import product

import torch
from torch import Tensor
from typed_sampler import make_graph

from common import FANOUTS, numbers, parser, publish
from lsm.cache.options import CacheOptions
from lsm.cache.planner import simulate
from lsm.cache.set_shares import set_shares
from lsm.cache.tier_sizes import TierSizes
from lsm.graph.types import NodeSpace
from lsm.sampler.seeds import NodeSeeds, count_requests
from lsm.sampler.typed_neighbor import TypedNeighborSampler, TypedTopology

ROW_BYTES = {"paper": 512, "author": 64, "topic": 2048}


def parse_args() -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--nodes", type=int, default=200_000)
    arguments.add_argument("--edges", type=int, default=3_200_000)
    arguments.add_argument("--fanouts", type=numbers, default=FANOUTS)
    arguments.add_argument("--batch-size", type=int, default=64)
    arguments.add_argument("--iterations", type=int, default=400)
    arguments.add_argument("--policy", default="lookahead")
    arguments.add_argument("--caches", default="0.05,0.1,0.2,0.4", help="shares of all rows")
    arguments.add_argument("--step", type=float, default=1 / 32, help="of the sweep")
    return arguments.parse_args()


class Replay:
    """The requests of some batches by type, replayed through caches of any size."""

    def __init__(self, args: argparse.Namespace) -> None:
        made = make_graph(args.nodes, args.edges)
        graph = TypedTopology(made.space, made.topologies)
        self.space: NodeSpace = graph.space
        self._policy = args.policy
        sampler = TypedNeighborSampler(graph, args.fanouts, input_type="paper")
        papers = torch.arange(self.space.counts["paper"])
        schedule = {"drop_last": False, "seed": 0, "rank": 0, "world_size": 1}
        seeds = NodeSeeds(papers, args.batch_size, shuffle=True, **schedule)
        counted = count_requests(sampler, seeds, self.space.num_nodes)
        by_type = counted.split(list(self.space.counts.values()))
        self.requests: dict[str, Tensor] = dict(zip(self.space.types, by_type, strict=True))
        self._scores = counted.float()
        ends = torch.tensor(list(self.space.counts.values())).cumsum(0)
        self._batches: dict[str, list[Tensor]] = {name: [] for name in ROW_BYTES}
        draw = seeds.epoch(0)
        for iteration in range(min(args.iterations, seeds.num_iterations)):
            ids = sampler.sample(*draw(iteration).arguments).ids
            number = torch.searchsorted(ends, ids, right=True)
            for name, own in self._batches.items():
                own.append(ids[number == self.space.types.index(name)])

    @property
    def bytes_requested(self) -> int:
        """Bytes of all requested rows."""
        return sum(
            ROW_BYTES[name] * sum(map(len, batches)) for name, batches in self._batches.items()
        )

    def bytes_read(self, name: str, num_bytes: int) -> int:
        """Bytes of a type's rows that a cache of ``num_bytes`` does not hold."""
        size, first = ROW_BYTES[name], self.space.offsets[name]
        if num_bytes < size:
            return size * sum(map(len, self._batches[name]))
        options = CacheOptions.model_validate({"bytes": num_bytes, "policy": self._policy})
        sizes = TierSizes.of(options, size).within(first + self.space.counts[name], first)
        counters = simulate(self._batches[name], sizes.planner, scores=self._scores)
        return size * sum(each["misses"] for each in counters)

    def read_by(self, shares: Mapping[str, int]) -> int:
        """Bytes of all types' rows that are read with these caches."""
        return sum(self.bytes_read(name, share) for name, share in shares.items())


def best_split(replay: Replay, total: int, step: float) -> tuple[int, dict[str, float]]:
    """The least bytes that are read with a fixed split of ``total``, and the split."""
    steps = round(1 / step)
    curves = {
        name: [replay.bytes_read(name, total * part // steps) for part in range(steps + 1)]
        for name in ROW_BYTES
    }
    splits = [
        (*parts, steps - sum(parts))
        for parts in product(range(steps + 1), repeat=len(ROW_BYTES) - 1)
        if sum(parts) <= steps
    ]

    def read(split: tuple[int, ...]) -> int:
        return sum(curve[part] for curve, part in zip(curves.values(), split, strict=True))

    best = min(splits, key=read)
    return read(best), dict(zip(ROW_BYTES, [part / steps for part in best], strict=True))


def main() -> None:
    args = parse_args()
    replay = Replay(args)
    row_totals = {name: replay.space.counts[name] * size for name, size in ROW_BYTES.items()}
    all_rows = sum(row_totals.values())
    results = []
    for fraction in map(float, args.caches.split(",")):
        total = int(all_rows * fraction)
        requests = {name: replay.requests[name] for name in ROW_BYTES}
        shares = set_shares(total, ROW_BYTES, requests)
        ours = replay.read_by(shares)
        by_bytes = {name: total * each // all_rows for name, each in row_totals.items()}
        best, split = best_split(replay, total, args.step)
        results.append(
            {
                "cache": fraction,
                "bytes_requested": replay.bytes_requested,
                "bytes_read": {
                    "divided": ours,
                    "by bytes of rows": replay.read_by(by_bytes),
                    "best": best,
                },
                "shares": {name: round(share / total, 4) for name, share in shares.items()},
                "best_shares": split,
                "ratio": round(ours / best, 4),
            }
        )
    publish({"typed_cache": results}, args)


if __name__ == "__main__":
    main()
