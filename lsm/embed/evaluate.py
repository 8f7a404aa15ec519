"""Link prediction on a split, with the edges divided among the ranks."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import cached_property

import torch
from torch import Tensor

from lsm.data.format import SPLITS
from lsm.data.triples.store import TripleStore
from lsm.distributed import collectives
from lsm.distributed.collectives import World
from lsm.embed.config import EmbedConfig
from lsm.embed.edge_ranking import Blocks, rank_edges
from lsm.embed.run import EmbeddingRun
from lsm.embed.sides import known_edges, sides_of
from lsm.links.known_edges import KnownEdges
from lsm.links.ranking import Protocol, Ranking
from lsm.run.torch_setup import set_up_torch

_MEANS = ("mrr", "hits_at_1", "hits_at_3", "hits_at_10")


class Evaluator:
    """Ranks the edges of a store by the protocol in the configuration."""

    def __init__(self, config: EmbedConfig, store: TripleStore, world: World) -> None:
        self._config, self._store, self._world = config, store, world
        self._known: dict[tuple[str, int], tuple[KnownEdges, KnownEdges]] = {}

    def evaluate(
        self, split: str, blocks: Blocks, relations: Tensor | None, most: int = 0
    ) -> Ranking | None:
        """The ranking of ``split``, of at most ``most`` edges (0: all); None if it has no edges.
        Every rank calls it, with all rows of the table in ``blocks``, and gets the result over all
        ranks. Raises RuntimeError if an edge has no finite score."""
        edges = self._edges(split, most)
        if not len(edges):
            return None
        rank, size = self._world.rank, self._world.size
        mine = edges[rank::size] if rank < len(edges) else edges[:1]
        try:
            ranking = rank_edges(
                self._config.embed,
                blocks,
                relations,
                mine,
                self._known_of(split, mine),
                self._protocol,
                self._degrees,
            )
        except FloatingPointError as error:
            raise RuntimeError(f"split {split}: {error}") from None
        counts = ranking.num_edges if rank < len(edges) else 0
        sums = [getattr(ranking, name) * counts for name in _MEANS]
        totals = torch.tensor([*sums, counts], dtype=torch.float64)
        *sums, total = collectives.all_reduce_sum(totals, self._world).tolist()
        means = {name: value / total for name, value in zip(_MEANS, sums, strict=True)}
        return replace(ranking, **means, num_edges=int(total))

    def _edges(self, split: str, most: int) -> Tensor:
        num_edges = self._store.num_edges[split]
        most = min(limit or num_edges for limit in (most, self._config.eval.edges))
        if most >= num_edges:
            return torch.from_numpy(self._store.checked_edges(split))
        generator = torch.Generator().manual_seed(self._config.train.seed)
        drawn = torch.randperm(num_edges, generator=generator)[:most]
        return torch.from_numpy(self._store.checked_edges(split, drawn.numpy()))

    @property
    def _protocol(self) -> Protocol:
        config = self._config.eval
        if config.candidates == "all":
            return Protocol()
        size = min(config.sample, self._store.num_entities)
        return Protocol(config.candidates, size, self._config.train.seed)

    def _known_of(self, split: str, mine: Tensor) -> tuple[KnownEdges, KnownEdges] | None:
        """The edges of all splits that complete queries of ``mine``, edges of ``split``; found
        once."""
        if not self._config.eval.filtered:
            return None
        name = split, len(mine)
        if name not in self._known:
            options = self._config.embed
            rows = options.relation_rows(self._store.num_relations) if options.has_relations else 0
            tails, heads = (side.keys(rows) for side in sides_of(options, mine, rows))
            chunks = map(torch.from_numpy, self._store.checked_chunks(*SPLITS))
            self._known[name] = known_edges(options, chunks, rows, (tails, heads))
        return self._known[name]

    @cached_property
    def _degrees(self) -> Tensor | None:
        if self._config.eval.candidates != "degree":
            return None
        degrees = torch.zeros(self._store.num_entities, dtype=torch.int64)
        for edges in map(torch.from_numpy, self._store.checked_chunks("train")):
            for ends in (edges[:, 0], edges[:, -1]):
                degrees.index_add_(0, ends, torch.ones_like(ends))
        return degrees


def evaluate_run(run: EmbeddingRun, split: str) -> dict[str, float | str | int | None]:
    """The ranking of ``split`` by the embeddings of ``run``, as a record with its protocol."""
    set_up_torch(run.config.train.num_threads, World(), torch.device("cpu"))
    evaluator = Evaluator(run.config, run.store(), World())
    ranking = evaluator.evaluate(split, run.blocks, run.relations())
    return as_record(split, ranking) | {"protocol": ranking.protocol if ranking else None}


def as_record(split: str, ranking: Ranking | None) -> dict[str, float | str | int | None]:
    """``<split>_mrr`` and so on, for records; null without edges."""
    if ranking is None:
        return {f"{split}_{name}": None for name in _MEANS}
    values = asdict(ranking)
    return {f"{split}_{name}": values[name] for name in (*_MEANS, "num_edges")}
