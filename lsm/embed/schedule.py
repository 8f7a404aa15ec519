"""Batches, rounds and validations of a run, where the configuration leaves them to the graph."""

from __future__ import annotations

from dataclasses import dataclass

from lsm.data.triples.store import TripleStore
from lsm.embed.config import EmbedConfig
from lsm.embed.orders.order import Order

BATCH_SIZE = 1024
LEAST_BATCH = 128
NODES_PER_EDGE = 32
"""Least nodes in memory for each edge of a batch, when partitions are on disk."""
VISITS = 8
"""Times that each partition comes into memory in an epoch, over all rounds."""
EPOCHS_APART = 5
"""Maximum epochs between two validations."""
EDGES_APART = 50_000_000
"""Between two validations, unless an epoch has more."""
VALIDATION_SHARE = 0.1
"""Scores of a validation, for each score of a negative since the one before."""
LEAST_EDGES = 1000


@dataclass(frozen=True)
class Schedule:
    """A function of configuration, store and order alone, so it is the same when a run
    continues."""

    batch_size: int
    """Edges per rank and iteration."""
    rounds: int
    """Rounds of an epoch."""
    eval_every: int | None
    """Epochs between two validations. 0: only the last epoch's; None: none."""
    eval_edges: int
    """Edges of a validation. 0: all."""

    @classmethod
    def of(cls, config: EmbedConfig, store: TripleStore, order: Order) -> Schedule:
        """Raises ValueError if there are to be validations, and the store has no edges for them."""
        rounds, every = config.embed.rounds, _eval_every(config, store)
        if not order.loads:
            rounds = 1
        elif rounds == "auto":
            rounds = _rounds(order)
        edges = config.train.eval_edges
        if edges == "auto":
            edges = _eval_edges(config, store, every)
        return cls(_batch_size(config, store, order), rounds, every, edges)


def _batch_size(config: EmbedConfig, store: TripleStore, order: Order) -> int:
    size, shape = config.train.batch_size, order.shape
    if size != "auto":
        return size
    if not order.loads:
        return BATCH_SIZE
    in_memory = store.num_entities * shape.buffer // shape.partitions
    return max(LEAST_BATCH, min(BATCH_SIZE, in_memory // NODES_PER_EDGE))


def _eval_every(config: EmbedConfig, store: TripleStore) -> int | None:
    every = config.train.eval_every
    if not store.num_edges["valid"]:
        if every and every != "auto":
            raise ValueError(
                f"train.eval_every: {store.path} has no validation edges; set train.eval_every=0"
            )
        return None
    if every == "auto":
        return max(1, min(EPOCHS_APART, EDGES_APART // store.num_edges["train"]))
    return every


def _rounds(order: Order) -> int:
    shape = order.shape
    in_memory = shape.buffer * shape.ranks
    return -(-VISITS * shape.partitions // (len(order.loads) + in_memory))


def _eval_edges(config: EmbedConfig, store: TripleStore, every: int | None) -> int:
    negatives = config.embed.num_negatives
    if negatives == "all":
        negatives = store.num_entities
    candidates = store.num_entities
    if config.eval.candidates != "all":
        candidates = min(candidates, config.eval.sample)
    scores = VALIDATION_SHARE * (every or 1) * store.num_edges["train"] * negatives
    return max(LEAST_EDGES, int(scores / candidates))
