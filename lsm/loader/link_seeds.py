"""The links of batches, by rank and iteration, with their negatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lsm import native
from lsm.graph.types import EdgeType
from lsm.links.negative_sampling import NegativeSampling, NodeDraws
from lsm.loader.seed_links import SeedLinks
from lsm.sampler.name import BatchName
from lsm.sampler.seeds import SeedSource

_SALT = 0x9E3779B97F4A7C15  # negatives are drawn apart from neighbours and from orders
_MASK = 2**64 - 1


@dataclass(frozen=True)
class LinkEdges:
    """The links of all batches.

    ends: [2, n] int64 ids of the ends' types. labels: [n]. times: [n] int64.
    """

    edge_type: EdgeType
    ends: Tensor
    labels: Tensor | None = None
    times: Tensor | None = None

    @property
    def is_one_type(self) -> bool:
        """True if both ends are of one type."""
        return self.edge_type[0] == self.edge_type[2]


@dataclass(frozen=True, slots=True)
class LinkBatch:
    """The links of one rank's batch, and the seeds at their ends."""

    name: BatchName
    input_id: Tensor
    """The positions of the links in their source: [p] int64."""
    links: SeedLinks
    seeds: dict[str, Tensor]
    """Ids of the ends by type, with the ends of negatives; distinct, unless each has a subgraph."""
    times: dict[str, Tensor] | None
    excluded: dict[EdgeType, tuple[Tensor, Tensor]] | None
    """Edges that are not sampled, as a sampler takes them."""
    redraw: Callable[[BatchName, Tensor], LinkBatch]

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments of a sampler."""
        return self.seeds, self.name, self.times, self.excluded

    def first(self, count: int) -> LinkBatch:
        """A batch of the first ``count`` links, with negatives of its own."""
        return self.redraw(self.name, self.input_id[:count])


class LinkSeeds(SeedSource):
    """Batches of links.

    Args:
        edges: The links.
        negatives: Their negatives; None: none.
        draws: The sources and the destinations of negatives that are drawn.
        batch_size: Links per rank and iteration.
        is_disjoint: Each end of a link has a subgraph of its own.
        excluded_types: The types of edges that hold the links, by True if these edges lead from
            destination to source. A batch samples none of its own links there. Empty: it may.
        schedule: The other arguments of SeedSource.
    """

    def __init__(
        self,
        edges: LinkEdges,
        negatives: NegativeSampling | None,
        draws: tuple[NodeDraws | None, NodeDraws | None],
        batch_size: int,
        *,
        is_disjoint: bool,
        excluded_types: dict[EdgeType, bool],
        **schedule: Any,
    ) -> None:
        super().__init__(edges.ends.size(1), batch_size, **schedule)
        self.edges = edges
        """The links."""
        self._negatives, self._draws = negatives, draws
        self._is_disjoint, self._excluded_types = is_disjoint, excluded_types

    def epoch(self, epoch: int) -> Callable[[int], LinkBatch]:
        """As SeedSource.epoch()."""
        return partial(self._at, epoch, self._order(epoch))

    def _at(self, epoch: int, order: Tensor | None, iteration: int) -> LinkBatch:
        nearby = self._nearby(order, iteration)
        name = self._name(epoch, iteration)
        return self._batch(name, self._positions(order, iteration), nearby=nearby)

    def _nearby(self, order: Tensor | None, iteration: int) -> _Nearby | None:
        """This rank's links in the group of iterations around ``iteration``, which resident
        negatives are drawn from. The last group reaches back, so that all have the same size."""
        negatives = self._negatives
        if negatives is None or negatives.kind != "resident":
            return None
        size = min(negatives.iterations, self.num_iterations)
        first = min(iteration // size * size, self.num_iterations - size)
        last = first + size - 1
        return _Nearby(order, self._span(first), self._span(last), last - first, self._global_batch)

    def _batch(
        self, name: BatchName, positions: Tensor, *, nearby: _Nearby | None = None
    ) -> LinkBatch:
        """The batch of the links at ``positions`` [p]. ``nearby``: those that resident negatives
        are drawn from."""
        edges, negatives = self.edges, self._negatives
        ends = edges.ends[:, positions]  # index_select() copies all links of a transposed tensor
        labels = None if edges.labels is None else edges.labels.index_select(0, positions)
        times = None if edges.times is None else edges.times.index_select(0, positions)
        for mapped in (edges.ends, edges.times):
            if mapped is not None:
                native.check_mapped(mapped)
        key = native.batch_key(name.seed ^ _SALT & _MASK, name.epoch, name.iteration, name.rank)
        generator = torch.Generator().manual_seed(key)
        sources, destinations = [ends[0]], [ends[1]]
        if negatives is not None and len(positions):
            if nearby is not None:
                destinations.append(self._resident(negatives, nearby, generator))
            else:
                drawn = self._drawn(negatives, positions, times, generator)
                sources, destinations = [*sources, *drawn[0]], [*destinations, *drawn[1]]
        places = self._places(sources, destinations)
        return LinkBatch(
            name,
            positions,
            self._links(places, labels, times, len(positions)),
            places.seeds,
            None if times is None else self._seed_times(places, times),
            self._excluded(ends) if self._excluded_types else None,
            partial(self._batch, nearby=nearby),
        )

    def _resident(
        self, negatives: NegativeSampling, nearby: _Nearby, generator: torch.Generator
    ) -> Tensor:
        """Destinations of the links ``nearby``, drawn with replacement: [k] int64."""
        places = torch.randint(len(nearby), (negatives.count(1),), generator=generator)
        return self.edges.ends[1, nearby.positions(places)]

    def _drawn(
        self,
        negatives: NegativeSampling,
        positions: Tensor,
        times: Tensor | None,
        generator: torch.Generator,
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The sources and the destinations of the negatives of the links at ``positions``."""
        if negatives.kind == "inbatch":
            return [], []
        if negatives.candidates is not None:
            given = negatives.candidates
            if given.dim() == 1:
                return [], [given]
            rows = given.index_select(0, positions)
            return [], [(rows.t() if self._is_disjoint else rows).reshape(-1)]
        count = negatives.count(1 if negatives.kind == "joint" else len(positions))
        found = [
            [] if draws is None else [draws.draw(count, generator, times)] for draws in self._draws
        ]
        return found[0], found[1]

    def _places(self, sources: list[Tensor], destinations: list[Tensor]) -> _Places:
        """The seeds at these ends, and the place of each end among them."""
        source_type, _, destination_type = self.edges.edge_type
        source, destination = torch.cat(sources), torch.cat(destinations)
        if self.edges.is_one_type:
            seeds, places = self._distinct(torch.cat((source, destination)))
            return _Places({source_type: seeds}, places[: len(source)], places[len(source) :])
        source_seeds, source_places = self._distinct(source)
        destination_seeds, destination_places = self._distinct(destination)
        by_type = {source_type: source_seeds, destination_type: destination_seeds}
        return _Places(by_type, source_places, destination_places)

    def _distinct(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        if self._is_disjoint:
            return ids, torch.arange(len(ids))
        found, places = np.unique(ids.numpy(), return_inverse=True)
        return torch.from_numpy(found), torch.from_numpy(places.reshape(-1))

    def _links(
        self, places: _Places, labels: Tensor | None, times: Tensor | None, num_links: int
    ) -> SeedLinks:
        source, destination = places.source, places.destination
        edge_type, negatives = self.edges.edge_type, self._negatives
        if negatives is None or negatives.is_binary:
            if negatives is not None:
                labels = _with_zeros(labels, num_links, len(source))
            return SeedLinks(
                edge_type,
                edge_label_index=torch.stack((source, destination)),
                edge_label=labels,
                edge_label_time=None if times is None else _repeated(times, len(source)),
            )
        negative = destination[num_links:] if negatives.kind != "inbatch" else None
        if negative is not None and not negatives.is_shared and num_links:
            by_link = negative.view(-1, num_links).t() if self._is_disjoint else negative
            negative = by_link.reshape(num_links, -1).squeeze(-1)
        return SeedLinks(
            edge_type,
            src_index=source,
            dst_pos_index=destination[:num_links],
            dst_neg_index=negative,
            seed_time=times,
            is_shared=negatives.is_shared,
        )

    def _seed_times(self, places: _Places, times: Tensor) -> dict[str, Tensor]:
        """The time of each seed: that of its link."""
        source = _repeated(times, len(places.source))
        destination = _repeated(times, len(places.destination))
        source_type, _, destination_type = self.edges.edge_type
        if self.edges.is_one_type:
            return {source_type: torch.cat((source, destination))}
        return {source_type: source, destination_type: destination}

    def _excluded(self, ends: Tensor) -> dict[EdgeType, tuple[Tensor, Tensor]]:
        """The links [2, p] as edges of each type that holds them; between nodes of one type in both
        directions."""
        source, destination = ends.numpy()
        if self.edges.is_one_type:
            source, destination = (
                np.concatenate((source, destination)),
                np.concatenate((destination, source)),
            )
        found = {}
        for each, is_reverse in self._excluded_types.items():
            into, out_of = (source, destination) if is_reverse else (destination, source)
            order = np.lexsort((out_of, into))
            found[each] = (torch.from_numpy(into[order]), torch.from_numpy(out_of[order]))
        return found


@dataclass(frozen=True)
class _Nearby:
    """The links of one rank in iterations that follow one another, without a list of them.

    order: of the epoch's links; None: as they are. first, last: the ranges of the first and of the
    last iteration in that order. All but the last are as long as the first. num_before: iterations
    before the last. stride: from one iteration to the next, in places of the order.
    """

    order: Tensor | None
    first: tuple[int, int]
    last: tuple[int, int]
    num_before: int
    stride: int

    def __len__(self) -> int:
        begin, end = self.first
        last_begin, last_end = self.last
        return self.num_before * (end - begin) + last_end - last_begin

    def positions(self, places: Tensor) -> Tensor:
        """The positions of the links at ``places``, from 0 to len() - 1, in order of iterations:
        int64."""
        begin, end = self.first
        found = places + begin
        if self.stride > end - begin:  # other ranks have links in between
            number = places // (end - begin)
            found += number * (self.stride - end + begin)
            early = begin + self.num_before * self.stride - self.last[0]
            found -= (number == self.num_before) * early
        return found if self.order is None else self.order[found]


@dataclass(frozen=True)
class _Places:
    """Seeds by type, and the places of ends among them: of links, then of negatives."""

    seeds: dict[str, Tensor]
    source: Tensor
    destination: Tensor


def _with_zeros(labels: Tensor | None, num_links: int, count: int) -> Tensor:
    """The labels of links, ones by default, then zeros for negatives: [count]."""
    own = torch.ones(num_links) if labels is None else labels
    return torch.cat((own, own.new_zeros(count - num_links, *own.shape[1:])))


def _repeated(times: Tensor, count: int) -> Tensor:
    """The times of links, then of their negatives: [count]."""
    return times.repeat(-(-count // max(1, len(times))))[:count]
