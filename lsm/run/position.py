"""The position of a run, which its checkpoint keeps."""

from __future__ import annotations

import math

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from lsm.run.totals import Totals


class Position(BaseModel):
    """The progress of training, without the trained parameters. Sums are over all ranks."""

    model_config = ConfigDict(extra="forbid")

    epoch: int = 0
    """Epoch that training continues, from 0."""
    iteration: int = 0
    """Its next iteration. Sums are those of the iterations before it, but for totals that are not
    read yet."""
    loss_sum: float = 0.0
    """Sum of the epoch's losses so far."""
    loss_count: int = 0
    """Number of those losses."""
    sums: dict[str, float] = Field(default_factory=dict)
    """Sums of the epoch's other totals so far, by name."""
    bytes_read: int = 0
    """Bytes read from storage since the run began."""
    bytes_written: int = 0
    """Bytes written to storage since the run began, without checkpoints."""
    seconds: float = 0.0
    """Time since the run began, over its restarts."""
    best_epoch: int = -1
    """Epoch of the best validation, from 1; -1 before the first validation."""
    best_score: float = Field(-1.0, validation_alias=AliasChoices("best_score", "best_mrr"))
    """Score of that validation."""
    worse_evaluations: int = 0
    """Validations since then."""
    num_plateaus: int = 0
    """Times that as many in a row were no better as train.plateau_patience says."""
    stopped_early: bool = False
    """True if as many were no better as train.patience allows."""

    def __str__(self) -> str:
        """The place for a reader: epochs count from 1, iterations from 0."""
        return f"epoch {self.epoch + 1}, iteration {self.iteration}"

    @property
    def best(self) -> float | None:
        """Score of the best validation; None before the first one."""
        return self.best_score if self.best_epoch >= 0 else None

    def is_better(self, score: float | None) -> bool:
        """True if ``score`` is higher than that of the best validation, or the first."""
        if score is None or math.isnan(score):
            return False
        return self.best_epoch < 0 or score > self.best_score

    def add(self, totals: Totals) -> None:
        """Adds the totals of an iteration, over all ranks."""
        self.loss_sum += totals.loss_sum
        self.loss_count += totals.loss_count
        self.bytes_read += totals.bytes_read
        for name, value in totals.others():
            self.sums[name] = self.sums.get(name, 0) + value

    def start_epoch(self, epoch: int) -> None:
        """Moves to the first iteration of ``epoch``."""
        self.epoch, self.iteration = epoch, 0
        self.loss_sum, self.loss_count, self.sums = 0.0, 0, {}
