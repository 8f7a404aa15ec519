"""The stages of an inference, with their files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from lsm import native
from lsm.data.feature_files import FeatureFiles
from lsm.data.graph_store import GraphStore
from lsm.graph.topology import Topology
from lsm.graph.types import EdgeType
from lsm.inference.arrays import ArrayFile
from lsm.inference.gather import GatherStage
from lsm.inference.intervals import IntervalStage, Projected, ProjectStage
from lsm.inference.levels import Level, needed_levels, needed_nodes
from lsm.inference.network import BlockLayer, Network
from lsm.inference.options import InferenceOptions
from lsm.inference.outputs import Outputs, Plan, Step, counts, outputs_of
from lsm.inference.pair_scores import EndFiles
from lsm.inference.route_bytes import gather_moves_less
from lsm.inference.stage import Resources, Sink, Stage
from lsm.inference.streamed import Streamed
from lsm.inference.typed_intervals import TypedIntervalStage
from lsm.storage.options import StorageOptions


@dataclass(frozen=True)
class _Job:
    """An inference to plan. work: the folder of files. needed: as of needed_nodes()."""

    network: Network
    store: GraphStore
    topologies: Mapping[EdgeType, Topology]
    work: Path
    options: InferenceOptions
    resources: Resources
    outputs: Outputs
    levels: Sequence[Level]
    needed: Sequence[Mapping[str, Tensor]] | None

    def sink(
        self, number: int, node_type: str, rows: ArrayFile | None
    ) -> tuple[Sink, list[ArrayFile]]:
        """The places of the rows of a level: ``rows`` for the next stages, and the outputs that are
        made of them; and all files there."""
        network, outputs = self.network, self.outputs
        files = [] if rows is None else [rows]
        if node_type != network.node_type or outputs.of_links:
            return Sink(rows), files
        last, writers = len(network.layers), outputs.writers
        if network.head is not None and "scores" in writers:
            head = network.head
            writers["scores"] = lambda ids, rows: outputs.write_scores(ids, head(rows))
        at = {"embeddings": network.embedding_level}
        files += [each for name, each in outputs.arrays.items() if at.get(name, last) == number]
        used = [write for name, write in writers.items() if at.get(name, last) == number]
        return Sink(rows, used), files

    def plan(self, route: str, steps: list[Step], rows: Mapping[str, ArrayFile]) -> Plan:
        """The plan of ``steps``, which end with the ``rows`` of the ends of links, by type."""
        links = self.options.links
        if links is not None:
            files = {name: file.feature_files for name, file in rows.items()}
            ends = EndFiles(files[links.edge_type[0]], files[links.edge_type[2]])
            stage = links.stage(self.outputs.arrays, ends, self.resources)
            steps = [*steps, Step(stage, [*self.outputs.arrays.values()], [*rows.values()])]
        return Plan(route, self.outputs, steps)


def plan_inference(
    network: Network,
    store: GraphStore,
    topologies: Mapping[EdgeType, Topology],
    work: Path,
    options: InferenceOptions,
    resources: Resources,
) -> Plan:
    """The stages of the route that ``options`` name. ``auto`` is ``gather`` for layers that do not
    stream, for types, and where it moves fewer bytes. Raises ValueError if the model cannot take
    the route."""
    opaque = [
        _name(number, name, store)
        for number, level in enumerate(network.layers, 1)
        for name, layer in level.items()
        if layer.streamed is None and layer.typed is None
    ]
    if options.route == "intervals" and opaque:
        raise ValueError(
            "--route: intervals takes GCN, GIN, GAT, GraphConv and GraphSAGE with mean, sum or max "
            "and, with types, rsage, rgcn and rgat, all without values of edges; "
            f"{opaque[0]} of the model is something else, or uses values of edges; use --route "
            "gather"
        )
    outputs = outputs_of(network.widths, store, network.node_type, options, work)
    levels, num_nodes = needed_levels(network, outputs), counts(store)
    route, needed = options.route, None
    if route != "intervals":
        needed = needed_nodes(levels, outputs, network, topologies, num_nodes, options.links)
    if route == "auto" and (opaque or network.inputs):
        route = "gather"
    elif route == "auto":
        (edges,), (features,) = topologies.values(), _features(store).values()
        is_less = gather_moves_less(levels, needed, edges, features.row_bytes)
        route = "gather" if is_less else "intervals"
    job = _Job(network, store, topologies, work, options, resources, outputs, levels, needed)
    if route == "intervals" and not network.inputs:
        return _plan_intervals(job)
    return _plan_levels(route, job)


def _plan_levels(route: str, job: _Job) -> Plan:
    """The maps of inputs, then each layer by type."""
    store, topologies, options, resources = job.store, job.topologies, job.options, job.resources
    threads = native.ThreadPool(resources.num_threads if route == "intervals" else 1)
    num_nodes, storage = counts(store), options.storage
    steps: list[Step] = []
    before, held = _features(store), list[ArrayFile]()
    for place, level in enumerate(job.levels):
        made: dict[str, ArrayFile] = {}
        is_last = place == len(job.levels) - 1
        for name, layer in level.by_type.items():
            if not is_last or options.links is not None:
                path = job.work / f"level-{level.number}.{len(made)}.rows"
                made[name] = _rows_file(path, num_nodes[name], layer.width)
            title = _name(level.number, name, store)
            sink, files = job.sink(level.number, name, made.get(name))
            stage: Stage
            if route == "intervals" and layer.typed is not None:
                stage = TypedIntervalStage(
                    title,
                    name,
                    layer.typed,
                    topologies,
                    before,
                    num_nodes,
                    sink,
                    resources,
                    threads,
                )
            else:
                stage = GatherStage(
                    layer,
                    topologies,
                    before,
                    num_nodes,
                    sink,
                    None if job.needed is None else job.needed[place][name],
                    resources,
                    storage,
                    title,
                )
            steps.append(Step(stage, files))
        steps[-1] = replace(steps[-1], freed=held)
        held, storage = [*made.values()], StorageOptions()  # for rows in files
        before = {name: file.feature_files for name, file in made.items()}
    return job.plan(route, steps, made)


def _plan_intervals(job: _Job) -> Plan:
    """The first layer's rows of the features, then each layer of a graph without types.
    Precondition: each layer has a form that streams."""
    levels, resources, name = job.levels, job.resources, job.network.node_type
    num_nodes = job.store.nodes(name).num_nodes
    threads = native.ThreadPool(resources.num_threads)
    rows = [
        _projected(job.work / f"layer-{level.number}", num_nodes, level.by_type[name])
        for level in levels
    ]
    ends: dict[str, ArrayFile] = {}  # the rows of both ends of links
    if job.options.links is not None:
        width = levels[-1].by_type[name].width
        ends[name] = _rows_file(job.work / "ends.rows", num_nodes, width)
    features = job.store.nodes(name).feature_files
    project = ProjectStage(features, rows[0], resources, job.options.storage)
    steps = [Step(project, rows[0].files)]
    (topology,) = job.topologies.values()
    for level, of_level, made in zip(levels, rows, [*rows[1:], None], strict=True):
        sink, files = job.sink(level.number, name, ends.get(name) if made is None else None)
        after = level.by_type[name].after
        stage = IntervalStage(
            level.number, topology, of_level, after, made, sink, resources, threads
        )
        written = files if made is None else [*made.files, *files]
        steps.append(Step(stage, written, of_level.files))
    return job.plan("intervals", steps, ends)


def _features(store: GraphStore) -> dict[str, FeatureFiles]:
    """The files of the features, by type; a type without features is absent."""
    return {
        name: store.nodes(name).feature_files
        for name in store.node_types
        if store.nodes(name).features is not None
    }


def _projected(path: Path, num_nodes: int, layer: BlockLayer) -> Projected:
    """The files of a layer's rows."""
    streamed = cast(Streamed, layer.streamed)

    def file(kind: str, width: int) -> ArrayFile:
        return _rows_file(path.with_name(f"{path.name}.{kind}.rows"), num_nodes, width)

    own = file("own", streamed.own_width) if streamed.own_width else None
    return Projected(streamed, file("z", streamed.width), own)


def _rows_file(path: Path, num_nodes: int, width: int) -> ArrayFile:
    return ArrayFile(path, num_nodes, (width,), torch.float32, is_npy=False)


def _name(number: int, node_type: str, store: GraphStore) -> str:
    text = f"layer {number}" if number else "inputs"
    return f"{text} of {node_type}" if store.is_typed else text
