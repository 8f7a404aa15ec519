"""Softmax loss of edges against negatives, and its gradients, without scores in memory.

Two kernels in Triton, after FlashAttention-2 (Dao, 2023). The first keeps queries, reads the
negatives block by block into an online softmax, and adds up the gradients of the queries. The
second keeps negatives, reads the queries and computes the scores again. Two differences from
FlashAttention-2: the softmax starts with the edge's own score; and the first kernel outputs the
gradients of the queries, because the loss is the logarithm of the softmax's sum. Sizes and order of
blocks are fixed and there are no atomics, so the results are a function of the batch alone.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from lsm.embed.gradients.own_partition import OwnPartition
from lsm.embed.models.comparators import Comparator

Precision = Literal["ieee", "tf32"]


class Tile(NamedTuple):
    """``held``: rows that a program keeps; ``taken``: rows per step of its loop; ``stages``: steps
    with rows in shared memory at the same time."""

    held: int
    taken: int
    num_warps: int
    stages: int


# By padded dim; these spill at most 128 bytes of registers a thread. float32 products cannot use
# tensor cores: each unrolls into one instruction per multiplication, and larger tiles spill
# kilobytes.
TILES: dict[Precision, dict[int, Tile]] = {
    "ieee": {128: Tile(32, 16, 8, 2), 256: Tile(16, 16, 8, 2), 512: Tile(16, 16, 8, 2)},
    "tf32": {128: Tile(64, 32, 4, 2), 256: Tile(32, 16, 8, 2), 512: Tile(16, 16, 8, 1)},
}


class ContrastBatch(NamedTuple):
    """Both sides of b edges, in chunks; the last chunk may be shorter. Tensors are contiguous."""

    queries: Tensor
    """[2, b, dim] float32"""
    entities: Tensor
    """[2, chunks, k, dim] float32: the negatives of each chunk"""
    ids: Tensor
    """[2, chunks, k] int32: ids of the negatives"""
    targets: Tensor
    """[2, b] int32: the id that is no negative of the edge"""
    chunk: int
    """Edges that share negatives"""
    firsts: Tensor | None = None
    """[2, b] int32: first rows of the partitions of the queries' entities"""
    own: OwnPartition | None = None
    """Shifts scores, given ``firsts``"""


def contrast(
    comparator: Comparator,
    batch: ContrastBatch,
    positives: Tensor,
    losses: Tensor,
    of_queries: Tensor,
    of_entities: Tensor,
) -> None:
    """Writes the losses of edges [2, b], the gradients of queries by negatives [2, b, dim], and the
    gradients of negatives [2, chunks, k, dim]. Overwrites ``positives`` [2, b], the edges' own
    scores, with their gradients. All are float32. Products are as precise as torch's; sums are
    float32. Queues to torch's current stream of the device; on the host Triton's interpreter runs
    it."""
    _, num_edges, dim = batch.queries.shape
    _, num_chunks, num_negatives, _ = batch.entities.shape
    is_shifted = batch.own is not None
    constants = constants_of(comparator, dim, torch_precision(), is_shifted=is_shifted)
    held = constants["HELD"]
    chunk = min(batch.chunk, num_edges)
    edge_blocks, negative_blocks = triton.cdiv(chunk, held), triton.cdiv(num_negatives, held)
    firsts = batch.targets if batch.firsts is None else batch.firsts  # not read without a shift
    inputs = (batch.queries, batch.entities, batch.ids, batch.targets, firsts)
    own = (batch.own.rows, batch.own.shift) if batch.own else (0, 0.0)
    sizes = (num_edges, num_chunks, chunk, num_negatives)
    # Both of an edge, rather than the logarithm of its sum, which would round large scores.
    largest, totals = torch.empty_like(losses), torch.empty_like(losses)
    with torch.cuda.device_of(batch.queries):
        edges_kernel[(2 * num_chunks * edge_blocks,)](
            *inputs,
            positives,
            losses,
            largest,
            totals,
            of_queries,
            *sizes,
            edge_blocks,
            *own,
            **constants,
        )
        negatives_kernel[(2 * num_chunks * negative_blocks,)](
            *inputs, largest, totals, of_entities, *sizes, negative_blocks, *own, **constants
        )


def torch_precision() -> Precision:
    """The precision that torch uses for products of float32 matrices on a GPU."""
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def constants_of(
    comparator: Comparator, dim: int, precision: Precision, *, is_shifted: bool = False
) -> dict[str, Any]:
    """The compile-time constants of both kernels, and Triton's options."""
    columns = max(16, triton.next_power_of_2(dim))  # a product needs at least 16
    tile = next(tile for most, tile in TILES[precision].items() if columns <= most)
    return {
        "DIM": dim,
        "COLUMNS": columns,
        "IS_DISTANCE": comparator.is_distance,
        "IS_SHIFTED": is_shifted,
        "PRECISION": precision,
        "HELD": tile.held,
        "TAKEN": tile.taken,
        "num_warps": tile.num_warps,
        "num_stages": tile.stages,
        "enable_fp_fusion": True,  # the default differs between versions
    }


# Triton would compile the kernels again for values of these that are 1 or multiples of 16.
SIZES = ["num_edges", "num_chunks", "chunk", "num_negatives", "num_blocks"]
SIZES += ["partition_rows", "partition_shift"]


@triton.jit
def _load_rows(table, row, is_row, DIM: tl.constexpr, COLUMNS: tl.constexpr, AGAIN: tl.constexpr):
    """[rows, COLUMNS], with 0 beyond the last row and the last column. ``AGAIN``: the rows were
    loaded before; another cache policy keeps the compiler from holding them in registers since
    then."""
    column = tl.arange(0, COLUMNS)
    is_inside = is_row[:, None] & (column < DIM)[None, :]
    place = table + row[:, None] * DIM + column[None, :]
    if AGAIN:
        return tl.load(place, mask=is_inside, other=0.0, eviction_policy="evict_first")
    else:
        return tl.load(place, mask=is_inside, other=0.0)


@triton.jit
def _store_rows(table, row, is_row, value, DIM: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.arange(0, COLUMNS)
    is_inside = is_row[:, None] & (column < DIM)[None, :]
    tl.store(table + row[:, None] * DIM + column[None, :], value, mask=is_inside)


@triton.jit
def _scores(held, squares, taken, is_pair, IS_DISTANCE: tl.constexpr, PRECISION: tl.constexpr):
    """Scores [rows held, rows taken], -inf for excluded pairs. ``squares``: of the rows held."""
    scores = tl.dot(held, tl.trans(taken), input_precision=PRECISION)
    if IS_DISTANCE:
        squares = squares[:, None] + tl.sum(taken * taken, 1)[None, :] - 2 * scores
        # NaN stays NaN, so that the loss shows it.
        scores = -tl.sqrt(tl.maximum(squares, 0.0, propagate_nan=tl.PropagateNan.ALL))
    return tl.where(is_pair, scores, float("-inf"))


@triton.jit
def _shifts(entity, first, partition_rows, partition_shift):
    """``partition_shift`` for entities among the ``partition_rows`` rows from ``first`` on."""
    is_own = (entity >= first) & (entity < first + partition_rows)
    return tl.where(is_own, partition_shift, 0.0)


@triton.jit
def _weights(of_scores, scores, IS_DISTANCE: tl.constexpr):
    """Factors of the rows taken in the gradients of the rows held, given the gradients of scores.
    For a distance, subtract the sum of factors times the row held; a distance of 0 has factor 0."""
    if IS_DISTANCE:
        return of_scores / tl.where(scores < 0, -scores, float("inf"))
    else:
        return of_scores


@triton.jit(do_not_specialize=SIZES)
def edges_kernel(
    queries,
    entities,
    ids,
    targets,
    firsts,
    positives,
    losses,
    largest_scores,
    totals,
    of_queries,
    num_edges,
    num_chunks,
    chunk,
    num_negatives,
    num_blocks,
    partition_rows,
    partition_shift,
    DIM: tl.constexpr,
    COLUMNS: tl.constexpr,
    IS_DISTANCE: tl.constexpr,
    IS_SHIFTED: tl.constexpr,
    PRECISION: tl.constexpr,
    HELD: tl.constexpr,
    TAKEN: tl.constexpr,
):
    """One program per block of a chunk's edges."""
    program = tl.program_id(0).to(tl.int64)
    chunk_of_side = program // num_blocks
    first = chunk_of_side % num_chunks * chunk
    end = tl.minimum(first + chunk, num_edges)
    edge = first + program % num_blocks * HELD + tl.arange(0, HELD)
    is_edge = edge < end
    edge += chunk_of_side // num_chunks * num_edges
    held = _load_rows(queries, edge, is_edge, DIM, COLUMNS, False)
    squares = tl.sum(held * held, 1)
    own = tl.load(targets + edge, mask=is_edge, other=0)
    positive = tl.load(positives + edge, mask=is_edge, other=0.0)
    if IS_SHIFTED:
        first_own = tl.load(firsts + edge, mask=is_edge, other=0)
        positive += _shifts(own, first_own, partition_rows, partition_shift)

    largest = positive  # finite, so no difference below is of infinities
    total = tl.full([HELD], 1.0, tl.float32)
    weight = tl.zeros([HELD], tl.float32)
    gradient = tl.zeros([HELD, COLUMNS], tl.float32)
    for start in range(0, num_negatives, TAKEN):
        negative = start + tl.arange(0, TAKEN)
        is_negative = negative < num_negatives
        row = chunk_of_side * num_negatives + negative
        taken = _load_rows(entities, row, is_negative, DIM, COLUMNS, False)
        other = tl.load(ids + row, mask=is_negative, other=0)
        is_pair = is_negative[None, :] & (other[None, :] != own[:, None])
        scores = _scores(held, squares, taken, is_pair, IS_DISTANCE, PRECISION)
        shifted = scores
        if IS_SHIFTED:
            shifted += _shifts(other[None, :], first_own[:, None], partition_rows, partition_shift)
        larger = tl.maximum(largest, tl.max(shifted, 1))
        shrink = tl.exp(largest - larger)
        terms = tl.exp(shifted - larger[:, None])
        weights = _weights(terms, scores, IS_DISTANCE)
        largest = larger
        total = total * shrink + tl.sum(terms, 1)
        weight = weight * shrink + tl.sum(weights, 1)
        gradient = tl.dot(weights, taken, gradient * shrink[:, None], input_precision=PRECISION)
    if IS_DISTANCE:
        held = _load_rows(queries, edge, is_edge, DIM, COLUMNS, True)
        gradient -= held * weight[:, None]
    _store_rows(of_queries, edge, is_edge, gradient / total[:, None], DIM, COLUMNS)
    tl.store(largest_scores + edge, largest, mask=is_edge)
    tl.store(totals + edge, total, mask=is_edge)
    tl.store(losses + edge, tl.log(total) + (largest - positive), mask=is_edge)
    tl.store(positives + edge, tl.exp(positive - largest) / total - 1, mask=is_edge)


@triton.jit(do_not_specialize=SIZES)
def negatives_kernel(
    queries,
    entities,
    ids,
    targets,
    firsts,
    largest_scores,
    totals,
    of_entities,
    num_edges,
    num_chunks,
    chunk,
    num_negatives,
    num_blocks,
    partition_rows,
    partition_shift,
    DIM: tl.constexpr,
    COLUMNS: tl.constexpr,
    IS_DISTANCE: tl.constexpr,
    IS_SHIFTED: tl.constexpr,
    PRECISION: tl.constexpr,
    HELD: tl.constexpr,
    TAKEN: tl.constexpr,
):
    """One program per block of a chunk's negatives."""
    program = tl.program_id(0).to(tl.int64)
    chunk_of_side = program // num_blocks
    negative = program % num_blocks * HELD + tl.arange(0, HELD)
    is_negative = negative < num_negatives
    row = chunk_of_side * num_negatives + negative
    held = _load_rows(entities, row, is_negative, DIM, COLUMNS, False)
    squares = tl.sum(held * held, 1)
    other = tl.load(ids + row, mask=is_negative, other=0)

    first = chunk_of_side % num_chunks * chunk
    end = tl.minimum(first + chunk, num_edges)
    side = chunk_of_side // num_chunks * num_edges
    weight = tl.zeros([HELD], tl.float32)
    gradient = tl.zeros([HELD, COLUMNS], tl.float32)
    for start in range(first, end, TAKEN):
        edge = start + tl.arange(0, TAKEN)
        is_edge = edge < end
        edge += side
        taken = _load_rows(queries, edge, is_edge, DIM, COLUMNS, False)
        own = tl.load(targets + edge, mask=is_edge, other=0)
        largest = tl.load(largest_scores + edge, mask=is_edge, other=0.0)
        total = tl.load(totals + edge, mask=is_edge, other=1.0)
        is_pair = is_edge[None, :] & (other[:, None] != own[None, :])
        scores = _scores(held, squares, taken, is_pair, IS_DISTANCE, PRECISION)
        shifted = scores
        if IS_SHIFTED:
            first_own = tl.load(firsts + edge, mask=is_edge, other=0)
            shifted += _shifts(other[:, None], first_own[None, :], partition_rows, partition_shift)
        shares = tl.exp(shifted - largest[None, :]) / total[None, :]
        weights = _weights(shares, scores, IS_DISTANCE)
        weight += tl.sum(weights, 1)
        gradient = tl.dot(weights, taken, gradient, input_precision=PRECISION)
    if IS_DISTANCE:
        held = _load_rows(entities, row, is_negative, DIM, COLUMNS, True)
        gradient -= held * weight[:, None]
    _store_rows(of_entities, row, is_negative, gradient, DIM, COLUMNS)
