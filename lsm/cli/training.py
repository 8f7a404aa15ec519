"""A training from the command line: its summary, and the checkpoint that Ctrl-C leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from lsm.distributed.environment import rank_in


def train_to_summary(
    fit: Callable[[Any], dict[str, Any]], settings: Any, newest: Callable[[], Path | None]
) -> None:
    """Trains with ``fit(settings)`` and prints the summary on rank 0.

    Args:
        fit: The training.
        settings: Its configuration.
        newest: Finds the newest checkpoint of the run, for the line of Ctrl-C.
    """
    try:
        summary = fit(settings)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_to_continue(newest(), settings.checkpoint.resume)) from None
    if rank_in() in (None, 0):
        typer.echo(json.dumps(summary))


def _to_continue(checkpoint: Path | None, resume: str) -> str:
    """The checkpoint of an interrupted run, in words."""
    if checkpoint is None:
        return "no checkpoint was written (checkpoint.every_steps, checkpoint.every_epochs)"
    how = ", and the same command continues" if resume == "auto" else ""
    return f"the newest checkpoint is {checkpoint}{how}"
