"""Draws the records of a study: one picture, with a panel per value of one parameter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lsm.ablation.config import PlotConfig
from lsm.ablation.report import varying
from lsm.ablation.runs import ignored

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_SERIES = (
    "window",
    "update_period",
    "near_fraction",
    "victim",
    "mode",
    "size",
    "constant_fraction",
    "constant_score",
    "merge_iterations",
)
_SHORT = {"window": "W", "update_period": "U", "near_fraction": "F", "merge_iterations": "merged"}
_WORDS = {
    "size": "lines per rank, in mean request lists",
    "window": "window (iterations)",
    "update_period": "iterations between refreshes",
    "near_fraction": "near fraction of the window",
    "constant_fraction": "share of all nodes in the constant buffer",
    "hit_ratio": "hit ratio",
    "hit_ratio_2nd": "hit ratio, second half of the trace",
    "reads_per_request_2nd": "rows read per request, second half of the trace",
    "rows_per_s": "rows delivered per second",
    "bytes_read": "bytes read from storage",
}
_LINE_STYLES = ("-", "--", ":", "-.")
_MARKERS = "os^Dvp*X"


def require_matplotlib() -> None:
    """Raises RuntimeError, with the remedy, if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise RuntimeError(
            "plots need matplotlib: pip install matplotlib, or set plot.enabled=false"
        ) from None


def draw(config: PlotConfig, records: Sequence[dict], path: Path) -> None:
    """Writes the plot of ``records`` that ``config`` describes to ``path`` (.png)."""
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    records = [record for record in records if _value(record, config.y) is not None]
    panels = _panels(config, records)
    labels = [_label(config, record, records) for record in records]
    height = 2 + 0.28 * len(set(labels)) if config.kind == "dots" else 4.6
    figure = Figure(figsize=(2 + 4.4 * len(panels), height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axis, (title, chosen) in zip(axes, panels, strict=True):
        if config.kind == "dots":
            _draw_dots(config, axis, chosen, records)
        else:
            _draw_lines(config, axis, chosen, records)
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.3)
    for axis in axes[1:]:
        axis.set_ylabel("")
    handles, names = _legend(axes)
    columns = min(len(names), 2 + len(panels))
    figure.legend(handles, names, loc="outside lower center", ncols=columns, fontsize=8)
    figure.suptitle(config.title)
    figure.savefig(path, dpi=120)


def _panels(config: PlotConfig, records: Sequence[dict]) -> list[tuple[str, list[dict]]]:
    """(title, records) of each panel; a cache that ignores the parameter is in all of them."""
    name = config.panels
    if name == "none":
        return [("", list(records))]
    panels = []
    for value in dict.fromkeys(each[name] for each in records if name not in ignored(each)):
        chosen = [each for each in records if name in ignored(each) or each[name] == value]
        text = f"{value:g}" if isinstance(value, float) else str(value)
        panels.append((f"{name.replace('_', ' ')} {text}", chosen))
    return panels


def _label(config: PlotConfig, record: dict, records: Sequence[dict]) -> str:
    """The policy, and the parameters that vary between its caches and are not on an axis."""
    unused = ignored(record)
    same_policy = [each for each in records if each["policy"] == record["policy"]]
    parts = [record["policy"]]
    for name in varying(same_policy, _SERIES):
        starts_both = name == "constant_score" and config.x == "constant_fraction"
        if name in (config.x, config.panels) or (name in unused and not starts_both):
            continue
        value = record[name]
        if name == "victim":
            parts.append(f"+ {value}" if value != "none" else "")
        elif name == "mode":
            parts.append(f"({value})")
        elif name == "constant_score":
            parts.append(f"(buffer: {value.replace('_', ' ')})")
        else:
            parts.append(f"{_SHORT.get(name, name)}={value:g}")
    return " ".join(part for part in parts if part)


def _value(record: dict, name: str) -> float:
    if name == "reads_per_request_2nd":
        return record["misses_2nd"] / record["requests_2nd"] if record["requests_2nd"] else 0.0
    return record[name]


def _draw_lines(
    config: PlotConfig, axis: Axes, records: Sequence[dict], every_record: Sequence[dict]
) -> None:
    """A curve per label; colour by policy; a level line where the policy ignores the x axis."""
    curves: dict[str, list[dict]] = {}
    for record in records:
        curves.setdefault(_label(config, record, every_record), []).append(record)
    policies = list(dict.fromkeys(record["policy"] for record in every_record))
    seen: dict[str, int] = {}
    xs = sorted({each[config.x] for each in records if config.x not in ignored(each)})
    for label, points in curves.items():
        policy = points[0]["policy"]
        turn = seen[policy] = seen.get(policy, -1) + 1
        style: dict[str, Any] = {
            "color": f"C{policies.index(policy) % 10}",
            "linestyle": _LINE_STYLES[turn % len(_LINE_STYLES)],
            "label": label,
        }
        if config.x in ignored(points[0]):
            axis.plot(xs, [_value(points[0], config.y)] * len(xs), linewidth=1, **style)
            continue
        points.sort(key=lambda record: record[config.x])
        axis.plot(
            [record[config.x] for record in points],
            [_value(record, config.y) for record in points],
            marker=_MARKERS[turn % len(_MARKERS)],
            **style,
        )
    if xs and xs[0] > 0 and xs[-1] / xs[0] >= 4:
        axis.set_xscale("log", base=2)
    axis.set_xticks(xs, [f"{x:g}" for x in xs])
    axis.minorticks_off()
    axis.set_ylim(bottom=0)
    axis.set_xlabel(_WORDS[config.x])
    axis.set_ylabel(_WORDS[config.y])


def _draw_dots(
    config: PlotConfig, axis: Axes, records: Sequence[dict], every_record: Sequence[dict]
) -> None:
    """A row per label, the best of all panels on top; a dot per value of the x parameter."""
    rows: dict[str, dict[float, float]] = {}
    for record in records:
        row = rows.setdefault(_label(config, record, every_record), {})
        row[record[config.x]] = _value(record, config.y)
    overall: dict[str, list[float]] = {}
    for record in every_record:
        values = overall.setdefault(_label(config, record, every_record), [])
        values.append(_value(record, config.y))
    labels = sorted(overall, key=lambda label: sum(overall[label]) / len(overall[label]))
    values = sorted({value for row in rows.values() for value in row})
    for turn, value in enumerate(values):
        at = [position for position, label in enumerate(labels) if value in rows.get(label, {})]
        axis.plot(
            [rows[labels[position]][value] for position in at],
            at,
            marker=_MARKERS[turn % len(_MARKERS)],
            linestyle="",
            color=f"C{turn % 10}",
            label=f"{value:g} {_WORDS[config.x].partition(', in ')[2] or config.x}",
        )
    axis.set_yticks(range(len(labels)), labels, fontsize=9)
    axis.set_xlim(left=0)
    axis.set_xlabel(_WORDS[config.y])


def _legend(axes: Iterable[Axes]) -> tuple[list[Artist], list[str]]:
    """Every label of the panels, once."""
    found: dict[str, Artist] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)
