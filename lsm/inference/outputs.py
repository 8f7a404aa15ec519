"""The arrays that an inference writes: embeddings, scores and predictions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from lsm.inference.arrays import ArrayFile
from lsm.inference.options import DTYPES, InferenceOptions


@dataclass(frozen=True)
class Outputs:
    """The arrays by name, in the folder of the unfinished inference until they are whole.

    selection: the nodes of the rows, [n] int64 ascending; None: all. of_labels: predictions are
    the labels whose scores are above 0, rather than the class of the highest one.
    """

    arrays: dict[str, ArrayFile]
    selection: Tensor | None
    of_labels: bool

    @classmethod
    def of(
        cls, options: InferenceOptions, work: Path, num_nodes: int, widths: dict[str, int]
    ) -> Outputs:
        """Those that ``options`` name. widths: of a row of embeddings and of scores."""
        selection = None if options.nodes is None else torch.unique(options.nodes)
        num_rows = num_nodes if selection is None else len(selection)
        of_labels = options.prediction == "labels"
        forms: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
            name: ((width,), DTYPES[options.dtype]) for name, width in widths.items()
        }
        if "scores" in widths:
            labels = ((widths["scores"],), torch.uint8)
            forms["predictions"] = labels if of_labels else ((), torch.int64)
        arrays = {
            name: ArrayFile(work / f"{name}.npy", num_rows, *forms[name])
            for name in options.outputs
        }
        return cls(arrays, selection, of_labels)

    @property
    def has_scores(self) -> bool:
        """True if anything is made of scores."""
        return not {"scores", "predictions"}.isdisjoint(self.arrays)

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
                array.write(int(ids[0]), values[name])
        return int((~torch.isfinite(next(iter(values.values()))).all(dim=1)).sum())

    def move(self, folder: Path, names: Sequence[str]) -> list[Path]:
        """Moves the arrays ``names`` into ``folder``. Returns their paths there."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for name in names:
            paths.append(folder / f"{name}.npy")
            if self.arrays[name].path.exists():  # a run that was killed here has moved it
                os.replace(self.arrays[name].path, paths[-1])
        return paths
