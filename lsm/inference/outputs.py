"""The arrays that an inference writes: embeddings, scores and predictions."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from lsm.data.graph_store import GraphStore
from lsm.inference.arrays import ArrayFile
from lsm.inference.options import DTYPES, OUTPUTS, InferenceOptions
from lsm.inference.stage import Stage


@dataclass(frozen=True)
class Outputs:
    """The arrays by name, in the folder of the unfinished inference until they are whole.

    selection: the nodes of the rows, [n] int64 ascending; None: all. of_labels: predictions are
    the labels whose scores are above 0, rather than the class of the highest one. of_links: they
    are made of the rows of both ends of links, once all of them are there.
    """

    arrays: dict[str, ArrayFile]
    selection: Tensor | None
    of_labels: bool
    of_links: bool = False

    @property
    def has_scores(self) -> bool:
        """True if anything is made of the scores of nodes."""
        return not self.of_links and not {"scores", "predictions"}.isdisjoint(self.arrays)

    @property
    def writers(self) -> dict[str, Callable[[Tensor, Tensor], int]]:
        """The functions that write, by the rows that they take: embeddings, scores."""
        writers = {"embeddings": self.write_embeddings} if "embeddings" in self.arrays else {}
        return writers | ({"scores": self.write_scores} if self.has_scores else {})

    def write_embeddings(self, ids: Tensor, rows: Tensor) -> int:
        """Writes the embeddings of nodes ``ids`` [n] int64, ascending and without gaps in the
        selection. Returns the number of rows with a value that is not finite."""
        return self._write(ids, {"embeddings": rows})

    def write_scores(self, ids: Tensor, scores: Tensor) -> int:
        """As write_embeddings(), for scores and predictions."""
        predictions = (scores > 0).byte() if self.of_labels else scores.argmax(dim=1)
        return self._write(ids, {"scores": scores, "predictions": predictions})

    def _write(self, ids: Tensor, values: dict[str, Tensor]) -> int:
        if self.selection is not None:
            places = torch.searchsorted(self.selection, ids)
            inside = places < len(self.selection)
            inside &= self.selection[places.clamp(max=len(self.selection) - 1)] == ids
            ids, values = places[inside], {name: each[inside] for name, each in values.items()}
        if len(ids) == 0:
            return 0
        for name, array in self.arrays.items():
            if name in values:
                values[name] = values[name].to(array.dtype)  # which may overflow
                array.write(int(ids[0]), values[name])
        return int((~torch.isfinite(next(iter(values.values()))).all(dim=1)).sum())

    def move(self, folder: Path) -> None:
        """Moves the arrays into ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in self.arrays.items():
            if array.path.exists():  # a run that was killed here has moved it
                os.replace(array.path, folder / f"{name}.npy")


@dataclass(frozen=True)
class Step:
    """A stage, the files that it writes, and those that nothing needs after it."""

    stage: Stage
    written: Sequence[ArrayFile]
    freed: Sequence[ArrayFile] = ()


@dataclass(frozen=True)
class Plan:
    """The stages of a route, in their order, and the outputs."""

    route: str
    outputs: Outputs
    steps: Sequence[Step]


def outputs_of(
    widths: Mapping[str, int],
    store: GraphStore,
    node_type: str,
    options: InferenceOptions,
    work: Path,
) -> Outputs:
    """The outputs of nodes of ``node_type`` that ``options`` name. widths: of the rows that the
    model has, embeddings or scores. Raises ValueError if it has not all of them, or the store not
    the nodes."""
    if options.links is not None:
        arrays = options.links.arrays(work, counts(store))
        return Outputs(arrays, options.links.selection, of_labels=False, of_links=True)
    num_nodes, nodes = store.nodes(node_type).num_nodes, options.nodes
    names = _names(options, widths)
    if nodes is not None and len(nodes) == 0:
        raise ValueError("--nodes: expected at least one node, got none")
    if nodes is not None and not 0 <= int(nodes.min()) <= int(nodes.max()) < num_nodes:
        raise ValueError(
            f"--nodes: expected ids from 0 to {num_nodes - 1}, got {int(nodes.min())} to "
            f"{int(nodes.max())}"
        )
    selection = None if nodes is None else torch.unique(nodes)
    num_rows = num_nodes if selection is None else len(selection)
    of_labels = options.prediction == "labels"
    forms: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
        name: ((width,), DTYPES[options.dtype]) for name, width in widths.items()
    }
    if "scores" in widths:
        labels = ((widths["scores"],), torch.uint8)
        forms["predictions"] = labels if of_labels else ((), torch.int64)
    arrays = {name: ArrayFile(work / f"{name}.npy", num_rows, *forms[name]) for name in names}
    return Outputs(arrays, selection, of_labels)


def counts(store: GraphStore) -> dict[str, int]:
    """The numbers of nodes by type."""
    return {name: store.nodes(name).num_nodes for name in store.node_types}


def _names(options: InferenceOptions, widths: Mapping[str, int]) -> list[str]:
    """The names of the outputs, checked against the ``widths`` of embeddings and of scores."""
    there = [name for name in OUTPUTS if (name if name == "embeddings" else "scores") in widths]
    if options.prediction == "value" and "scores" in widths:
        there.remove("predictions")
    if not options.outputs:
        return there
    if not set(options.outputs) <= set(there):
        model = "a model of one layer" if "scores" in widths else "a model of links"
        missing = "embeddings before its scores" if "scores" in widths else "scores of nodes"
        if options.sampled is not None and "scores" in widths:
            model = "a model of one layer, or of a class of your own,"
        if "embeddings" in there and "scores" in there:
            model, missing = "a regression", "predictions but its scores"
        raise ValueError(f"--outputs: {model} has no {missing}; give --outputs {','.join(there)}")
    return list(options.outputs)
