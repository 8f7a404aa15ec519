"""The stages of an inference, with their files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from lsm.inference.link_outputs import LinkOutputs
from lsm.inference.network import BlockLayer, Network
from lsm.inference.options import InferenceOptions
from lsm.inference.outputs import Outputs, Plan, counts, outputs_of
from lsm.inference.stage import Resources, Sink, Stage
from lsm.inference.streamed import Streamed
from lsm.inference.typed_intervals import TypedIntervalStage
from lsm.storage.options import StorageOptions

Topologies = Mapping[EdgeType, Topology]
_EDGES_AT_ONCE = 1 << 22
_SMALL_SHARE = 16  # fewer nodes reach few others, which blocks alone compute


def choose_plan(
    network: Network, store: GraphStore, options: InferenceOptions
) -> Callable[..., Plan]:
    """The route that ``options`` name, or the one that reads less. Raises ValueError if the model
    cannot take it."""
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
            f"{opaque[0]} of the model is something else; use --route gather"
        )
    is_small = options.nodes is not None and (
        _SMALL_SHARE * len(options.nodes) < store.nodes(network.node_type).num_nodes
    )
    if options.links is not None:
        marks = options.links.wanted(counts(store)).values()
        is_small = all(_SMALL_SHARE * int(mark.sum()) < len(mark) for mark in marks)
    streams = not (opaque or network.inputs or is_small)
    if options.route == "intervals" or (options.route == "auto" and streams):
        return plan_typed_intervals if network.inputs else plan_intervals
    return plan_gather


def plan_gather(
    network: Network,
    store: GraphStore,
    topologies: Topologies,
    work: Path,
    options: InferenceOptions,
    resources: Resources,
) -> Plan:
    """The stages of the route ``gather``: the maps of inputs, then each layer by type."""
    return _plan_levels("gather", network, store, topologies, work, options, resources)


def plan_typed_intervals(
    network: Network,
    store: GraphStore,
    topologies: Topologies,
    work: Path,
    options: InferenceOptions,
    resources: Resources,
) -> Plan:
    """The stages of the route ``intervals`` of a graph with types. Precondition: each layer has a
    form that streams."""
    return _plan_levels("intervals", network, store, topologies, work, options, resources)


def _plan_levels(
    route: str,
    network: Network,
    store: GraphStore,
    topologies: Topologies,
    work: Path,
    options: InferenceOptions,
    resources: Resources,
) -> Plan:
    """The maps of inputs, then each layer by type."""
    threads = native.ThreadPool(resources.num_threads if route == "intervals" else 1)
    num_nodes = counts(store)
    outputs = outputs_of(network.widths, store, network.node_type, options, work)
    levels = needed_levels(network, outputs)
    wanted = _wanted(levels, outputs, network, topologies, num_nodes, options.links)
    stages: list[Stage] = []
    written: list[list[ArrayFile]] = []
    freed: list[list[ArrayFile]] = []
    before: dict[str, FeatureFiles] = {
        name: store.nodes(name).feature_files
        for name in store.node_types
        if store.nodes(name).features is not None
    }
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
                    None if wanted is None else wanted[place][name],
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


def plan_intervals(
    network: Network,
    store: GraphStore,
    topologies: Topologies,
    work: Path,
    options: InferenceOptions,
    resources: Resources,
) -> Plan:
    """The stages of the route ``intervals``: the first layer's rows of the features, then each
    layer. Precondition: each layer has a form that streams."""
    outputs, name = (
        outputs_of(network.widths, store, network.node_type, options, work),
        network.node_type,
    )
    levels = needed_levels(network, outputs)
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


@dataclass(frozen=True)
class Level:
    """The rows after ``number`` layers, by type; number 0: the maps of inputs."""

    number: int
    by_type: Mapping[str, BlockLayer]


def needed_levels(network: Network, outputs: Outputs) -> list[Level]:
    """The levels that the outputs need, in their order."""
    last = len(network.layers) if outputs.has_scores else network.embedding_level
    levels = [Level(0, network.inputs)] if network.inputs else []
    return levels + [Level(i + 1, network.layers[i]) for i in range(last)]


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


def _wanted(
    levels: Sequence[Level],
    outputs: Outputs,
    network: Network,
    topologies: Topologies,
    num_nodes: Mapping[str, int],
    links: LinkOutputs | None,
) -> list[dict[str, Tensor]] | None:
    """The nodes to compute at each level by type, [N] bool; None: all."""
    if outputs.selection is None and links is None:
        return None

    def nothing() -> dict[str, Tensor]:
        return {name: torch.zeros(count, dtype=torch.bool) for name, count in num_nodes.items()}

    masks = nothing()
    if links is not None:
        masks |= links.wanted(num_nodes)
    else:
        masks[network.node_type][outputs.selection] = True
    found = [masks]
    for level in levels[:0:-1]:
        masks = {name: mask.clone() for name, mask in found[0].items()}
        for name, layer in level.by_type.items():
            for each in layer.edge_types:
                _mark_sources(masks[each[0]], found[0][name], topologies[each])
        found.insert(0, masks)
    return found


def _mark_sources(sources: Tensor, wanted: Tensor, topology: Topology) -> None:
    """Marks the sources of all edges into the ``wanted`` nodes."""
    ids = wanted.nonzero().view(-1)
    first = topology.indptr[ids]
    counts = topology.indptr[ids + 1] - first
    parts = (counts.cumsum(0) // _EDGES_AT_ONCE).diff().nonzero().view(-1) + 1
    for begin, count in zip(first.tensor_split(parts), counts.tensor_split(parts), strict=True):
        start = begin - (count.cumsum(0) - count)
        places = torch.arange(int(count.sum())) + start.repeat_interleave(count)
        sources[topology.indices[places].long()] = True
