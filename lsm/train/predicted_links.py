"""Outputs of links that `lsm predict` is asked for: scores of pairs, best targets of nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lsm.data.graph_store import GraphStore
from lsm.data.links.pair_file import read_pairs
from lsm.inference.link_outputs import LinkOutputs, LinkScores
from lsm.inference.top_targets import TopTargets
from lsm.nn.link_models import LinkNetwork
from lsm.train.tasks.known_links import known_topologies
from lsm.train.tasks.link_prediction import LinkPrediction
from lsm.train.tasks.task import Task


@dataclass(frozen=True)
class AskedLinks:
    """The options ``--links``, ``--top-k`` and ``--exclude-known`` of a prediction.

    links: a file of pairs, or pairs [2, n]; None: none. top_k: targets of each node; None: none.
    exclude_known: destinations of a node's own edges, and itself, are no targets.
    """

    links: str | Path | torch.Tensor | None = None
    top_k: int | None = None
    exclude_known: bool = True

    @property
    def is_any(self) -> bool:
        """True if outputs of links are asked for."""
        return self.links is not None or self.top_k is not None

    def check(self, others: Mapping[str, Any]) -> None:
        """Raises ValueError if the options exclude one another. others: the values of options that
        outputs of links do not take, by name; None: not given."""
        if self.links is not None and self.top_k is not None:
            raise ValueError("--top-k: expected none with --links, whose pairs have their targets")
        if not self.exclude_known and self.top_k is None:
            raise ValueError("--no-exclude-known: expected with --top-k only")
        option = "--top-k" if self.links is None else "--links"
        for name, value in others.items():
            if self.is_any and value is not None and not (name == "--nodes" and self.top_k):
                raise ValueError(f"{name}: expected none with {option}, got {value}")

    def outputs(
        self,
        model: object,
        store: GraphStore,
        nodes: Callable[[str], torch.Tensor | None],
        task: Task | None,
    ) -> LinkOutputs | None:
        """The outputs by ``model``; None: those of nodes. nodes: the sources of targets, given
        their type; None: all. task: that of the model's run. Raises FileNotFoundError,
        ValueError."""
        if not self.is_any:
            return None
        if not isinstance(model, LinkNetwork):
            option = "--top-k" if self.links is None else "--links"
            raise ValueError(
                f"{option}: expected a run with train.task=link, whose model scores links"
            )
        source, _, destination = model.edge_type
        if self.links is not None:
            ends = store.nodes(source), store.nodes(destination)
            return LinkScores(model, read_pairs(self.links, ends, "--links"))
        assert isinstance(task, LinkPrediction), "a model of links is that of its run"
        known = known_topologies(store, task.splits) if self.exclude_known else None
        assert self.top_k is not None, "one of both is given"
        sources, count = nodes(source), store.nodes(source).num_nodes
        if sources is not None and not len(sources):
            raise ValueError("--nodes: expected at least one node, got none")
        bad = None if sources is None else sources[(sources < 0) | (sources >= count)]
        if bad is not None and len(bad):
            raise ValueError(
                f"--nodes: expected ids from 0 to {count - 1} of type {source}, got {int(bad[0])}"
            )
        return TopTargets(model, sources, self.top_k, known)
