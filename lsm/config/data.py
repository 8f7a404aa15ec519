"""Sections of a run's graph and memory."""

from __future__ import annotations

from typing import ClassVar, Literal

from lsm.core.option_types import AutoBytes
from lsm.core.section import Section


class DataConfig(Section):
    """The graph to train on."""

    section: ClassVar[str] = "data"

    path: str | None = None
    """Store directory, as written by `lsm data convert` or `lsm data synth`. Required."""
    input_type: str | None = None
    """Node type whose nodes are predicted, in a store with types. null: the only type that has
    labels and training nodes."""
    topology: Literal["auto", "mmap", "memory"] = "auto"
    """Location of the graph structure and the labels. mmap: mapped from the store on demand;
    memory: read into memory; auto: memory where they take at most a quarter of memory.bytes, else
    mmap."""
    links: str | None = None
    """Splits of edges for train.task=link, as `lsm data split-links` writes them. null: next to the
    store, with .links after its name."""
    features: str | None = None
    """Run directory of `lsm embed train`: its embeddings are the features, in place of those of the
    store; in a store with types, of the node types without features. Entities are found by the
    names of the nodes, or by their ids where nodes have no names."""


class MemoryConfig(Section):
    """Host memory of a run."""

    section: ClassVar[str] = "memory"

    bytes: AutoBytes = "auto"
    """Host memory that each rank may take, for everything: the process itself, the graph, batches,
    rows on their way, the cache, or all features. Mapped files do not count, because the kernel
    drops their pages when it needs memory. auto: half of the machine's free memory, divided by the
    ranks on this machine, plus the process itself. In a container or a job with a memory limit: at
    most 85% of the memory that the limit leaves, divided likewise. If sizes that you set need more
    than auto and that much is free, auto grows to their sum."""
