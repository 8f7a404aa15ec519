"""Traces and small studies for the tests of cache studies."""

import numpy as np

from lsm.ablation import runs
from lsm.ablation.config import AblationConfig
from lsm.ablation.runs import Combination
from lsm.ablation.trace import Trace
from lsm.config.load import find_config, load_tree

SMALL = (
    "graph.nodes=400",
    "trace.batch_size=4",
    "trace.iterations=20",
    "cache.sizes=[1, 2]",
    "cache.ways=4",
)


def make_trace(lists, num_nodes, num_ranks=1, **more):
    """A trace of the request lists, iteration by iteration and in it rank by rank."""
    return Trace(
        ids=np.array([node for one in lists for node in one], np.int64),
        offsets=np.cumsum([0, *map(len, lists)]),
        num_nodes=num_nodes,
        num_ranks=num_ranks,
        **more,
    )


def random_trace(num_iterations=40, num_ranks=2, num_nodes=120, seed=0, scored=True):
    """Some nodes are requested often, most seldom; lists of 0 to 29 ids."""
    rng = np.random.default_rng(seed)
    lists = []
    for _ in range(num_iterations * num_ranks):
        ids = (num_nodes * rng.random(rng.integers(30)) ** 2).astype(np.int64)
        lists.append(list(dict.fromkeys(ids.tolist())))
    score = rng.random(num_nodes).astype(np.float32) if scored else None
    return make_trace(lists, num_nodes, num_ranks, static_score=score)


def run_one(trace, policy, lines, **parameters):
    combination = Combination(policy=policy, lines=lines, **parameters)
    (record,) = runs.run(trace, [combination], progress=False)
    return record


def small(name, folder, *more):
    paths = [f"graph.path={folder}/store", f"output={folder}/out"]
    return load_tree(AblationConfig, find_config(name, "ablation"), [*SMALL, *paths, *more])
