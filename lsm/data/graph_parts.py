"""A graph that is in memory, or mapped, on its way to a store; and its checks."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from lsm.data import format as layout
from lsm.data.arrays import VALUE_DTYPES
from lsm.data.checks import Named, rows_not_finite
from lsm.data.convert.array_file import ArrayFile
from lsm.data.format import LabelMeta

logger = logging.getLogger(__name__)

_STEP = 1 << 20  # edges that are checked at a time


class _FromSource:
    """Values of a source."""

    name: str
    files: Mapping[str, str]

    def where(self, value: str) -> str:
        """The place of a value in the source, for messages. ``value``: PyG's name."""
        return self.files.get(value, f"{self.name}.{value}")


@dataclass(frozen=True)
class Nodes(_FromSource):
    """The nodes of one type. ``name`` is that of the source's object, for messages.

    features: [N, dim]; those of a file are read by rows. labels: classes, [N] int64, -1 is
    unknown; or numbers, float32 [N] or [N, k], NaN is unknown, or int64 [N, k], a negative one is
    unknown. splits: ids [n] int64 each, ascending. times: [N] int64.
    """

    name: str
    num_nodes: int
    features: torch.Tensor | ArrayFile | None = None
    labels: torch.Tensor | None = None
    splits: Mapping[str, torch.Tensor] = field(default_factory=dict)
    times: torch.Tensor | None = None
    names: Sequence[str] | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    """The source's files, if it has any, by PyG's names of their values."""

    @property
    def num_classes(self) -> int:
        """The largest label + 1; 0 for labels that are numbers."""
        if self.labels is None or len(self.labels) == 0 or self.label_meta is not None:
            return 0
        return int(self.labels.max()) + 1

    @property
    def label_meta(self) -> LabelMeta | None:
        """The layout of labels that are numbers."""
        labels = self.labels
        if labels is None or (labels.dim() == 1 and not labels.is_floating_point()):
            return None
        width = 1 if labels.dim() == 1 else labels.shape[1]
        return LabelMeta(width=width, dtype="float32" if labels.is_floating_point() else "int64")


@dataclass(frozen=True)
class Edges(_FromSource):
    """The edges of one type. ``name`` is that of the source's object, for messages.

    ends: [2, E] int32 or int64, sources and destinations; the other way round if ``is_reversed``.
    weights: [E] float32. times: [E] int64. attr: [E, ...].
    """

    name: str
    ends: torch.Tensor
    weights: torch.Tensor | None = None
    times: torch.Tensor | None = None
    attr: torch.Tensor | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    """As those of Nodes."""
    is_reversed: bool = False

    @property
    def num_edges(self) -> int:
        """The number of edges."""
        return self.ends.shape[1]

    @property
    def sources(self) -> torch.Tensor:
        """The source of each edge, [E]."""
        return self.ends[int(self.is_reversed)]

    def edge_chunks(self) -> Iterator[tuple[int, np.ndarray]]:
        """(position of the first edge, [2, n] sources and destinations) in order."""
        for first in range(0, self.num_edges, _STEP):
            chunk = self.ends[:, first : first + _STEP]
            yield first, (chunk.flip(0) if self.is_reversed else chunk).numpy()

    def reversed(self) -> Edges:
        """The edges in the other direction, of the same memory."""
        return replace(
            self,
            name=f"{self.name} (reversed)",
            files={},
            is_reversed=not self.is_reversed,
        )


def as_tensor(where: str, value: Any) -> torch.Tensor | None:
    """``value`` as a dense tensor of the host; ValueError, which names ``where``, if it is none."""
    if value is None:
        return None
    if isinstance(value, np.ndarray):
        value = torch.from_numpy(value)
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        is_sparse = isinstance(value, torch.Tensor) or hasattr(value, "to_dense")
        got = "a sparse one; give its .to_dense()" if is_sparse else type(value).__name__
        raise ValueError(f"{where}: expected a dense tensor, got {got}")
    return value.detach().cpu()


def as_names(where: str, value: Any) -> list[str] | None:
    """Names of nodes from ``where``: a list of strings that UTF-8 can encode."""
    if value is None:
        return None
    names = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(names, list | tuple):
        raise ValueError(f"{where}: expected a list of strings, got {type(value).__name__}")
    for node, name in enumerate(names):
        if not isinstance(name, str):
            raise ValueError(f"{where}: node {node}: expected a string, got {name!r:.80}")
        try:
            name.encode()
        except UnicodeEncodeError:
            raise ValueError(
                f"{where}: node {node}: {name!r:.80} has no form in UTF-8; replace such letters: "
                "name.encode(errors='replace').decode()"
            ) from None
    return list(names)


def _narrow(values: torch.Tensor) -> torch.Tensor:
    """[n] of a column, [n, 1]; others as they are."""
    return values[:, 0] if values.dim() == 2 and values.shape[1] == 1 else values


def _as_int64(where: str, values: torch.Tensor) -> torch.Tensor:
    """Integers as int64. Raises ValueError, which names the first that int64 cannot hold."""
    found = values.long()
    if values.dtype == torch.uint64 and (found < 0).any():
        first = int((found.view(len(found), -1) < 0).any(dim=1).nonzero()[0])
        raise ValueError(
            f"{where}: position {first}: expected integers below 2^63, got "
            f"{values[first].tolist()}; map such values to smaller ones, and save them as int64"
        )
    return found


def as_labels(where: str, value: Any) -> torch.Tensor | None:
    """Labels of nodes from ``where``: integers [N] as classes, others as numbers; see Nodes."""
    labels = as_tensor(where, value)
    if labels is None:
        return None
    labels = _narrow(labels)
    is_flag = labels.dim() == 1 and labels.dtype == torch.bool
    if labels.dim() not in (1, 2) or 0 in labels.shape[1:] or labels.is_complex() or is_flag:
        raise ValueError(
            f"{where}: expected a class of each node, integers [N], or numbers, floats [N] or "
            f"numbers [N, k], got {labels.dtype} {list(labels.shape)}"
        )
    return labels.float() if labels.is_floating_point() else _as_int64(where, labels)


def known_rows(labels: torch.Tensor) -> torch.Tensor:
    """True for nodes with a label, [N], or with one of several."""
    known = ~labels.isnan() if labels.is_floating_point() else labels >= 0
    return known if labels.dim() == 1 else known.any(dim=1)


def infinite_rows(labels: torch.Tensor) -> torch.Tensor:
    """True for nodes with an infinite number among their labels: [N]."""
    return labels.isinf() if labels.dim() == 1 else labels.isinf().any(dim=1)


def as_times(where: str, value: Any) -> torch.Tensor | None:
    """Times, [n] int64, from ``where``."""
    times = as_tensor(where, value)
    if times is None:
        return None
    if times.dtype.is_floating_point or times.dtype == torch.bool:
        raise ValueError(f"{where}: expected integers, such as seconds, got {times.dtype}")
    times = _narrow(times)
    if times.dim() != 1:
        raise ValueError(f"{where}: expected a time each, [n], got {list(times.shape)}")
    return _as_int64(where, times)


def as_ends(where: str, value: Any, remedy: str = "") -> torch.Tensor:
    """Edges by their ends, [2, E] int64 or int32, of ``where``. ``remedy``: of missing ones."""
    ends = as_tensor(where, value)
    if ends is None or ends.dim() != 2 or ends.shape[0] != 2:
        got = "none" if ends is None else list(ends.shape)
        raise ValueError(f"{where}: expected [2, E], got {got}{remedy}")
    if ends.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"{where}: expected int64 or int32, got {ends.dtype}")
    return ends


def as_weights(where: str, value: Any) -> torch.Tensor | None:
    """Weights of edges, [E] float32, from ``where``."""
    weights = as_tensor(where, value)
    if weights is None:
        return None
    weights = _narrow(weights)
    if weights.dim() != 1:
        raise ValueError(f"{where}: expected [E], got {list(weights.shape)}")
    return weights.float()


def as_attr(where: str, value: Any) -> torch.Tensor | None:
    """Attributes of edges, [E, dim] or [E], from ``where``."""
    attr = as_tensor(where, value)
    if attr is None:
        return None
    if attr.dim() not in (1, 2):
        raise ValueError(f"{where}: expected [E, dim] or [E], got {list(attr.shape)}")
    if str(attr.dtype).removeprefix("torch.") not in VALUE_DTYPES:
        raise ValueError(f"{where}: expected one of {', '.join(VALUE_DTYPES)}, got {attr.dtype}")
    return attr


def check_nodes(nodes: Nodes) -> None:
    """Raises ValueError, which names the fault, for nodes that a store cannot hold."""
    n = nodes.num_nodes
    if nodes.features is not None and (
        len(nodes.features.shape) != 2
        or nodes.features.shape[0] != n
        or nodes.features.shape[1] == 0
    ):
        raise ValueError(
            f"{nodes.where('x')}: expected [{n}, dim], got {list(nodes.features.shape)}"
        )
    for what, values in (("y", nodes.labels), ("time", nodes.times)):
        if values is not None and len(values) != n:
            raise ValueError(f"{nodes.where(what)}: expected [{n}], got {list(values.shape)}")
    if nodes.names is not None and len(nodes.names) != n:
        raise ValueError(f"{nodes.where('names')}: expected {n}, got {len(nodes.names)}")
    if nodes.labels is not None:
        _require_labels(nodes, nodes.labels)
    taken = torch.zeros(n, dtype=torch.bool)
    for split, ids in nodes.splits.items():
        outside = (ids < 0) | (ids >= n)
        where = f"{nodes.name}: split {split}"
        _require(outside, where, ids, f"does not exist: expected an id in [0, {n})")
        counts = torch.bincount(ids, minlength=n)
        _require(counts[ids] > 1, where, ids, "is in it twice; splits have each node once")
        fault = "is in another split already; splits must be disjoint"
        _require(taken[ids], where, ids, fault)
        taken[ids] = True
        if nodes.labels is not None:
            unknown = ~known_rows(nodes.labels[ids])
            _require(unknown, where, ids, "has no label; remove it from the split")


def check_edges(edges: Edges) -> None:
    """Raises ValueError, which names the first fault, for values of edges that a store cannot
    hold."""
    num_edges = edges.num_edges
    for what, values in (
        ("edge_weight", edges.weights),
        ("time", edges.times),
        ("edge_attr", edges.attr),
    ):
        if values is not None and len(values) != num_edges:
            raise ValueError(
                f"{edges.where(what)}: expected one for each of {num_edges} edges, got "
                f"{len(values)}"
            )
    if edges.weights is not None:
        _require_weights(edges.where("edge_weight"), edges.weights)
    if edges.attr is not None and edges.attr.is_floating_point():
        _warn_of_attr(edges.where("edge_attr"), edges.attr)


def _warn_of_attr(where: str, attr: torch.Tensor) -> None:
    named, first = Named(), 0
    for part in (attr if attr.dim() == 2 else attr.unsqueeze(1)).split(_STEP):
        named.add(first + rows_not_finite(part))
        first += len(part)
    if named.count:
        logger.warning(
            "%s: edges with NaN or infinite attributes: %d (first: %s): the loss of a batch with "
            "one of them is NaN; correct them in the source",
            where,
            named.count,
            named,
        )


def _require_weights(where: str, weights: torch.Tensor) -> None:
    any_positive = False
    for first in range(0, len(weights), _STEP):
        part = weights[first : first + _STEP]
        bad = ~((part >= 0) & torch.isfinite(part))
        if bad.any():
            place = int(bad.nonzero()[0])
            raise ValueError(
                f"{where}: edge {first + place}: expected a finite weight of at least 0, got "
                f"{part[place]:g}; values with a sign belong in edge_attr"
            )
        any_positive = any_positive or bool(part.any())
    if len(weights) and not any_positive:
        raise ValueError(f"{where}: all are 0, so that no edge could be drawn; leave them out")


def _require_labels(nodes: Nodes, labels: torch.Tensor) -> None:
    where, most = nodes.where("y"), layout.most_classes(nodes.num_nodes)
    if nodes.label_meta is not None:
        fault = "has an infinite label; NaN stands for an unknown one"
        _require(infinite_rows(labels), where, torch.arange(len(labels)), fault)
        return
    bad = (labels < -1) | (labels >= most)
    if bad.any():
        first = int(bad.nonzero()[0])
        raise ValueError(
            f"{where}: node {first}: expected a whole number in [0, {most}), or -1 for no label, "
            f"got {int(labels[first])}"
        )


def _require(is_bad: torch.Tensor, where: str, ids: torch.Tensor, fault: str) -> None:
    if is_bad.any():
        first = int(is_bad.nonzero()[0])
        raise ValueError(f"{where}: node {int(ids[first])} {fault}")
