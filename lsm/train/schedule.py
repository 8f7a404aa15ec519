"""Optimiser steps and their learning rates: a function of the iteration and of the plateaus before
it, which the position of a run counts, so that a resumed run needs no other state."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import assert_never

from lsm.config.train import TrainConfig


def depends_on_epochs(options: TrainConfig) -> bool:
    """True if the rates of a schedule depend on the number of all epochs."""
    return options.schedule == "cosine"


def follows_plateaus(options: TrainConfig) -> bool:
    """True if the rates of a schedule depend on validations."""
    return options.schedule == "plateau"


@dataclass(frozen=True)
class Schedule:
    """The optimiser steps of an epoch, and the learning rate of each iteration, as a share of
    ``train.lr``. A step has the rate of its last iteration.

    options: with the kind of schedule. epoch_iterations: iterations of an epoch.
    """

    options: TrainConfig
    epoch_iterations: int

    @property
    def is_constant(self) -> bool:
        """True if the rate never changes."""
        return self.options.schedule == "constant" and self.options.warmup_iterations == 0

    def step_of(self, iteration: int) -> range:
        """The iterations of the epoch whose gradients make one step: those of ``iteration``'s."""
        count = self.options.accumulate
        first = iteration - iteration % count
        return range(first, min(first + count, self.epoch_iterations))

    def share(self, iteration: int, num_plateaus: int = 0) -> float:
        """The share at ``iteration``, counted from 0 over all epochs, after ``num_plateaus``."""
        options, warmup = self.options, self.options.warmup_iterations
        if iteration < warmup:
            return (iteration + 1) / warmup
        match options.schedule:
            case "constant":
                return 1.0
            case "cosine":
                rest = max(1, options.epochs * self.epoch_iterations - warmup)
                return (1 + math.cos(math.pi * min(1.0, (iteration - warmup) / rest))) / 2
            case "step":
                num_steps = iteration // (options.step_epochs * self.epoch_iterations)
                return options.step_factor**num_steps
            case "plateau":
                return options.step_factor**num_plateaus
            case unknown:
                assert_never(unknown)
