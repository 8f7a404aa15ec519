"""Draws the curves of runs: losses, metrics, and the rows that memory served."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lsm.core.counters import COUNTERS
from lsm.core.figures import finish, new_figure, require_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LINES = {"train": "--", "valid": "-", "test": ":"}
"""Line styles by split."""
_COUNTS = {"", "secs", "num_edges", *COUNTERS}
"""Numbers of a split that are no metrics."""


@dataclass(frozen=True)
class Curves:
    """The records of a run: each iteration's loss by its place among all epochs, and the record of
    each epoch."""

    name: str
    places: list[float]
    losses: list[float]
    epochs: Sequence[Mapping[str, Any]]

    @property
    def metrics(self) -> list[tuple[str, str]]:
        """(split, metric) of the numbers that were validated, such as (valid, accuracy)."""
        found = {}
        for record in self.epochs:
            for key, value in record.items():
                split, _, metric = key.partition("_")
                is_metric = split in _LINES and metric not in _COUNTS
                if is_metric and isinstance(value, int | float):
                    found[split, metric] = True
        return list(found)


def read_curves(run: Path) -> Curves:
    """The records of the run in a directory. Raises FileNotFoundError or ValueError, with the
    remedy, without any."""
    path = run / "metrics.jsonl"
    if not path.exists():
        raise FileNotFoundError(
            f"{run}: has no metrics.jsonl; expected the directory of a run with metrics.jsonl=true"
        )
    steps: list[dict[str, Any]] = []
    epochs: list[dict[str, Any]] = []
    for line in path.read_bytes().splitlines():
        try:
            record = json.loads(line)
            kind, _ = record["kind"], record["loss"]
        except (ValueError, KeyError, TypeError):
            continue  # damaged, or the run is writing this line
        (steps if kind == "step" else epochs).append(record)
    if not steps and not epochs:
        raise ValueError(f"{path}: has no records yet; wait for the first iterations of the run")
    per_epoch = max((each["iteration"] + 1 for each in steps), default=1)
    places = [each["epoch"] - 1 + (each["iteration"] + 1) / per_epoch for each in steps]
    name = run.resolve().name
    return Curves(name, places, [each["loss"] for each in steps], epochs)


def draw_curves(runs: Sequence[Path], out: Path) -> list[str]:
    """Writes the curves of ``runs`` over epochs to ``out`` (.png), and next to it as .svg and .pdf.

    A panel has the losses of training, and each metric a panel of its own, train dashed. A last one
    has the share of rows that memory served, if a run read some from storage.

    Returns:
        The titles of the panels.

    Raises:
        FileNotFoundError: A directory is not that of a run.
        ValueError: A run has no records.
        RuntimeError: matplotlib is not installed.
    """
    require_matplotlib()
    curves = [read_curves(run) for run in runs]
    names = _distinct_names(runs, curves)
    metrics = list(dict.fromkeys(metric for each in curves for _, metric in each.metrics))
    reads = any(record.get("misses") for each in curves for record in each.epochs)
    titles = ["loss", *metrics, *(["rows from memory"] if reads else [])]
    figure, axes = new_figure(len(titles), (1 + 4 * len(titles), 4.2), common_axes=False)
    for number, (name, each) in enumerate(zip(names, curves, strict=True)):
        color = f"C{number % 10}"
        _draw_losses(axes[0], each, name, color)
        for axis, metric in zip(axes[1:], metrics, strict=False):
            _draw_metric(axis, each, metric, name, color)
        if reads:
            _draw_hits(axes[-1], each, name, color)
    for axis, title in zip(axes, titles, strict=True):
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("epochs")
        axis.locator_params(axis="x", integer=True)
    finish(figure, axes, "", 4, out)
    return titles


def _distinct_names(runs: Sequence[Path], curves: Sequence[Curves]) -> list[str]:
    """The names of the directories; with their paths if two are alike."""
    names = [each.name for each in curves]
    return names if len(set(names)) == len(names) else [str(run) for run in runs]


def _draw_losses(axis: Axes, curves: Curves, name: str, color: str) -> None:
    axis.plot(curves.places, curves.losses, color=color, alpha=0.3, linewidth=0.8)
    known = [record for record in curves.epochs if record["loss"] is not None]
    middles = [record["epoch"] - 0.5 for record in known]  # of the epochs that they are means of
    axis.plot(middles, [record["loss"] for record in known], "o-", ms=3, color=color, label=name)


def _draw_metric(axis: Axes, curves: Curves, metric: str, name: str, color: str) -> None:
    for split, own in curves.metrics:
        key = f"{split}_{metric}"
        known = [record for record in curves.epochs if record.get(key) is not None]
        if own == metric:
            ends = [record["epoch"] for record in known]
            values = [record[key] for record in known]
            axis.plot(
                ends, values, _LINES[split], marker="o", ms=3, color=color, label=f"{name}, {split}"
            )


def _draw_hits(axis: Axes, curves: Curves, name: str, color: str) -> None:
    known = [record for record in curves.epochs if record.get("requests")]
    shares = [1 - record["misses"] / record["requests"] for record in known]
    axis.plot([record["epoch"] for record in known], shares, "o-", ms=3, color=color, label=name)
    axis.set_ylim(0, 1.02)
