"""Draws the study of overlapping accesses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lsm.core.figures import finish, new_figure
from lsm.storage.disk_profile import DiskProfile


def draw_overlap(
    profile: DiskProfile, records: Sequence[dict], target_share: float, path: Path
) -> None:
    """Reads per second against overlapping accesses: the model, bursts, and a queue kept full."""
    figure, axes = new_figure(1, (7.5, 4.8))
    axis, model = axes[0], profile.access_model()
    counts = [each["accesses"] for each in records]
    axis.plot(counts, [model.iops(n) for n in counts], "C0-", label="model (started together)")
    low = [each["iops"] - each["iops_min"] for each in records]
    high = [each["iops_max"] - each["iops"] for each in records]
    axis.errorbar(
        counts,
        [each["iops"] for each in records],
        yerr=[low, high],
        fmt="C1o",
        capsize=3,
        label="measured: started together, waited for",
    )
    axis.plot(
        [point.depth for point in profile.iops],
        [point.iops for point in profile.iops],
        "C2s--",
        label="measured: always so many in flight",
    )
    needed = model.accesses(target_share)
    axis.axhline(target_share * profile.peak_iops, color="gray", linewidth=0.8, linestyle=":")
    axis.axvline(needed, color="gray", linewidth=0.8, linestyle=":")
    axis.annotate(
        f"{target_share:.0%} of the peak: {needed:.0f}",
        (needed, 0),
        xytext=(4, 6),
        textcoords="offset points",
        fontsize=8,
    )
    axis.set_xscale("log", base=2)
    axis.set_xlabel("accesses that overlap (4 KiB, random)")
    axis.set_ylabel("reads per second")
    axis.set_ylim(bottom=0)
    finish(figure, axes, "Overlapping accesses (GIDS, Figure 8)", 4, path)


def draw_batches(profile: DiskProfile, records: Sequence[dict], path: Path) -> None:
    """Rows per second against the batch size, a panel per share of rows in memory."""
    fractions = list(dict.fromkeys(each["cache"] for each in records))
    figure, axes = new_figure(len(fractions), (2 + 4.6 * len(fractions), 4.8))
    for axis, fraction in zip(axes, fractions, strict=True):
        chosen = [each for each in records if each["cache"] == fraction]
        for turn, way in enumerate(dict.fromkeys(each["way"] for each in chosen)):
            points = [each for each in chosen if each["way"] == way]
            rates = [each["rows_per_s"] for each in points]
            errors = [
                [rate - each["rows_min"] for rate, each in zip(rates, points, strict=True)],
                [each["rows_max"] - rate for rate, each in zip(rates, points, strict=True)],
            ]
            sizes = [each["batch_size"] for each in points]
            axis.errorbar(sizes, rates, yerr=errors, marker="os^D"[turn % 4], capsize=3, label=way)
        axis.axhline(profile.peak_iops, color="gray", linewidth=0.8, linestyle=":")
        axis.annotate("peak IOPS", (sizes[0], profile.peak_iops), fontsize=8, va="bottom")
        axis.set_xscale("log", base=2)
        axis.set_xticks(sizes, [str(size) for size in sizes])
        axis.minorticks_off()
        axis.set_xlabel("seeds per iteration")
        title = f"{fraction:.0%} of the rows in memory" if fraction else "no rows in memory"
        axis.set_title(title, fontsize=10)
    axes[0].set_ylabel("rows per second")
    axes[0].set_ylim(bottom=0)
    finish(figure, axes, "Reads ahead of training (GIDS, Figure 9)", 4, path)
