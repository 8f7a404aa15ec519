"""Inference of all nodes by a run, or by a model: the body of `lsm predict`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from lsm.config.schema import Config
from lsm.core.arguments import size
from lsm.data.graph_store import GraphStore
from lsm.data.links.splits import MessageEdges
from lsm.distributed import collectives
from lsm.graph.types import EdgeType
from lsm.inference.driver import infer
from lsm.inference.network import Model
from lsm.inference.options import Format, InferenceOptions, Route, Sampled, check_out
from lsm.loader.inputs import Drawing
from lsm.nn.link_models import LinkNetwork
from lsm.sampler.neighbor import checked_num_neighbors
from lsm.sampler.options import Sampling
from lsm.storage.options import StorageOptions
from lsm.train.predicted_links import AskedLinks
from lsm.train.predicted_nodes import predicted_nodes
from lsm.train.sampling import drawing_of, left_out
from lsm.train.saved import SavedRun
from lsm.train.tasks.labels import prediction_of

logger = logging.getLogger(__name__)

_TIMEOUT_SECS = 3600.0
"""Longest wait for a rank, whose part of a layer may take longer than that of others."""


def predict(
    run_or_model: str | Path | Model,
    store: GraphStore | str | Path | None,
    out: str | Path,
    *,
    nodes: str | Path | torch.Tensor = "all",
    node_type: str | None = None,
    links: str | Path | torch.Tensor | None = None,
    top_k: int | None = None,
    exclude_known: bool = True,
    outputs: Sequence[str] | None = None,
    dtype: str = "float32",
    format: Format = "npy",
    route: Route = "auto",
    num_neighbors: Sequence[int] | None = None,
    memory_bytes: int | str | None = None,
    num_threads: int = 0,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Computes embeddings, scores and predictions of nodes from disk, layer by layer.

    Every node aggregates over all its neighbours, unless ``route`` is sampled. With a run of links,
    those are the neighbours in the graph that its test samples: without edges of validation and
    test, unless the splits say otherwise. Only some rows of one layer are in memory at a time. The
    results are the same bits for any memory, number of threads and ranks. A call that is killed
    continues where it was. Under torchrun, srun or mpirun, every process of the job calls it, and
    they share the nodes.

    Args:
        run_or_model: The directory of a run of `lsm train`; a model of it; a torch_geometric model
            with ``inference_per_layer``; or a list of layers, each called with rows [n, width] and
            edge_index [2, e], or in a graph with types with ``x_dict`` and ``edge_index_dict``.
        store: The store; None: that of the run.
        out: Directory to write ``embeddings.npy``, ``scores.npy`` and ``predictions.npy`` to, in a
            folder named after the type for a store with types. It must not exist.
        nodes: all; train, valid or test; a file of ids or names, one a line, or of ids as .npy; or
            ids [n] int64. Of some nodes rows are in order of ids, which ``nodes.npy`` holds.
        node_type: Their type, for a run of links from nodes of one type to another, None: that of
            the destinations; and for a list of layers in a graph with types.
        links: Of a run of links: pairs to write ``scores.npy`` [n] float32 of, in their order. A
            .npy file of ids [2, n] or [n, 2]; a file with two ids or names a line, between tabs,
            blanks or, in a .csv, commas; or ids [2, n].
        top_k: Of a run of links: write the ``top_k`` best destinations of each of ``nodes``, which
            are sources: ``targets.npy`` [n, top_k] int64, best first, ties by id, and
            ``scores.npy`` [n, top_k] float32. Where there are fewer, -1 and -inf follow.
        exclude_known: Of ``top_k``: a node itself, and the destinations of its edges in the store,
            which are those of all splits, are no targets.
        outputs: Some of embeddings (rows before the last layer), scores (rows of the last layer)
            and predictions: the class of the highest score, int64; of labels of 0 or 1, those whose
            score is above 0, uint8. A regression has no predictions but its scores. A run of links
            has embeddings alone: the rows that its scorer takes. None: all that the model has.
        dtype: Of embeddings and scores: float32 or float16.
        format: npy; or parquet, for one file ``nodes.parquet`` of all outputs, with ids, and names
            if the store has them. It needs pyarrow.
        route: gather reads blocks of nodes, each with the rows of all its neighbours, for any
            layer; intervals streams the rows of GraphSAGE, GCN, GIN, GraphConv and GAT in order;
            auto takes gather where this moves fewer bytes, else intervals where it can. sampled
            takes any model of `lsm train`, and draws neighbours as the run's test does.
        num_neighbors: Of the route sampled: neighbours per node and hop; -1 takes all. None: those
            of the run's test.
        memory_bytes: Memory of each rank, with the process itself, such as ``4GiB``. None: as
            ``memory.bytes=auto`` in training.
        num_threads: Threads that compute. 0: the cores of the machine divided by its ranks.
        progress: Bars; None: on a terminal.

    Returns:
        A summary: the files, the route, and the number of rows with values that are not finite.

    Raises:
        ValueError: The model cannot be computed so, or does not fit the store; an option is wrong.
        FileExistsError: ``out`` exists.
        OSError: The disk has no room for the rows, which is checked first.
    """
    check_out(Path(out))
    asked = AskedLinks(links, top_k, exclude_known)
    asked.check(
        {
            "--nodes": None if isinstance(nodes, str) and nodes == "all" else nodes,
            "--node-type": node_type,
            "--outputs": outputs or None,
            "--dtype": None if dtype == "float32" else dtype,
            "--format": None if format == "npy" else format,
            "--route": route if route == "sampled" else None,
        }
    )
    shared = {
        "--node-type": node_type,
        "--top-k": top_k,
        "--exclude-known": exclude_known,
        "--outputs": list(outputs or ()),
        "--dtype": dtype,
        "--format": format,
        "--route": route,
        "--num-neighbors": num_neighbors and list(num_neighbors),
    }
    with collectives.joined(_TIMEOUT_SECS, shared) as world:
        model, opened, storage, edges, run = _open(run_or_model, store)
        config = None if run is None else run.config
        sampled = _sampled(config, opened, route, num_neighbors)
        if config is not None and world.is_main:
            check_route(config, route, of_links=asked.is_any)
        task = None if run is None else run.task
        of_links = asked.outputs(model, opened, partial(predicted_nodes, nodes, opened), task)
        if of_links is None and node_type is None and isinstance(model, LinkNetwork):
            node_type = model.edge_type[2]
        node_type_of_rows: str | None = node_type or getattr(model, "input_type", None)
        options = InferenceOptions(
            node_type=node_type,
            edges=edges,
            outputs=outputs or (),
            dtype=dtype,
            format=format,
            links=of_links,
            route=route,
            sampled=sampled,
            memory_bytes=None if memory_bytes is None else size("--memory-bytes", memory_bytes),
            num_threads=num_threads,
            storage=storage,
            progress=progress,
        )
        if of_links is None:
            if opened.is_typed and node_type_of_rows is None:
                raise ValueError(
                    f"--node-type: expected one of {', '.join(opened.node_types)} with a model "
                    "that has no run, got None"
                )
            data = opened.nodes(node_type_of_rows)
            options = replace(
                options,
                nodes=predicted_nodes(nodes, opened, node_type_of_rows),
                prediction=prediction_of(data) if task is None else task.prediction(opened),
            )
        return infer(model, opened, Path(out), options, world)


def _open(
    run_or_model: str | Path | Model, store: GraphStore | str | Path | None
) -> tuple[Model, GraphStore, StorageOptions, Mapping[EdgeType, MessageEdges], SavedRun | None]:
    """The model, the store, the options of reading its features, the edges to aggregate over, of
    types that do not take all of the store's, and the run."""
    if isinstance(run_or_model, str | Path):
        run = SavedRun.open(run_or_model, store)
        storage = run.config.storage
        if storage.engine == "memory":  # which would hold all features
            storage = storage.model_copy(update={"engine": "auto"})
        edges = run.task.message_graph(run.store, "test")
        return run.load_model(), run.store, storage, edges, run
    if isinstance(run_or_model, LinkNetwork):
        raise ValueError(
            "run_or_model: a model of links does not tell which edges it may see; give its run's "
            "directory"
        )
    if store is None:
        raise ValueError("store: expected the store of the model, got None")
    opened = store if isinstance(store, GraphStore) else GraphStore.open(store)
    return run_or_model, opened, StorageOptions(), {}, None


def _sampled(
    config: Config | None,
    store: GraphStore,
    route: str,
    num_neighbors: Sequence[int] | None,
) -> Sampled | None:
    """The draws of the route ``sampled``, those of a run's test unless ``num_neighbors`` says
    otherwise; None for another route."""
    if route != "sampled":
        if num_neighbors is not None:
            raise ValueError(f"--num-neighbors: expected --route sampled with it, got {route}")
        return None
    hops = None if num_neighbors is None else checked_num_neighbors(num_neighbors)
    if config is None:
        if hops is None:
            raise ValueError("--num-neighbors: expected numbers for a model without its run")
        return Sampled(Drawing(hops, Sampling(), False, "uniform", None, None), 1024, 0)
    known = len(config.sampler.num_neighbors)
    if hops is not None and len(hops) != known:
        raise ValueError(f"--num-neighbors: expected {known} hops as in the run, got {len(hops)}")
    drawing = drawing_of(config, store, "test", hops)
    return Sampled(drawing, config.eval_batch_size, config.train.seed)


def check_route(config: Config, route: str, *, of_links: bool) -> None:
    """Raises ValueError if the route is open, and the model knows the neighbours of a time or of
    some types alone; warns if the route takes all. Outputs ``of_links`` have exact routes alone."""
    missing = left_out(config)
    if route == "sampled" or (config.sampler.time_attr is None and not missing):
        return
    problem = "the run takes the neighbours of a time, and exact routes those of all times"
    if config.sampler.time_attr is None:
        problem = f"the run leaves out {missing[0]}, and exact routes take all types of edges"
    if route == "auto":
        remedy = "gather to have them all" if of_links else "sampled, or gather to have them all"
        raise ValueError(f"--route: {problem}; give --route {remedy}")
    hint = "" if of_links else "; --route sampled takes those of the run"
    logger.warning("--route: %s%s", problem, hint)
