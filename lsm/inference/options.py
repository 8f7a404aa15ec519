"""Options of an inference of all nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from lsm.core.limits import MOST_THREADS
from lsm.data.links.splits import MessageEdges
from lsm.graph.types import EdgeType
from lsm.inference.link_outputs import LinkOutputs
from lsm.loader.inputs import Drawing
from lsm.storage.options import StorageOptions

Route = Literal["auto", "intervals", "gather", "sampled"]
Format = Literal["npy", "parquet"]
OUTPUTS = ("embeddings", "scores", "predictions")
Prediction = Literal["class", "labels", "value"]
"""The meaning of a row of scores: one for each class, one for each label of 0 or 1, or the
predicted numbers themselves, of which there are no other predictions."""
DTYPES = {"float32": torch.float32, "float16": torch.float16}


@dataclass(frozen=True)
class Sampled:
    """The draws of the route ``sampled``: of neighbours, by batches of seeds."""

    drawing: Drawing
    batch_size: int
    seed: int

    @property
    def facts(self) -> dict[str, Any]:
        """The facts that decide the results."""
        hops = self.drawing.num_neighbors
        by_type = hops.items() if isinstance(hops, Mapping) else ()
        return {
            "num_neighbors": {",".join(each): list(own) for each, own in by_type} or list(hops),
            "batch_size": self.batch_size,
            "seed": self.seed,
        }


@dataclass(frozen=True)
class InferenceOptions:
    """The way of an inference, and its outputs. ``key`` in messages: the option of `lsm predict`.

    nodes: ids [n] int64 of the nodes to write; None: all. node_type: their type, for links of two
    types; None: that of the model. edges: the edges to aggregate over, of types that do not take
    all of the store's. outputs: some of ``OUTPUTS``; empty: all that the model has. dtype: of
    embeddings and scores, one of ``DTYPES``. format: of the files. prediction: the meaning of
    scores. links: outputs of links, in place of those of nodes. sampled: the draws of the route
    ``sampled``; None for the other routes. memory_bytes: memory of each rank, with the process
    itself; None: as ``memory.bytes=auto``. memory_key: its name in messages. num_threads: 0: the
    machine's cores divided by its ranks. weights_may_differ: those of ranks in training may, in
    their last bits. progress: bars; None: on a terminal.
    """

    nodes: torch.Tensor | None = None
    node_type: str | None = None
    edges: Mapping[EdgeType, MessageEdges] = field(default_factory=dict)
    outputs: Sequence[str] = ()
    dtype: str = "float32"
    format: Format = "npy"
    prediction: Prediction = "class"
    links: LinkOutputs | None = None
    route: Route = "auto"
    sampled: Sampled | None = None
    memory_bytes: int | None = None
    memory_key: str = "--memory-bytes"
    num_threads: int = 0
    storage: StorageOptions = field(default_factory=StorageOptions)
    weights_may_differ: bool = False
    progress: bool | None = None

    def check(self) -> None:
        """Raises ValueError, which names the option, for a value that is not known."""
        unknown = [name for name in self.outputs if name not in OUTPUTS]
        if unknown:
            raise ValueError(
                f"--outputs: expected some of {', '.join(OUTPUTS)}, got {', '.join(unknown)}"
            )
        if self.dtype not in DTYPES:
            raise ValueError(f"--dtype: expected {' or '.join(DTYPES)}, got {self.dtype!r}")
        if self.format not in get_args(Format):
            raise ValueError(f"--format: expected npy or parquet, got {self.format!r}")
        if self.route not in get_args(Route):
            raise ValueError(f"--route: expected {', '.join(get_args(Route))}, got {self.route!r}")
        if not 0 <= self.num_threads <= MOST_THREADS:
            raise ValueError(
                f"--threads: expected from 0 to {MOST_THREADS}, got {self.num_threads}"
            )


WORK = ".work"
"""The folder of an unfinished inference in its directory."""


def check_out(out: Path) -> None:
    """Raises FileExistsError unless ``out`` is new, empty, or an unfinished inference."""
    if out.exists() and not (out / WORK).is_dir() and (not out.is_dir() or any(out.iterdir())):
        raise FileExistsError(f"--out: {out} exists; choose another directory, or remove it")
