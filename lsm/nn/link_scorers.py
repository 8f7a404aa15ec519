"""Scores of links from the rows of their ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from lsm.core.imported import import_named, is_imported
from lsm.nn.construct import call_own, construct

_CHUNK_BYTES = 64 << 20


class Scorer(nn.Module, ABC):
    """A number for a source and a destination; higher is likelier."""

    name: ClassVar[str]
    """Its name in links.scorer."""

    @abstractmethod
    def forward(self, source: Tensor, destination: Tensor) -> Tensor:
        """Scores [...] of rows [..., d] that belong together."""

    @abstractmethod
    def matrix(self, source: Tensor, destination: Tensor) -> Tensor:
        """Scores [n, k] of each of ``source`` [n, d] with each of ``destination`` [k, d]."""


class Dot(Scorer):
    """The product of both rows; the same in both directions."""

    name = "dot"

    def __init__(self, width: int) -> None:
        super().__init__()

    def forward(self, source: Tensor, destination: Tensor) -> Tensor:
        return (source * destination).sum(-1)

    def matrix(self, source: Tensor, destination: Tensor) -> Tensor:
        return source @ destination.t()


class DistMult(Scorer):
    """The product of both rows, weighted by column; the same in both directions."""

    name = "distmult"

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, source: Tensor, destination: Tensor) -> Tensor:
        return (source * self.weight * destination).sum(-1)

    def matrix(self, source: Tensor, destination: Tensor) -> Tensor:
        return (source * self.weight) @ destination.t()


class MLP(Scorer):
    """A hidden layer over both rows, which tells source and destination apart."""

    name = "mlp"

    def __init__(self, width: int) -> None:
        super().__init__()
        self.source = nn.Linear(width, width)
        self.destination = nn.Linear(width, width, bias=False)
        self.output = nn.Linear(width, 1)

    def forward(self, source: Tensor, destination: Tensor) -> Tensor:
        hidden = self.source(source) + self.destination(destination)
        return self.output(functional.relu(hidden)).squeeze(-1)

    def matrix(self, source: Tensor, destination: Tensor) -> Tensor:
        """As Scorer.matrix(), a few sources at a time."""
        ours, theirs = self.source(source), self.destination(destination)
        size = max(1, _CHUNK_BYTES // max(1, 4 * theirs.numel()))
        parts = [functional.relu(part[:, None] + theirs) for part in ours.split(size)]
        return torch.cat([self.output(part).squeeze(-1) for part in parts])


class OwnScorer(Scorer):
    """A module of the user, called with rows of sources and of destinations, [n, d] each."""

    name = "package.module:Class"

    def __init__(self, own_name: str, module: nn.Module, width: int) -> None:
        """``own_name``: for errors. Tries ``module`` on rows of ``width``. Raises ValueError if it
        does not take them, or makes no scores of them that can be learnt."""
        super().__init__()
        self.module, self._own_name = module, own_name
        rows = torch.ones(2, width, requires_grad=True, device="cpu")  # not meta, as in a plan
        was_training = module.training
        module.eval()  # so that nothing is drawn, or kept
        with torch.enable_grad():
            try:
                scores = self(rows, rows)
            except RuntimeError as error:
                raise ValueError(str(error)) from error
        module.train(was_training)
        if not scores.requires_grad:
            raise ValueError(
                f"links.scorer: {own_name}: its scores depend neither on the rows nor on a "
                "parameter, so that nothing can be learnt"
            )

    def forward(self, source: Tensor, destination: Tensor) -> Tensor:
        """As Scorer.forward(). Raises RuntimeError for an error of the module, with its place,
        ValueError for scores of another shape."""
        source, destination = torch.broadcast_tensors(source, destination)
        shape, width = source.shape[:-1], source.size(-1)
        rows = source.reshape(-1, width), destination.reshape(-1, width)
        scores = call_own(f"links.scorer: {self._own_name}", self.module, *rows)
        if not isinstance(scores, Tensor) or scores.shape != rows[0].shape[:1]:
            got = list(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise ValueError(
                f"links.scorer: {self._own_name}: expected scores [{len(rows[0])}] of rows "
                f"{list(rows[0].shape)}, got {got}"
            )
        return scores.float().view(shape)

    def matrix(self, source: Tensor, destination: Tensor) -> Tensor:
        """As Scorer.matrix(), a few sources at a time."""
        size = max(1, _CHUNK_BYTES // max(1, 4 * destination.numel()))
        return torch.cat([self(part[:, None], destination) for part in source.split(size)])


_SCORERS: Mapping[str, Callable[[int], Scorer]] = {each.name: each for each in (Dot, DistMult, MLP)}


def build_scorer(name: str, width: int, args: Mapping[str, Any] | None = None) -> Scorer:
    """The scorer of rows of ``width`` that ``links.scorer`` names. ``args``: of a class of the
    user, which also gets the width if it takes ``in_channels``. Raises ValueError if the class
    cannot be imported, does not take its arguments, or is no scorer."""
    if not is_imported(name):
        return _SCORERS[name](width)
    kind = import_named("links.scorer", name)
    sizes, keys = {"in_channels": width}, ("links.scorer", "links.scorer_args")
    return OwnScorer(name, construct(keys, name, kind, sizes, args or {}), width)
