"""Memory of a model, and of a step without its batch."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from torch import nn

from lsm.core import host_memory
from lsm.core.allocator import release_freed_memory
from lsm.core.memory import FRAGMENTED, BatchSize, Shape, Terms
from lsm.core.units import format_bytes
from lsm.nn.embeddings import dense_parameters, sparse_parameters

FIRST_STEP_BYTES = 1 << 20
"""Of the values of a layer's nodes: a step on so few is tried first, before larger ones."""

EMBEDDINGS = "the embeddings of types without features"


def model_bytes(model: nn.Module) -> int:
    """Memory of training ``model`` without its embeddings: its parameters, their gradients and
    Adam's two moments."""
    return 4 * sum(each.nbytes for each in dense_parameters(model))


def embedding_bytes(model: nn.Module) -> int:
    """Bytes of the tables of embeddings of ``model``. Their gradients are part of a step."""
    return sum(table.nbytes for table in sparse_parameters(model).values())


def terms(model: int, step: int = 0, embeddings: int = 0, *, accumulates: bool = False) -> Terms:
    """A model of ``model`` bytes, tables of ``embeddings`` bytes, and ``step`` bytes of a step on
    the host, which holds the model a second time for the best epoch's weights.

    A table takes eight times its bytes: itself, two moments, the best epoch's, and a checkpoint
    with these four. If a step ``accumulates`` gradients over iterations, they take at most three
    more, while another is added.
    """
    host = int(FRAGMENTED * (step + 2 * model))
    kept = 3 * embeddings if accumulates else 0
    return Terms(
        {"step": host, EMBEDDINGS: 8 * embeddings + kept},
        {"the model with gradients and moments": model, EMBEDDINGS: 4 * embeddings + kept},
    )


def check_embeddings(embeddings: int, budget: int, *, accumulates: bool = False) -> None:
    """Raises ValueError if the tables of ``embeddings`` bytes do not fit in ``budget``, as
    ``terms`` has it."""
    needed = terms(0, 0, embeddings, accumulates=accumulates).host[EMBEDDINGS]
    if needed > budget:
        raise ValueError(
            f"memory.bytes: expected room for {EMBEDDINGS}, {format_bytes(needed)} with moments "
            f"and checkpoints, got {format_bytes(budget)}; make it larger, or model.hidden_dim "
            "smaller, or give the types features"
        )


def activation_bytes(shape: Shape, width: int) -> int:
    """Estimated GPU memory of a step with its batch. width: of the widest layer."""
    batch = shape.batch
    return 2 * shape.rows_bytes + 16 * batch.expanded * width + 32 * batch.edges


def step_bytes(
    steps: Iterable[tuple[Callable[[], None], BatchSize]], size: BatchSize, most_bytes: int
) -> int:
    """Host memory of a step on a batch of ``size``, without the batch.

    ``steps`` are steps on batches of growing sizes, which are taken as long as those before show
    that the next takes at most ``most_bytes``. The memory of the last is scaled by the ratio of
    sizes.
    """
    found: list[tuple[int, BatchSize]] = []
    for step, tried in steps:
        if _expected_bytes(found, tried) > most_bytes:
            break
        step()  # loads libraries and starts threads
        release_freed_memory()
        with _without_collections():
            found.append((host_memory.peak_growth(step), tried))
    measured, tried = found[-1]
    return int(measured * size.ratio(tried))


def _expected_bytes(found: list[tuple[int, BatchSize]], size: BatchSize) -> int:
    """Memory of a step on a batch of ``size`` by those of smaller ones: as much for each node and
    edge as the last had more than the one before, so that the model's gradients count once."""
    if len(found) < 2:
        return 0
    (less, smaller), (measured, last) = found[-2:]
    grown = last.nodes + last.edges - smaller.nodes - smaller.edges
    more = size.nodes + size.edges - last.nodes - last.edges
    added = int(max(0, measured - less) * more / max(1, grown))
    return min(measured + added, int(measured * size.ratio(last)))


@contextmanager
def _without_collections() -> Iterator[None]:
    """A context in which Python collects no garbage, whose memory would hide growth. A collection
    before would take a fifth of a second, for the objects of torch."""
    is_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_on:
            gc.enable()
