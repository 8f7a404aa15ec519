"""A training from the command line: its summary, and the checkpoint that Ctrl-C leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from lsm.distributed.environment import rank_in


def train_to_summary(
    fit: Callable[[Any], dict[str, Any]], settings: Any, checkpoints: Callable[[], list[Path]]
) -> None:
    """Trains with ``fit(settings)`` and prints the summary on rank 0.

    Args:
        fit: The training.
        settings: Its configuration.
        checkpoints: Lists those of the run in their order, for the line of Ctrl-C.
    """
    try:
        summary = fit(settings)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_to_continue(checkpoints(), settings.checkpoint.resume)) from None
    if rank_in() in (None, 0):
        typer.echo(json.dumps(summary))


def _to_continue(checkpoints: list[Path], resume: str) -> str:
    """The newest checkpoint of an interrupted run, in words."""
    if not checkpoints:
        return "no checkpoint was written (checkpoint.every_steps, checkpoint.every_epochs)"
    how = ", and the same command continues" if resume == "auto" else ""
    return f"the newest checkpoint is {checkpoints[-1]}{how}"
