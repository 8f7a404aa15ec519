"""Runs a study from its configuration: graph, trace, every combination, and the reports."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

from lsm.ablation import plots, reads, report, runs
from lsm.ablation.config import AblationConfig, GraphConfig, PlotConfig
from lsm.ablation.runs import Combination
from lsm.ablation.trace import Trace
from lsm.ablation.trace_sampling import sample_trace
from lsm.core import record
from lsm.core.figures import require_matplotlib
from lsm.data.graph_store import GraphStore
from lsm.data.synth import synthesize

_KEYS = {
    "cache.policy": "cache.policies",
    "cache.num_lines": "cache.sizes",
    "cache.window": "cache.windows",
    "cache.update_period": "cache.update_periods",
    "cache.near_fraction": "cache.near_fractions",
    "cache.victim.mode": "cache.victim.modes",
    "cache.victim.rows": "cache.victim.queue_lists, cache.victim.pool_caches",
}


def run_study(
    config: AblationConfig, *, jobs: int | None = None, progress: bool | None = None
) -> list[dict]:
    """Samples the trace of ``config``, simulates every combination and writes ``config.output``.

    Returns the records of ``runs.run`` plus the size (lines per mean request list), the constant
    buffer's fraction and, with reads.enabled, the results of ``reads.read_all``. Writes
    the results of ``write_results`` after all runs.
    """
    if config.plot.enabled:
        require_matplotlib("set plot.enabled=false")
    store = open_or_make(config.graph, progress=progress)
    if config.reads.enabled:
        require_one_type(store, "reads.enabled")
    trace = sample_trace(store, **dict(config.trace), progress=progress)
    with runs.naming(_KEYS):
        named = combinations(config, trace)
    chosen = [each for each, _ in named]
    if config.reads.enabled:
        reads.require_runnable(chosen)
    with runs.naming(_KEYS):
        records = runs.run(trace, chosen, jobs=jobs, progress=progress)
    records = [names | each for each, (_, names) in zip(records, named, strict=True)]
    if config.reads.enabled:
        records = reads.read_all(config.reads, store, trace, chosen, records, progress=progress)
    plot = config.plot if config.plot.enabled else None
    write_results(Path(config.output), records, config.model_dump(mode="json"), plot)
    return records


def combinations(config: AblationConfig, trace: Trace) -> list[tuple[Combination, dict]]:
    """Every combination of the lists in ``config.cache``, with the labels of its records.

    Among combinations that differ only in parameters that their policy ignores, the first stands
    for all. A combination without a constant buffer appears once for each choice of its nodes, as
    the start of each curve.
    """
    settings = config.cache
    axes = itertools.product(
        settings.policies,
        settings.sizes,
        settings.windows,
        settings.update_periods,
        settings.near_fractions,
        settings.modes,
        settings.victim.modes,
        settings.constant.fractions,
        settings.constant.chosen_by,
    )
    distinct: dict[tuple[Combination, str], tuple[Combination, dict]] = {}
    for policy, size, window, period, near, mode, victim, fraction, chosen_by in axes:
        sets = max(1, round(size * trace.mean_list / settings.ways))
        lines = sets * settings.ways
        each = Combination(
            policy=policy,
            lines=lines,
            ways=settings.ways,
            window=window,
            update_period=period,
            near_fraction=near,
            victim=victim,
            victim_rows=_victim_rows(config, trace, victim, lines),
            mode=mode,
            hash=settings.hash,
            constant_rows=round(fraction * trace.num_nodes),
            constant_score=chosen_by,
            seed=settings.seed,
        )
        names = {"size": size, "constant_fraction": fraction}
        distinct.setdefault((each.simplified(), chosen_by), (each, names))
    return list(distinct.values())


def _victim_rows(config: AblationConfig, trace: Trace, mode: str, lines: int) -> int:
    victim = config.cache.victim
    if mode == "queues":
        return max(1, round(victim.queue_lists * trace.mean_list))
    return round(victim.pool_caches * lines) if mode == "pool" else 0


def open_or_make(graph: GraphConfig, *, progress: bool | None = None) -> GraphStore:
    """The store at ``graph.path``; synthesises it if it is missing. Raises ValueError if it was
    synthesised with other parameters. Any other store is taken as it is."""
    path = Path(graph.path)
    wanted = graph.model_dump(exclude={"path"})
    if not (path / "meta.json").exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        rest = {"valid_fraction": 0.0, "test_fraction": 0.0}
        return synthesize(path, progress=progress, name="ablation", **wanted, **rest)
    store = GraphStore.open(path)
    if store.is_typed:
        return store
    source = store.meta.source
    if isinstance(source, dict) and source.get("format") == "synth" and store.name == "ablation":
        other = [key for key, value in wanted.items() if source.get(key) != value]
        if other:
            key = other[0]
            raise ValueError(
                f"graph.{key}: expected {source.get(key)}, as the store {path} was made with, got "
                f"{wanted[key]}; give another graph.path, or delete the store to make it again"
            )
    return store


def require_one_type(store: GraphStore, key: str) -> None:
    """Raises ValueError, which names the key of real reads, for a store with types."""
    if store.is_typed:
        raise ValueError(
            f"{key}: {store.path} has types of nodes, whose rows lie in several files; set it to "
            "false"
        )


def write_results(
    folder: Path, records: list[dict], settings: dict, plot: PlotConfig | None
) -> None:
    """Writes study.json (``settings``, machine and commit), records.json, records.csv, table.md,
    and with ``plot`` plot.png, plot.svg and plot.pdf. Raises OSError, which names the file."""
    folder.mkdir(parents=True, exist_ok=True)
    about = record.make({"results": ["records.json"]}, settings)
    report.write_text(folder / "study.json", json.dumps(about, indent=1) + "\n")
    report.write_json(folder / "records.json", records)
    report.write_csv(folder / "records.csv", records)
    report.write_text(folder / "table.md", report.markdown(records))
    if plot is not None:
        plots.draw(plot, records, folder / "plot.png")


def with_sizes(records: list[dict]) -> list[dict]:
    """``records`` of a trace with the size of each cache in mean request lists, for a plot."""
    first = records[0]
    lists_per_row = first["num_iterations"] * first["num_ranks"] / first["trace_requests"]
    return [each | {"size": each["lines"] * lists_per_row} for each in records]
