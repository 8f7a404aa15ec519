"""Makes triples of any size: power-law popularity, and relations that can be learnt.

Entities belong to clusters, which each relation maps to one another. Everything is made in chunks,
each from its own random stream keyed by (seed, chunk).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from lsm.core.progress import counting
from lsm.core.section import wrong_values_named
from lsm.data.synth import generator
from lsm.data.triples.names import NumberNames
from lsm.data.triples.sort import write_all
from lsm.data.triples.store import TripleStore
from lsm.data.triples.writer import (
    MEMORY_BYTES,
    SPOOLED_BYTES,
    ProvisionalTriples,
    write_triples,
)
from lsm.data.writer import StoreWriter

_CHUNK = 1 << 20


class TripleSpec(BaseModel):
    """The triples to make. ``nodes`` are the entities."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    nodes: int = Field(ge=2, lt=2**40)
    relations: int = Field(default=0, ge=0, lt=2**24)
    """0: edges without relations. The k-th is drawn as the k-th most popular entity is."""
    avg_degree: float = Field(default=12.0, gt=0, allow_inf_nan=False)
    """Triples per entity. Those that are drawn again are left out."""
    popularity_exponent: float = Field(default=0.7, ge=0, lt=1)
    """The k-th most popular entity is drawn in proportion to k**-this, as head and as tail."""
    classes: int = Field(default=16, ge=1)
    """Clusters of entities."""
    homophily: float = Field(default=0.7, ge=0, le=1)
    """Share of tails in the cluster that the relation maps the head's to; the others anywhere."""
    valid_fraction: float = Field(default=0.05, ge=0, lt=1)
    test_fraction: float = Field(default=0.05, ge=0, lt=1)
    seed: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _check(self) -> TripleSpec:
        if self.classes > self.nodes:
            raise ValueError(f"classes: expected at most nodes = {self.nodes}, got {self.classes}")
        if self.valid_fraction + self.test_fraction >= 1:
            raise ValueError("valid and test fractions: expected a sum below 1")
        return self


def synthesize_triples(
    out: str | Path,
    *,
    name: str | None = None,
    force: bool = False,
    memory_bytes: int = MEMORY_BYTES,
    progress: bool | None = None,
    **parameters: Any,
) -> TripleStore:
    """Makes the store ``out``; ``parameters`` are the fields of ``TripleSpec``.

    Memory: ``memory_bytes`` for the sort, 17 bytes per entity. Raises ValueError for a parameter
    out of range, OSError where the disk is full.
    """
    for name in parameters.keys() - TripleSpec.model_fields.keys():
        raise ValueError(f"{name}: triples have no such thing; leave it out")
    with wrong_values_named():
        spec = TripleSpec(**parameters)
    with StoreWriter(out, force=force, kind="triples") as writer:
        spool = writer.scratch() / "all.ids"
        num_triples = max(1, int(spec.nodes * spec.avg_degree))
        writer.require_bytes(num_triples * SPOOLED_BYTES)
        with counting("triples", num_triples, progress) as advance, open(spool, "wb", 0) as file:
            for number, begin in enumerate(range(0, num_triples, _CHUNK)):
                chunk = _draw(spec, number, min(_CHUNK, num_triples - begin))
                write_all(file, spool, chunk)
                advance(len(chunk))
        source = ProvisionalTriples(
            splits={"all": spool},
            entities=NumberNames(spec.nodes),
            relations=NumberNames(spec.relations),
            fractions=(spec.valid_fraction, spec.test_fraction),
        )
        description = {"format": "synth", **spec.model_dump()}
        meta = write_triples(writer, source, name or "synth", spec.seed, description, memory_bytes)
        writer.commit(meta)
    return TripleStore.open(out)


def _draw(spec: TripleSpec, number: int, count: int) -> np.ndarray:
    """``count`` triples of chunk ``number``, without self-loops: [count, 3] int64."""
    draws = generator(spec.seed, 2, number)
    triples = np.zeros((count, 3), np.int64)
    heads = _popular(spec, draws, np.full(count, spec.nodes))
    tails = _popular(spec, draws, np.full(count, spec.nodes))
    if spec.relations:
        triples[:, 1] = _popular(spec, draws, np.full(count, spec.relations))
    # Entity v is in cluster v % classes; relation r maps cluster c to c + r.
    mapped = (heads + triples[:, 1]) % spec.classes
    sizes = (spec.nodes - 1 - mapped) // spec.classes + 1
    inside = mapped + spec.classes * _popular(spec, draws, sizes)
    at_home = draws.random(count, dtype=np.float32) < spec.homophily
    tails[at_home] = inside[at_home]
    loops = heads == tails
    tails[loops] = (tails[loops] + 1) % spec.nodes
    triples[:, 0], triples[:, 2] = heads, tails
    return triples


def _popular(spec: TripleSpec, draws: np.random.Generator, sizes: np.ndarray) -> np.ndarray:
    """A number below each of ``sizes``, the small ones more often: [n] int64."""
    # Inverse of the cumulative k**-a: a share u of the draws goes to the first u**(1/(1-a)).
    power = 1 / (1 - spec.popularity_exponent)
    ranks = (sizes * draws.random(len(sizes)) ** power).astype(np.int64)
    return np.minimum(ranks, sizes - 1)
