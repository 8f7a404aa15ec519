"""The loss of a batch of edges and its gradients on a GPU: all chunks at once, in a few launches.

Native kernels form queries, turn scores into losses and gradients, and carry gradients back to the
rows of edges; torch computes the matrix products. With ``gpu_scores=fused``, Triton kernels go from
queries to losses and gradients without scores in memory. The gradients equal those of
``gradients.edge_gradients`` for the same negatives. The order of every sum of a native kernel is a
function of the batch alone; a matrix product may also depend on the device, whose cache decides how
many chunks one product computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from lsm.embed.gradients import gpu_kernels
from lsm.embed.gradients.edge_gradients import Gradients, Tables, Workspace
from lsm.embed.gradients.gpu_kernels import EdgeBatch
from lsm.embed.gradients.own_partition import OwnPartition
from lsm.embed.models.kernels import ScoredRows
from lsm.embed.options import EmbedOptions
from lsm.embed.sides import sides_of
from lsm.links.negatives import Candidates, NegativeDraws, all_rows

SCORE_BYTES = 1 << 29
"""Maximum size of the scores in memory at the same time. Parts of a chunk have this size on every
device."""


def import_fused_softmax() -> ModuleType:
    """The module of the fused kernels. Raises RuntimeError without Triton."""
    try:
        from lsm.embed.gradients import fused_softmax
    except ImportError as error:
        raise RuntimeError(
            f"embed.gpu_scores=fused needs Triton, which cannot be imported ({error}); install "
            "it (torch's builds for CUDA bring it on Linux), or set embed.gpu_scores=stored"
        ) from error
    return fused_softmax


def gradients_on_gpu(
    options: EmbedOptions,
    tables: Tables,
    edges: Tensor,
    candidates: Candidates,
    generator: torch.Generator,
    workspace: Workspace,
    own: OwnPartition | None = None,
) -> Gradients:
    """Like ``edge_gradients.gradients_of``, for tables and edges on the device of ``generator``."""
    num_relation_rows = 0 if tables.relations is None else len(tables.relations)
    sides = sides_of(options, edges, num_relation_rows)
    negatives = _draw(options, [side.targets for side in sides], candidates, generator)
    ends = torch.stack((sides[0].entities, sides[0].targets))
    relation_rows = None
    if sides[0].relations is not None and sides[1].relations is not None:
        relation_rows = torch.stack((sides[0].relations, sides[1].relations))
    dropout = None
    if options.dropout > 0:
        dropout = tables.entities.new_empty(2, len(edges), options.dim)
        dropout.bernoulli_(1 - options.dropout, generator=generator).div_(1 - options.dropout)
    rows = EdgeBatch(
        options, tables.entities, tables.relations, ends, relation_rows, sides[1].inverse, dropout
    )
    return _Batch(rows, negatives, workspace, own).gradients()


def _draw(
    options: EmbedOptions,
    targets: list[Tensor],
    candidates: Candidates,
    generator: torch.Generator,
) -> Tensor:
    """Ids of negatives [2, chunks, k]. If all candidates are negatives, chunks is 1."""
    if options.num_negatives == "all":
        return all_rows(candidates, generator.device).expand(2, 1, -1)
    draws = NegativeDraws(candidates, options.num_negatives, options.degree_fraction)
    num_chunks = -(-len(targets[0]) // options.chunk)
    return torch.stack([draws.draw_many(ends, generator, num_chunks) for ends in targets])


def _cached_bytes(device: torch.device) -> int:
    """Bytes of scores that stay in the cache of a GPU from one kernel to the next."""
    if device.type != "cuda":
        return SCORE_BYTES
    return torch.cuda.get_device_properties(device).L2_cache_size // 2


class _Block(NamedTuple):
    """Edges scored at once: ``chunks`` chunks of ``edges`` edges each, starting with edge ``first``
    of chunk ``chunk``."""

    chunk: int
    chunks: int
    first: int
    edges: int
    is_first: bool
    """True for the first block of its chunks; later blocks add their gradients to its own."""


class _Batch:
    """Arrays of a batch. Rows of gradients: heads [b], tails [b], then negatives of both sides."""

    def __init__(
        self, rows: EdgeBatch, negatives: Tensor, workspace: Workspace, own: OwnPartition | None
    ) -> None:
        options, table = rows.options, rows.entities
        self._rows, self._options, self._negatives = rows, options, negatives
        self._num_edges = rows.ends.shape[1]
        self._chunk = self._num_edges if options.num_negatives == "all" else options.chunk
        self._comparator = options.edge_model.comparator
        shape = (2, self._num_edges)
        self._ids = torch.cat((rows.ends.flatten(), negatives.flatten()))
        self._targets = rows.ends.flip(0).int()
        self._own = own
        # The end that is no target is the query's.
        self._firsts = None if own is None else own.firsts(rows.ends)
        self._grads = workspace.allocate("gradients", len(self._ids), options.dim, table)
        self._queries = table.new_empty(*shape, options.dim)
        self._of_queries = torch.empty_like(self._queries)
        self._positives, self._losses = table.new_empty(shape), table.new_empty(shape)

    def gradients(self) -> Gradients:
        rows, num_edges = self._rows, self._num_edges
        gpu_kernels.form_queries(rows, self._queries, self._positives)
        if num_edges:
            self._contrast()
        else:
            self._grads.zero_()  # of all candidates
        of_relations = None
        if rows.relations is not None:
            of_relations = self._grads.new_empty(2 * num_edges, self._options.dim)
        gpu_kernels.edge_gradients(
            rows,
            self._of_queries,
            self._positives,
            self._grads[: 2 * num_edges],
            of_relations,
            self._losses,
        )
        sums = None
        if of_relations is not None and rows.relation_rows is not None:
            num_rows = 0 if rows.relations is None else len(rows.relations)
            sums = gpu_kernels.sum_rows(rows.relation_rows.flatten(), of_relations, num_rows)
        loss = self._losses.sum(dtype=torch.float64)
        return Gradients(loss, self._ids, self._grads, sums)

    def _contrast(self) -> None:
        """The losses, and the gradients of queries, of negatives and of the edges' own scores."""
        ids = self._negatives
        entities = self._rows.entities.index_select(0, ids.flatten()).view(*ids.shape, -1)
        of_entities = self._grads[2 * self._num_edges :].view(entities.shape)
        if self._options.gpu_scores == "fused":
            self._contrast_fused(entities, of_entities)
        else:
            self._contrast_stored(entities, of_entities)

    def _contrast_fused(self, entities: Tensor, of_entities: Tensor) -> None:
        fused = import_fused_softmax()
        batch = fused.ContrastBatch(
            self._queries,
            entities,
            self._negatives.int(),
            self._targets,
            self._chunk,
            self._firsts,
            self._own,
        )
        fused.contrast(
            self._comparator,
            batch,
            self._positives,
            self._losses,
            self._of_queries,
            of_entities,
        )

    def _contrast_stored(self, entities: Tensor, of_entities: Tensor) -> None:
        ids = self._negatives
        blocks = list(self._blocks(ids.shape[2]))
        memory = entities.new_empty(max(b.chunks * b.edges for b in blocks) * ids.shape[2])
        for side in range(2):
            for block in blocks:
                chunks = slice(block.chunk, block.chunk + block.chunks)
                edges = slice(block.first, block.first + block.chunks * block.edges)
                shape = (block.chunks, block.edges, -1)
                rows = ScoredRows(
                    self._queries[side, edges].view(shape),
                    entities[side, chunks],
                    self._of_queries[side, edges].view(shape),
                    of_entities[side, chunks],
                )
                scores = memory[: block.chunks * block.edges * ids.shape[2]]
                scores = scores.view(block.chunks, block.edges, ids.shape[2])
                self._comparator.of_all(rows.queries, rows.entities, scores)
                saved = self._comparator.save(scores)
                gpu_kernels.losses(
                    self._options.loss,
                    self._options.margin,
                    self._options.score_shift,
                    ids[side, chunks].int(),
                    self._targets[side, edges],
                    None if self._firsts is None else self._firsts[side, edges],
                    self._own,
                    scores.view(-1, ids.shape[2]),
                    self._positives[side, edges],
                    self._losses[side, edges],
                )
                self._comparator.of_all_backward(scores, saved, rows, add=not block.is_first)

    def _blocks(self, num_negatives: int) -> Iterator[_Block]:
        """Blocks that cover all edges: as many chunks as fit in the cache of the GPU, one that fits
        in SCORE_BYTES, or parts of one."""
        most = max(1, SCORE_BYTES // (4 * num_negatives))  # number of edges
        whole, rest = divmod(self._num_edges, self._chunk)
        step = min(1, most // self._chunk)
        step *= max(1, _cached_bytes(self._queries.device) // (4 * num_negatives * self._chunk))
        for chunk in range(0, whole, step) if step else ():
            chunks = min(step, whole - chunk)
            yield _Block(chunk, chunks, chunk * self._chunk, self._chunk, True)
        for chunk in range(whole if step else 0, whole + bool(rest)):
            start = chunk * self._chunk
            end = min(start + self._chunk, self._num_edges)
            for first in range(start, end, most):
                yield _Block(chunk, 1, first, min(most, end - first), first == start)
