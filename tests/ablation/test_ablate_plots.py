"""Plots of cache studies."""

import itertools
import sys

import numpy as np
import pytest

from lsm.ablation import plots, runs, study
from lsm.ablation.config import PlotConfig
from lsm.ablation.runs import Combination
from lsm.ablation.study import run_study
from lsm.ablation.trace import Trace
from lsm.cache.planner import ONLINE_POLICIES
from lsm.core.figures import require_matplotlib
from support.ablation import small


@pytest.mark.parametrize("name", ["eviction", "sharing", "window", "constant"])
def test_each_study_draws_its_plot(tmp_path, name):
    pytest.importorskip("matplotlib")
    config = small(name, tmp_path, "cache.windows=[4, 8]")
    records = run_study(config, progress=False)
    assert (tmp_path / "out" / "plot.png").stat().st_size > 5000
    assert (tmp_path / "out" / "plot.svg").read_text().startswith("<?xml")
    assert (tmp_path / "out" / "plot.pdf").read_bytes().startswith(b"%PDF")
    # The same study again gives the same records, from the store that is there now.
    assert run_study(config, jobs=1, progress=False) == records


def test_panels_have_common_axes(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    drawn = []
    monkeypatch.setattr(plots, "finish", lambda figure, axes, *_: drawn.append(axes))
    record = dict(Combination(policy="dynamic", lines=1)) | {"num_nodes": 1000}
    records = [
        record | {"size": size, "lines": lines, "update_period": period, "hit_ratio_2nd": hits}
        for size, lines in ((10.0, 9), (40.0, 36))
        for period, hits in ((1, 0.1), (4, 0.9))
    ]
    for kind in ("lines", "dots"):
        config = PlotConfig(kind=kind, panels="update_period")
        plots.draw(config, records, tmp_path / "plot.png")
        first, second = drawn.pop()
        assert first.get_xlim() == second.get_xlim()
        assert first.get_ylim() == second.get_ylim()
        low, high = first.get_ylim() if kind == "lines" else first.get_xlim()
        assert low == 0
        assert high > 0.9  # of the second panel
        if kind == "lines":
            names = [each.get_text().replace("\n", " ") for each in first.get_xticklabels()]
        else:
            names = first.get_legend_handles_labels()[1]
        assert names == ["10 lists = 9 rows (0.9%)", "40 lists = 36 rows (4%)"]


@pytest.mark.parametrize(
    "sizes", [(1.0, 1.05, 1.1, 1.2, 8.0), (1.0, 1.01, 1.02), (0.5, 1.0, 2.0, 4.0, 8.0), (1.0,)]
)
def test_labels_of_sizes_do_not_overlap(tmp_path, monkeypatch, sizes):
    pytest.importorskip("matplotlib")
    drawn = []
    monkeypatch.setattr(plots, "finish", lambda figure, axes, *_: drawn.append((figure, axes[0])))
    record = dict(Combination(policy="lru", lines=1)) | {"num_nodes": 10**6, "hit_ratio_2nd": 0.5}
    records = [record | {"size": size, "lines": int(size * 12345)} for size in sizes]
    plots.draw(PlotConfig(kind="lines"), records, tmp_path / "plot.png")
    ((figure, axis),) = drawn
    figure.canvas.draw()
    assert list(axis.get_xticks()) == list(sizes)
    shown = [label for label in axis.get_xticklabels() if label.get_text()]
    boxes = [label.get_window_extent() for label in shown]
    assert all(left.x1 <= right.x0 for left, right in itertools.pairwise(boxes))
    assert shown[0].get_text().startswith(f"{sizes[0]:g} list")
    if sizes[-1] == 8.0:
        assert shown[-1].get_text().startswith("8 lists")


def test_curves_differ_where_the_colours_begin_anew(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    drawn = []
    monkeypatch.setattr(plots, "finish", lambda figure, axes, *_: drawn.extend(axes))
    records = [
        dict(Combination(policy=policy, lines=lines))
        | {"num_nodes": 1000, "size": lines / 8, "hit_ratio_2nd": 0.5}
        for policy in ONLINE_POLICIES[:12]
        for lines in (32, 64)
    ]
    plots.draw(PlotConfig(panels="none"), records, tmp_path / "plot.png")
    looks = [(each.get_color(), each.get_linestyle()) for each in drawn[0].get_lines()]
    assert len(set(looks)) == len(looks) == 12


@pytest.mark.parametrize("sizes", [(), (10.0,)])
def test_a_cache_that_has_no_value_on_the_x_axis_is_a_line_across(tmp_path, monkeypatch, sizes):
    pytest.importorskip("matplotlib")
    drawn = []
    monkeypatch.setattr(plots, "finish", lambda figure, axes, *_: drawn.extend(axes))
    records = [
        dict(Combination(policy=policy, lines=32))
        | {"num_nodes": 100, "size": size, "hit_ratio_2nd": hits}
        for policy, size, hits in [("none", 1.0, 0.25), *(("lru", each, 0.5) for each in sizes)]
    ]
    plots.draw(PlotConfig(), records, tmp_path / "plot.png")
    (level,) = (each for each in drawn[0].get_lines() if each.get_label() == "none")
    ends = level.get_window_extent()
    assert ends.x0 < ends.x1
    assert set(level.get_ydata()) == {0.25}


def test_sizes_are_of_the_exact_mean_list():
    offsets = np.array([0] * 1000 + [1])
    trace = Trace(np.array([3]), offsets, num_nodes=10, num_ranks=1)
    records = runs.run(trace, [Combination(policy="lru", lines=32)], progress=False)
    (record,) = study.with_sizes(records)
    assert record["size"] == pytest.approx(32 * 1000)


@pytest.mark.parametrize(
    ("count", "text"),
    [(768, "768"), (8880, "8.9K"), (15_552, "15.6K"), (1_000_000, "1M"), (269_346_174, "269M")],
)
def test_short_counts(count, text):
    assert plots._short_count(count) == text


def test_a_missing_matplotlib_is_said_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(RuntimeError, match=r"pip install matplotlib, or set plot.enabled"):
        run_study(small("eviction", tmp_path), progress=False)
    assert not list(tmp_path.iterdir())
    run_study(small("base", tmp_path, "plot.enabled=false", "cache.windows=[4]"), progress=False)
    assert not (tmp_path / "out" / "plot.png").exists()
    with pytest.raises(RuntimeError, match="plots need matplotlib"):
        require_matplotlib()
