"""A network that scores the links of a batch."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from lsm.graph.types import EdgeType
from lsm.loader.batch import Batch
from lsm.loader.seed_links import SeedLinks
from lsm.nn.link_scorers import Scorer
from lsm.nn.typed_models import TypedGNN


class LinkNetwork(nn.Module):
    """Scores of triplets: a network that computes rows of nodes, and a scorer of pairs of them.

    network: computes the rows of the seeds; a TypedGNN of both types if the ends of links are of
    two. edge_type: of the links.
    """

    def __init__(self, network: nn.Module, scorer: Scorer, edge_type: EdgeType) -> None:
        super().__init__()
        self.network, self.scorer = network, scorer
        self.edge_type = edge_type

    def forward(self, batch: Batch) -> Tensor:
        """Scores of each link, then of its negatives: [batch_size, 1 + k] float32.

        A negative that is the link's own destination has -inf. Without negatives in the batch, they
        are the destinations of all its links.
        """
        links = batch.links
        if links is None or links.src_index is None or links.dst_pos_index is None:
            raise ValueError("model: expected a batch of links with triplets")
        source, destination = self._rows(batch)
        own = destination[links.dst_pos_index]
        source = source[links.src_index]
        positive = self.scorer(source, own).unsqueeze(1)
        if not len(positive):
            # Of no links, but of every parameter, as DDP expects.
            total = sum(each.sum() for each in self.scorer.parameters()) * 0.0
            return (positive + total).expand(0, 2)
        negatives = self._negatives(source, destination, links)
        return torch.cat((positive, negatives), 1).float()

    def _rows(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The rows of the seeds of the sources' type and of the destinations'."""
        source_type, _, destination_type = self.edge_type
        if isinstance(self.network, TypedGNN):
            rows = self.network.outputs(batch, {source_type, destination_type})
            return rows[source_type], rows[destination_type]
        # Networks of nodes take as many seeds as the batch says; here it says links.
        num_seeds = batch.num_sampled_nodes[0] if batch.batch_size else 0
        rows = self.network(replace(batch, batch_size=num_seeds))
        return rows, rows

    def _negatives(self, source: Tensor, destination: Tensor, links: SeedLinks) -> Tensor:
        own = links.dst_pos_index
        assert own is not None, "forward() has looked"
        if links.is_shared:
            places = own if links.dst_neg_index is None else links.dst_neg_index
            scores = self.scorer.matrix(source, destination[places])
        else:
            assert links.dst_neg_index is not None, "only shared negatives are those of the batch"
            places = links.dst_neg_index.view(len(own), -1)
            scores = self.scorer(source[:, None], destination[places])
        return scores.masked_fill(own[:, None] == places, -torch.inf)
