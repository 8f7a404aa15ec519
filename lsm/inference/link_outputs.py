"""Outputs made of the rows of both ends of links: scores of pairs, best targets, ranks."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lsm import native
from lsm.graph.types import EdgeType
from lsm.inference.arrays import ArrayFile, runs_of
from lsm.inference.pair_scores import LEAST_PAIRS, EndFiles, PairScorer
from lsm.inference.stage import Finish, Resources, Stage
from lsm.nn.link_models import LinkNetwork

_PAIRS_AT_ONCE = 1 << 20
_MOST_PAIRS = 1 << 25  # of a group, so that a kill loses little


Arrays = Mapping[str, ArrayFile]
"""Arrays by name."""


class LinkOutputs(ABC):
    """Outputs for links of one type, from the rows of their ends.

    edge_type: the type. selection: the nodes that the outputs have rows of, [n] int64 ascending;
    None: their rows are not those of nodes.
    """

    edge_type: EdgeType
    selection: Tensor | None = None

    @abstractmethod
    def wanted(self, num_nodes: Mapping[str, int]) -> dict[str, Tensor]:
        """The nodes whose rows are needed: [N] bool by type of node."""

    @abstractmethod
    def arrays(self, work: Path, num_nodes: Mapping[str, int]) -> dict[str, ArrayFile]:
        """The arrays by name. ``num_nodes``: by type. Raises ValueError for outputs that there
        cannot be."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """The facts that decide the outputs, next to the rows."""

    @property
    @abstractmethod
    def summary(self) -> dict[str, Any]:
        """The outputs in words and counts."""

    @abstractmethod
    def stage(self, arrays: Arrays, rows: EndFiles, resources: Resources) -> Stage:
        """The stage that makes the ``arrays`` of the ``rows`` of all sources and destinations."""


class LinkScores(LinkOutputs):
    """Scores of pairs: ``scores.npy`` float32 [n], in the order of the pairs."""

    def __init__(self, model: LinkNetwork, pairs: Tensor) -> None:
        """``pairs``: sources and destinations, [2, n] int64."""
        self.edge_type, self.scorer, self.pairs = model.edge_type, model.scorer, pairs

    def wanted(self, num_nodes: Mapping[str, int]) -> dict[str, Tensor]:
        return marked(self.pairs, self.edge_type, num_nodes)

    def arrays(self, work: Path, num_nodes: Mapping[str, int]) -> dict[str, ArrayFile]:
        return {"scores": ArrayFile(work / "scores.npy", self.pairs.size(1), (), torch.float32)}

    @property
    def summary(self) -> dict[str, Any]:
        return {"edge_type": self.edge_type, "links": self.pairs.size(1)}

    def facts(self) -> dict[str, Any]:
        return {"links": digest_of_pairs(self.pairs)}

    def stage(self, arrays: Arrays, rows: EndFiles, resources: Resources) -> Stage:
        return _ScoreStage(self, arrays["scores"], rows, resources)


class _ScoreStage(Stage):
    """Scores of pairs, by units of as many as every budget has room for."""

    name = "links"

    def __init__(
        self, links: LinkScores, scores: ArrayFile, rows: EndFiles, resources: Resources
    ) -> None:
        self._pairs, self._rows, self._scores = links.pairs, rows, scores
        self._scorer = PairScorer(links.scorer, rows, resources)
        self.enough_bytes = self._scorer.enough_bytes
        self.num_units = -(-links.pairs.size(1) // LEAST_PAIRS)

    def run(self, units: np.ndarray, finish: Finish) -> int:
        with self._rows as rows:
            most = min(self._scorer.most_pairs, _MOST_PAIRS) // LEAST_PAIRS
            for begin, end in groups_of(units, most):
                first = begin * LEAST_PAIRS
                part = self._pairs[:, first : end * LEAST_PAIRS].contiguous()
                native.check_mapped(self._pairs)
                scores = self._scorer.scores(part[0], part[1])
                self._scores.write(first, scores)
                finish(begin, end, int((~torch.isfinite(scores)).sum()))
            return rows.bytes_read


def groups_of(units: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """First and end of groups of at most ``most`` consecutive ``units``."""
    for first, end in runs_of(units):
        for begin in range(first, end, most):
            yield begin, min(begin + most, end)


def marked(pairs: Tensor, edge_type: EdgeType, num_nodes: Mapping[str, int]) -> dict[str, Tensor]:
    """The nodes at the ends of ``pairs`` [2, n]: [N] bool by type."""
    sides = edge_type[0], edge_type[2]
    marks = {name: torch.zeros(num_nodes[name], dtype=torch.bool) for name in sides}
    for first in range(0, pairs.size(1), _PAIRS_AT_ONCE):
        for name, ids in zip(sides, pairs[:, first : first + _PAIRS_AT_ONCE], strict=True):
            marks[name][ids] = True
    native.check_mapped(pairs)
    return marks


def digest_of_pairs(pairs: Tensor) -> str:
    """SHA-256 of pairs [2, n] in their order, whatever the memory layout is."""
    found = hashlib.sha256()
    for first in range(0, pairs.size(1), _PAIRS_AT_ONCE):
        part = pairs[:, first : first + _PAIRS_AT_ONCE].contiguous()
        found.update(part.numpy().data)
    native.check_mapped(pairs)
    return found.hexdigest()
