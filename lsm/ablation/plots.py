"""Draws the records of a study: one picture, with a panel per value of one parameter."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lsm.ablation.config import PlotConfig
from lsm.ablation.report import varying
from lsm.ablation.runs import ignored
from lsm.core.figures import finish, new_figure

if TYPE_CHECKING:
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
    "size": "cache per rank: mean request lists = rows (share of all nodes)",
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
_INNER = 0.9  # share of an axis between its first and its last tick
_CHARACTER = 0.6  # its width, of the size of the font


def draw(config: PlotConfig, records: Sequence[dict], path: Path) -> None:
    """Writes the plot of ``records`` that ``config`` describes to ``path`` (.png), and next to it
    as .svg and .pdf."""
    records = [record for record in records if _value(record, config.y) is not None]
    panels = _panels(config, records)
    labels = [_label(config, record, records) for record in records]
    height = 2 + 0.28 * len(set(labels)) if config.kind == "dots" else 4.6
    figure, axes = new_figure(len(panels), (2 + 4.4 * len(panels), height))
    sizes = _size_texts(records)
    for axis, (title, chosen) in zip(axes, panels, strict=True):
        if config.kind == "dots":
            _draw_dots(config, axis, chosen, records, sizes)
        else:
            _draw_lines(config, axis, chosen, records, sizes)
        axis.set_title(title, fontsize=10)
    # The panels have common axes: their limits must wait for the points of the last one.
    if config.kind == "dots":
        axes[0].set_xlim(left=0)
    else:
        axes[0].set_ylim(bottom=0)
    finish(figure, axes, config.title, 2 + len(panels), path)


def _size_texts(records: Sequence[dict]) -> dict[float, str]:
    """Each size of a cache in words: mean request lists, rows per rank, share of all nodes."""
    texts = {}
    for each in records:
        if "size" in ignored(each):
            continue
        share = 100 * each["lines"] / each["num_nodes"]
        digits = f"{share:.0f}" if share >= 10 else f"{share:.1g}"
        rows = _short_count(each["lines"])
        texts[each["size"]] = f"{each['size']:.3g} lists = {rows} rows ({digits}%)"
    return texts


def _short_count(count: int) -> str:
    """8.9K for 8,880."""
    for unit, name in ((10**9, "G"), (10**6, "M"), (10**3, "K")):
        if count >= unit:
            digits = 3 if count >= 10 * unit else 2
            return f"{count / unit:.{digits}g}{name}"
    return str(count)


def _panels(config: PlotConfig, records: Sequence[dict]) -> list[tuple[str, list[dict]]]:
    """(title, records) of each panel; a cache that ignores the parameter is in all of them."""
    name = config.panels
    if name == "none":
        return [("", list(records))]
    panels = []
    for value in dict.fromkeys(each[name] for each in records if name not in ignored(each)):
        chosen = [each for each in records if name in ignored(each) or each[name] == value]
        text = f"{value:g}" if isinstance(value, float) else str(value)
        text = f"{name.replace('_', ' ')} {text}"
        panels.append((_size_texts(chosen)[value] if name == "size" else text, chosen))
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
    config: PlotConfig,
    axis: Axes,
    records: Sequence[dict],
    every_record: Sequence[dict],
    sizes: dict[float, str],
) -> None:
    """A curve per label; colour by policy; a level line where the policy ignores the x axis."""
    curves: dict[str, list[dict]] = {}
    for record in records:
        curves.setdefault(_label(config, record, every_record), []).append(record)
    policies = list(dict.fromkeys(record["policy"] for record in every_record))
    seen: dict[str, int] = {}
    xs = sorted({each[config.x] for each in every_record if config.x not in ignored(each)})
    for label, points in curves.items():
        policy = points[0]["policy"]
        round_of_colors, color = divmod(policies.index(policy), 10)
        turn = seen[policy] = seen.get(policy, round_of_colors - 1) + 1
        style: dict[str, Any] = {
            "color": f"C{color}",
            "linestyle": _LINE_STYLES[turn % len(_LINE_STYLES)],
            "label": label,
        }
        if config.x in ignored(points[0]):
            axis.axhline(_value(points[0], config.y), linewidth=1, **style)
            continue
        points.sort(key=lambda record: record[config.x])
        axis.plot(
            [record[config.x] for record in points],
            [_value(record, config.y) for record in points],
            marker=_MARKERS[turn % len(_MARKERS)],
            **style,
        )
    is_log = bool(xs) and xs[0] > 0 and xs[-1] / xs[0] >= 4
    if is_log:
        axis.set_xscale("log", base=2)
    names, fontsize = [f"{x:g}" for x in xs], 10
    if config.x == "size":
        names, fontsize = [re.sub(r" (=|\()", r"\n\1", sizes[x]) for x in xs], 8
    places = [math.log(x) for x in xs] if is_log else xs
    axis.set_xticks(xs, _apart(axis, places, names, fontsize), fontsize=fontsize)
    axis.minorticks_off()
    axis.set_xlabel(_WORDS[config.x])
    axis.set_ylabel(_WORDS[config.y])


def _apart(axis: Axes, places: list[float], names: list[str], fontsize: int) -> list[str]:
    """``names`` of ticks at ``places``, empty where they would cover the one to their left."""
    points = axis.get_window_extent().width * 72 / axis.figure.dpi
    scale = points * _INNER / ((places[-1] - places[0]) or 1) if places else 0
    found: list[str] = []
    end = -math.inf
    for place, name in zip(places, names, strict=True):
        half = max(map(len, name.split("\n"))) * fontsize * _CHARACTER / 2
        is_free = scale * place - half >= end
        found.append(name if is_free else "")
        end = scale * place + half if is_free else end
    return found


def _draw_dots(
    config: PlotConfig,
    axis: Axes,
    records: Sequence[dict],
    every_record: Sequence[dict],
    sizes: dict[float, str],
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
            label=sizes.get(value, "no cache") if config.x == "size" else f"{value:g} {config.x}",
        )
    axis.set_yticks(range(len(labels)), labels, fontsize=9)
    axis.set_xlabel(_WORDS[config.y])
