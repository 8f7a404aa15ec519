"""Trains tables of embeddings on batches of edges, in place."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lsm.embed.adagrad import update_rows
from lsm.embed.gradients import gpu_kernels
from lsm.embed.gradients.edge_gradients import Tables, Workspace, gradients_of
from lsm.embed.gradients.gpu_gradients import gradients_on_gpu, import_fused_softmax
from lsm.embed.gradients.own_partition import OwnPartition
from lsm.embed.options import EmbedOptions
from lsm.links.negatives import Candidates

Reduce = Callable[[Tensor], None]
"""Sums a tensor over ranks, in place."""


@dataclass(frozen=True)
class BatchLoss:
    """The loss of a batch.

    Attributes:
        unread_sum: Sum of the losses of corrupted edges, penalties included. Of tables on a GPU, a
            tensor of one number there.
        count: Number of corrupted edges. Each edge counts twice, for both sides.
    """

    unread_sum: Tensor
    count: int

    @property
    def sum(self) -> float:
        """``unread_sum`` as a number, which waits for the GPU."""
        return self.unread_sum.item()


class EdgeTrainer:
    """Updates tables of embeddings from batches of edges.

    The edges of a chunk share their negatives, so that dot products and Euclidean distances are
    matrix products. Both sides of every edge are corrupted. The edge's own entity is left out of
    the negatives; entities that form another edge of the graph are not.
    """

    def __init__(
        self,
        rows: Tensor,
        relations: Tensor | None,
        options: EmbedOptions,
        *,
        partition_rows: int = 0,
        is_twin: bool = False,
    ) -> None:
        """Takes the tables, which are updated in place, on the device that they are on.

        Args:
            rows: Embeddings followed by optimiser state, [n, options.width] float32. Between
                batches the caller may put other entities into them.
            relations: The same of relations, [options.relation_rows(num_relations), options.width]
                float32; None for dot, which ignores it, and for auto to take dot.
            options: Model, loss and optimiser.
            partition_rows: Rows that each of several partitions takes in ``rows``, so that the
                scores of entities in one partition can be shifted. 0: one partition.
            is_twin: The host stands for a GPU, in tests.

        Raises:
            ValueError: A table has another shape or dtype, or a model other than dot has no
                ``relations``.
            RuntimeError: The options need Triton on a GPU, and it is not installed.
        """
        options = options.for_graph(0 if relations is None else len(relations))
        _check_table("rows", rows, options)
        if not options.has_relations:
            relations = None
        elif relations is None:
            raise ValueError(
                f"embed.model: {options.model} needs relations, and the graph has none; set "
                "embed.model=dot"
            )
        else:
            _check_table("relations", relations, options)
            if len(relations) % options.relation_rows(1):
                raise ValueError(
                    "relations: expected two rows per relation (embed.reciprocal=true), got "
                    f"{len(relations)} rows"
                )
        self._options = options
        self._rows, self._relations = rows, relations
        self._workspace = Workspace()
        self._own = None
        if partition_rows and options.partition_shift:
            self._own = OwnPartition(partition_rows, options.partition_shift)
        on_gpu = is_twin or rows.device.type == "cuda"
        has_kernels = on_gpu and options.edge_model.takes("gpu")
        if on_gpu and options.gpu_scores == "fused":
            import_fused_softmax()
        self._on_gpu = on_gpu
        self._gradients_of = gradients_on_gpu if has_kernels else gradients_of
        self._update_rows = gpu_kernels.update_rows if on_gpu else update_rows
        self._tables = Tables(
            rows[:, : options.dim], None if relations is None else relations[:, : options.dim]
        )

    @property
    def loss_remedy(self) -> str:
        """The next step of a user whose losses are not finite."""
        return f"set a smaller embed.lr (now {self._options.lr:g})"

    def train(
        self,
        edges: Tensor,
        candidates: Candidates,
        seed: int,
        step: int,
        reduce: Reduce | None = None,
    ) -> BatchLoss:
        """Takes one optimiser step with the gradients of all ``edges``.

        Draws are a function of ``seed`` and ``step``: the same call on the same tables gives the
        same bits with the same number of threads.

        Args:
            edges: Row of head, relation and row of tail, [b, 3] int64; [b, 2] without relations.
            candidates: Ranges of rows that may be negatives.
            seed: Seed of the run.
            step: Step of the run.
            reduce: Called once with the gradients of all relations, [relation rows, dim] float32,
                to sum them over ranks.

        Returns:
            The loss of the batch, before the step. On a GPU it is not awaited, and the caller has
            to look whether it is finite.

        Raises:
            FloatingPointError: On the host, the loss is not finite. No table was updated.
            ValueError: ``edges`` has another shape.
        """
        options = self._options
        generator = _generator(seed, step, edges.device)
        found = self._gradients_of(
            options, self._tables, edges, candidates, generator, self._workspace, self._own
        )
        loss = torch.as_tensor(found.loss, dtype=torch.float64)
        if not self._on_gpu and not math.isfinite(loss.item()):
            raise FloatingPointError(
                f"the loss of step {step} is {loss.item()}; {self.loss_remedy}"
            )
        self._update_rows(options, self._rows, found.ids, found.grads)
        if self._relations is not None and found.relations is not None:
            if reduce is not None:
                reduce(found.relations)
            ids = torch.arange(len(self._relations), device=edges.device)
            self._update_rows(options, self._relations, ids, found.relations)
        return BatchLoss(loss, 2 * len(edges))


def _check_table(name: str, table: Tensor, options: EmbedOptions) -> None:
    if table.ndim != 2 or table.shape[1] != options.width or table.dtype != torch.float32:
        raise ValueError(
            f"{name}: expected [n, {options.width}] float32 (embed.dim={options.dim}, "
            f"embed.optimizer={options.optimizer}), got {list(table.shape)} {table.dtype}"
        )


def _generator(seed: int, step: int, device: torch.device) -> torch.Generator:
    digest = hashlib.blake2b(f"{seed} {step}".encode(), digest_size=8).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest, "little") >> 1)
