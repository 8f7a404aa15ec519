"""Opens the store that a job trains on, and checks it."""

from __future__ import annotations

from lsm.cache import scores
from lsm.config.schema import Config
from lsm.data.graph_store import GraphStore
from lsm.distributed import collectives
from lsm.distributed.collectives import World
from lsm.distributed.rendezvous import differences
from lsm.run.store import open_at
from lsm.train.embedding_features import with_embeddings
from lsm.train.tasks.task import Task


def open_store(config: Config, world: World, task: Task) -> GraphStore:
    """The store that ``data.path`` names, checked for training, and the same on every rank. A
    collective. Raises ValueError, FileNotFoundError."""
    remedy = "give a store directory (`lsm data convert` makes one)"
    store = with_embeddings(open_at(config.data.path, GraphStore.open, remedy), config)
    task.check(config, store, world.size)
    scores.check_score(store, config.cache.score)
    _check_same(store, task, world)
    return store


def _check_same(store: GraphStore, task: Task, world: World) -> None:
    """Raises ValueError on every rank, which names two of them, unless all opened copies of one
    store, for tasks of the same settings, such as the contents of splits of links."""
    own = (store.identity(), task.settings, str(store.path))
    first, *others = collectives.gather_objects(own, world)
    for rank, (identity, settings, path) in enumerate(others, start=1):
        if listed := differences((0, first[0]), (rank, identity)):
            raise ValueError(
                f"data.path: ranks opened different stores: {first[2]} on rank 0, {path} on rank "
                f"{rank}: {listed}"
            )
        if listed := differences((0, first[1]), (rank, settings)):
            raise ValueError(f"ranks have different tasks: {listed}; give all of them the same")
