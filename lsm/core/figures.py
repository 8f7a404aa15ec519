"""Figures: panels side by side, written as PNG, SVG and PDF."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lsm.core.atomic_file import writing

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")


def require_matplotlib(otherwise: str = "") -> None:
    """Raises RuntimeError, with the remedy, if matplotlib is not installed. ``otherwise``: another
    remedy."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        remedies = ", or ".join(filter(None, ("pip install matplotlib", otherwise)))
        raise RuntimeError(f"plots need matplotlib: {remedies}") from None


def new_figure(
    panels: int, size: tuple[float, float], *, common_axes: bool = True
) -> tuple[Figure, Sequence[Axes]]:
    """A figure of ``size`` inches with ``panels`` side by side. ``common_axes``: they have the same
    scales."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, panels, squeeze=False, sharex=common_axes, sharey=common_axes)
    return figure, axes[0]


def finish(figure: Figure, axes: Sequence[Axes], title: str, columns: int, path: Path) -> None:
    """Adds title and legend, and writes the figure to ``path`` with each of SUFFIXES. Raises
    OSError, which names the file, if one cannot be written; a figure there stays as it was."""
    found: dict[str, Artist] = {}  # every label of the panels, once
    for axis in axes:
        axis.grid(alpha=0.3)
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    for axis in axes[1:]:
        axis.set_ylabel("")
    handles, names = list(found.values()), list(found)
    figure.legend(
        handles, names, loc="outside lower center", ncols=min(columns, len(names)), fontsize=8
    )
    figure.suptitle(title)
    for suffix in SUFFIXES:
        with writing(path.with_suffix(suffix)) as temporary:
            figure.savefig(temporary, dpi=120, format=suffix[1:])
        figure.set_layout_engine("none")  # the other files have the layout of the first
