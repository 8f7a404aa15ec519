"""The stages of an inference, with their files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from lsm.inference.outputs import Outputs, Plan, counts, outputs_of
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
    network, store, topologies, options = job.network, job.store, job.topologies, job.options
    resources, outputs, levels, work = job.resources, job.outputs, job.levels, job.work
    threads = native.ThreadPool(resources.num_threads if route == "intervals" else 1)
    num_nodes = counts(store)
    stages: list[Stage] = []
    written: list[list[ArrayFile]] = []
    freed: list[list[ArrayFile]] = []
    before = _features(store)
    from_store, held = True, list[ArrayFile]()
    for place, level in enumerate(levels):
        made: dict[str, ArrayFile] = {}
        is_last = place == len(levels) - 1
        for name, layer in level.by_type.items():
            if not is_last or options.links is not None:
                path = work / f"level-{level.number}.{len(made)}.rows"
                made[name] = _rows_file(path, num_nodes[name], layer.width)
            writers = output_writers(network, outputs, level.number, name)
            title, sink = _name(level.number, name, store), Sink(made.get(name), writers)
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
                    {each: before[each] for each in layer.source_types if each in before},
                    num_nodes,
                    sink,
                    None if job.needed is None else job.needed[place][name],
                    resources,
                    _storage(options, before, from_store),
                    title,
                )
            stages.append(stage)
            own = [made[name]] if name in made else []
            written.append([*own, *_arrays_of(network, outputs, level.number, name)])
            freed.append([])
        freed[-1] = held
        held, from_store = [*made.values()], False
        before = {name: file.feature_files for name, file in made.items()}
    if options.links is not None:
        stages.append(options.links.stage(outputs.arrays, made, resources))
        written.append([*outputs.arrays.values()])
        freed.append(held)
    return Plan(route, stages, outputs, written, freed)


def _plan_intervals(job: _Job) -> Plan:
    """The first layer's rows of the features, then each layer of a graph without types.
    Precondition: each layer has a form that streams."""
    network, store, topologies, options = job.network, job.store, job.topologies, job.options
    resources, outputs, levels, work = job.resources, job.outputs, job.levels, job.work
    name = network.node_type
    num_nodes = store.nodes(name).num_nodes
    threads = native.ThreadPool(resources.num_threads)
    rows = [
        _projected(work / f"layer-{level.number}", num_nodes, level.by_type[name])
        for level in levels
    ]
    ends: list[ArrayFile] = []  # the rows of both ends of links
    if options.links is not None:
        width = levels[-1].by_type[name].width
        ends = [_rows_file(work / "ends.rows", num_nodes, width)]
    features = store.nodes(name).feature_files
    stages: list[Stage] = [ProjectStage(features, rows[0], resources, options.storage)]
    written: list[list[ArrayFile]] = [rows[0].files]
    for place, level in enumerate(levels):
        made = rows[place + 1] if place + 1 < len(levels) else None
        emitted = ends if made is None else []
        sink = Sink(next(iter(emitted), None), output_writers(network, outputs, level.number, name))
        stages.append(
            IntervalStage(
                level.number,
                next(iter(topologies.values())),
                rows[place],
                level.by_type[name].after or _as_it_is,
                made,
                sink,
                resources,
                threads,
            )
        )
        files = emitted if made is None else made.files
        written.append([*files, *_arrays_of(network, outputs, level.number, name)])
    freed = [[], *(each.files for each in rows)]
    if options.links is not None:
        stages.append(options.links.stage(outputs.arrays, {name: ends[0]}, resources))
        written.append([*outputs.arrays.values()])
        freed.append(ends)
    return Plan("intervals", stages, outputs, written, freed)


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


def _as_it_is(rows: Tensor) -> Tensor:
    return rows


def output_writers(network: Network, outputs: Outputs, number: int, node_type: str) -> list:
    """Functions that write the outputs made of the rows of a level."""
    if node_type != network.node_type or outputs.of_links:
        return []
    writers = []
    if number == network.embedding_level and "embeddings" in outputs.arrays:
        writers.append(outputs.write_embeddings)
    if number == len(network.layers) and outputs.has_scores:
        head = network.head

        def write_scores(ids: Tensor, rows: Tensor) -> int:
            return outputs.write_scores(ids, rows if head is None else head(rows))

        writers.append(write_scores)
    return writers


def _arrays_of(network: Network, outputs: Outputs, number: int, node_type: str) -> list[ArrayFile]:
    """The outputs that are made of the rows of a level."""
    if node_type != network.node_type or outputs.of_links:
        return []
    names = ["embeddings"] if number == network.embedding_level else []
    names += ["scores", "predictions"] if number == len(network.layers) else []
    return [outputs.arrays[name] for name in names if name in outputs.arrays]


def _storage(
    options: InferenceOptions, sources: Mapping[str, FeatureFiles], from_store: bool
) -> dict[str, StorageOptions]:
    """Options of reading, by type: those given for features, the default ones for rows in files."""
    used = options.storage if from_store else StorageOptions()
    return dict.fromkeys(sources, used)


def _name(number: int, node_type: str, store: GraphStore) -> str:
    text = f"layer {number}" if number else "inputs"
    return f"{text} of {node_type}" if store.is_typed else text
