"""A small store of triples that can be learnt, and short runs on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

NUM_ENTITIES, NUM_RELATIONS = 240, 3
FAST = (
    "embed.dim=8",
    "embed.num_negatives=20",
    "embed.chunk=16",
    "embed.regularizer=none",
    "embed.rounds=1",
    "train.batch_size=32",
    "train.epochs=2",
    "train.eval_every=0",
    "train.patience=0",
    "train.num_threads=1",
    "metrics.loggers=[]",
    "storage.timeout_secs=60",
    "dist.timeout_secs=20",
)

SIX_PARTITIONS = ("embed.partitions=6", "checkpoint.every_steps=9")
"""Of a run whose partitions move, with checkpoints in the middle of its steps."""


def make_triples(path: Path, *, relations: int = NUM_RELATIONS) -> Path:
    """A store whose relation r leads from entity e to e + 7 * (r + 1), with noise."""
    from lsm.data.triples.convert import convert_triples

    rng = np.random.default_rng(0)
    heads = rng.integers(NUM_ENTITIES, size=2400)
    kinds = rng.integers(max(1, relations), size=len(heads))
    tails = (heads + 7 * (kinds + 1)) % NUM_ENTITIES
    noisy = rng.random(len(heads)) < 0.1
    tails[noisy] = rng.integers(NUM_ENTITIES, size=noisy.sum())
    columns = [heads, kinds, tails] if relations else [heads, tails]
    source = path.with_suffix(".tsv")
    lines = ("\t".join(map(str, row)) for row in zip(*columns, strict=True))
    source.write_text("\n".join(lines) + "\n")
    convert_triples(source, path, progress=False)
    return path


def overrides(store: Path, run_dir: Path, *more: str) -> list[str]:
    """Settings for a short run on ``store`` that writes to ``run_dir``."""
    return [*FAST, f"data.path={store}", f"run.dir={run_dir}", *more]


def config(store: Path, run_dir: Path, *more: str):
    """The same settings as an EmbedConfig."""
    from lsm.embed.config import load_embed_config

    return load_embed_config("base", overrides(store, run_dir, *more))


def tables(run_dir: Path, drive: Path | None = None, *, kept: bool = False):
    """Everything that a run has learnt, as bytes: rows with state, and relations with state. Those
    that it continues from; ``kept``: those that it is read for. ``drive``: the file with the
    namespace of a run on a drive."""
    from lsm.embed import run_state
    from lsm.embed.run import EmbeddingRun

    run = EmbeddingRun.open(run_dir)
    layout, slots = run.layout, run.state.kept.slots if kept else run.state.table.slots
    path = drive or run_dir / "partitions.bin"
    content = np.fromfile(path, np.float32, layout.file_bytes // 4)
    content = content.reshape(-1, layout.partitions, layout.frame_rows, layout.width)
    rows = [content[slot, p, : layout.num_rows(p)] for p, slot in enumerate(slots)]
    named = run.state.kept.relations if kept else run.state.relations
    relations = run_state.load_relations(run_dir, named, layout.width)
    found = [np.concatenate(rows).tobytes()]
    return found + ([] if relations is None else [relations.numpy().tobytes()])
