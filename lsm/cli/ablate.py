"""``lsm ablate``: simulates many kinds of caches over the accesses of a run."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from lsm.cli.arguments import Progress, config_names, integers, require_folder

_OPTIONS = {
    "cache.policy": "--policies",
    "cache.num_lines": "--lines",
    "cache.ways": "--ways",
    "cache.window": "--window",
    "cache.update_period": "--update-period",
    "cache.near_fraction": "--near-fraction",
    "cache.seed": "--seed",
    "cache.victim.mode": "--victim",
    "cache.victim.rows": "--victim-rows",
}


def ablate(
    context: typer.Context,
    config: Annotated[
        str | None,
        typer.Argument(
            help="Study: a YAML file, or the name of one in configs/ablation/.",
            autocompletion=config_names("ablation"),
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Argument(help="With a config: key=value ...")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="Trace (.npz) to simulate, instead of a config.")
    ] = None,
    policies: Annotated[
        str, typer.Option(help="Eviction policies, belady, optimal.")
    ] = "hybrid,lookahead,belady",
    lines: Annotated[str | None, typer.Option(help="Cache lines per rank.")] = None,
    ways: Annotated[int, typer.Option(help="Lines per set.")] = 32,
    window: Annotated[str, typer.Option(help="Iterations known ahead.")] = "256",
    update_period: Annotated[
        int, typer.Option(help="Iterations between refreshes (dynamic, hybrid).")
    ] = 4,
    near_fraction: Annotated[
        float, typer.Option(help="Share of the window that counts as near (hybrid).")
    ] = 0.125,
    victim: Annotated[str, typer.Option(help="Victim buffer: none, queues or pool.")] = "none",
    victim_rows: Annotated[
        int, typer.Option(help="Rows per rank of the pool, or of each queue.")
    ] = 0,
    mode: Annotated[
        str, typer.Option(help="shared: one cache over all ranks; independent: one each.")
    ] = "shared",
    hash: Annotated[str, typer.Option(help="Owner of an id: stride or mix64.")] = "stride",
    seed: Annotated[int, typer.Option(min=0, help="Of random decisions.")] = 0,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Simulations at once; default: one per core.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Folder for records as CSV and JSON, a table and a plot (PNG, SVG, PDF)."
        ),
    ] = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write the records to this file.")
    ] = None,
    progress: Progress = None,
) -> None:
    """Compare cache policies: every combination, over a trace or as a study says.

    Where a list is meant, values are separated by commas.
    """
    if config is not None and trace is None:
        _refuse_trace_options(context)
        _run_config(config, overrides or [], jobs, json_path, progress)
        return
    if config is not None or trace is None:
        raise ValueError("expected either a CONFIG or --trace FILE; `lsm ablate --help` shows both")
    if lines is None:
        raise ValueError("--lines: not set; give the cache lines per rank, such as 10000,20000")
    axes: dict[str, list] = {
        "policies": [name.strip() for name in policies.split(",")],
        "lines": integers("--lines", lines),
        "windows": integers("--window", window),
        "victims": [name.strip() for name in victim.split(",")],
    }
    if json_path is not None:
        require_folder("--json", json_path)
    _check_choice("--mode", mode, ("shared", "independent"))
    _check_choice("--hash", hash, ("stride", "mix64"))
    for name in axes["victims"]:
        _check_choice("--victim", name, ("none", "queues", "pool"))
    names = ("ways", "update_period", "near_fraction", "mode", "hash", "seed")
    settings = {name: context.params[name] for name in names}
    records = _run_trace(trace, axes, settings, victim_rows, jobs, out, progress)
    _finish(records, json_path, out)


def _run_config(
    config: str,
    overrides: list[str],
    jobs: int | None,
    json_path: Path | None,
    progress: bool | None,
) -> None:
    from lsm.ablation import overlap_study
    from lsm.ablation.config import AblationConfig
    from lsm.ablation.output import held
    from lsm.ablation.study import run_study
    from lsm.config.load import find_config, load_tree

    study = load_tree(AblationConfig, find_config(config, "ablation"), overrides)
    if json_path is not None:
        require_folder("--json", json_path)
    text = None
    with held(study), _plain_warnings():
        if study.accumulator.enabled:
            records = overlap_study.run_study(study, progress=progress)
            text = overlap_study.markdown(records)
        else:
            records = run_study(study, jobs=jobs, progress=progress)
    _finish(records, json_path, study.output, text)


def _run_trace(
    path: Path,
    axes: dict[str, list],
    settings: dict[str, Any],
    victim_rows: int,
    jobs: int | None,
    out: Path | None,
    progress: bool | None,
) -> list[dict]:
    import itertools

    from lsm.ablation import runs
    from lsm.ablation.output import held_for_trace
    from lsm.ablation.trace import Trace
    from lsm.cache import planner
    from lsm.core.figures import require_matplotlib

    for policy in axes["policies"]:
        _check_choice("--policies", policy, runs.POLICIES)
    given, ways = axes["lines"], settings["ways"]
    if ways > 0:  # all policies with as many lines, also optimal, which has one set
        rounded = [planner.whole_sets(each, ways) if each > 0 else each for each in given]
        axes = axes | {"lines": list(dict.fromkeys(rounded))}
    with runs.naming(_OPTIONS):
        combinations = [
            runs.Combination(
                policy=policy,
                lines=num_lines,
                window=window,
                victim=victim,
                victim_rows=0 if victim == "none" else victim_rows,
                **settings,
            )
            for policy, num_lines, window, victim in itertools.product(
                axes["policies"], axes["lines"], axes["windows"], axes["victims"]
            )
        ]
    with warnings.catch_warnings(), runs.naming(_OPTIONS):
        warnings.simplefilter("ignore")  # reports errors before a long trace is read
        runs.planner_configs(combinations)
    if not path.is_file():
        raise FileNotFoundError(f"--trace: {path}: no such file; `lsm trace STORE` writes one")
    if out is not None:
        require_matplotlib("leave out --out")
    with nullcontext() if out is None else held_for_trace(out, path), _plain_warnings():
        for each in given:
            if each % ways:
                warnings.warn(planner.rounded_text(each, ways), stacklevel=1)
        records = runs.run(Trace.load(path), combinations, jobs=jobs, progress=progress)
        if out is not None:
            _write_trace_results(out, path, axes, settings, records)
    return records


def _write_trace_results(
    out: Path, trace: Path, axes: dict[str, list], settings: dict[str, Any], records: list[dict]
) -> None:
    from lsm.ablation.config import PlotConfig
    from lsm.ablation.study import with_sizes, write_results

    several_lines = len(axes["lines"]) > 1
    plot = PlotConfig(kind="lines" if several_lines else "dots", title=f"Caches over {trace.name}")
    about = {"trace_file": str(trace), **axes, **settings}
    write_results(out, with_sizes(records), about, plot)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Each warning is one line on standard error."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = lambda message, *_: print(f"warning: {message}", file=sys.stderr)
        yield


def _finish(
    records: list[dict], json_path: Path | None, out: Path | str | None, text: str | None = None
) -> None:
    """Writes the records to ``json_path`` and prints them, as ``text`` if it is given, and the
    folder ``out`` of the results, if there is one."""
    from rich.console import Console

    from lsm.ablation.report import requests_note, table, write_json

    if json_path is not None:
        write_json(json_path, records)
    if text is not None:
        typer.echo(text)
    else:
        console = Console()
        if not console.is_terminal:
            console = Console(width=200)  # a file has no width to fit into
        console.print(table(records))
        if note := requests_note(records):
            typer.echo(note)
    if out is not None:
        typer.echo(f"results: {out}")


def _check_choice(option: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{option}: expected one of {', '.join(choices)}, got {value!r}")


def _refuse_trace_options(context: typer.Context) -> None:
    free = ("config", "overrides", "jobs", "json_path", "progress")
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name)
        is_given = source is not None and source.name == "COMMANDLINE"
        if is_given and parameter.name not in free:
            raise ValueError(
                f"{parameter.opts[0]}: goes with --trace; a config says it in its keys, "
                "such as cache.sizes=[10,20]"
            )
