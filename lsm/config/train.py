"""Sections of the optimisation: training, and the evaluation of the model."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from lsm.core.limits import MOST_THREADS
from lsm.core.option_types import Fanouts, NonNegative, Positive, Seed
from lsm.core.section import Section


class EvalConfig(Section):
    """Sampled inference for validation and test."""

    section: ClassVar[str] = "train.eval"

    num_neighbors: Fanouts | None = None
    """Neighbours per hop for validation and test. null: as in sampler.num_neighbors, or 10 per hop
    with sampler.kind=ladies."""
    batch_size: Positive | None = None
    """Seeds per rank and batch for validation and test. null: train.batch_size."""


class TrainConfig(Section):
    """Optimisation of the network."""

    section: ClassVar[str] = "train"

    batch_size: Positive = 1024
    """Seeds per rank and iteration. The global batch is this times the world size."""
    epochs: Positive = 10
    """Passes over the training nodes."""
    seed: Seed = 0
    """Seed of initial weights, shuffling, sampling, dropout and everything else that is random."""
    lr: Annotated[float, Field(gt=0)] = 0.001
    """Learning rate of Adam."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """L2 penalty of Adam."""
    precision: Literal["fp32", "tf32", "bf16"] = "fp32"
    """Arithmetic of the model. tf32: a GPU multiplies float32 matrices with 10 bits of mantissa;
    bf16: autocast to bfloat16. Weights and sums stay float32."""
    compile: bool = False
    """Compile the model with torch.compile."""
    deterministic: bool = True
    """Have torch take algorithms that give the same sums, run after run. On a GPU that takes
    compute, and operations that have no such algorithm say so once."""
    num_threads: Annotated[int, Field(ge=0, le=MOST_THREADS)] = 0
    """Threads of torch per rank. 0: this machine's cores divided by its ranks."""
    eval_every: NonNegative = 1
    """Epochs between two validations. The last epoch is always validated. 0: only the last."""
    patience: NonNegative = 0
    """Number of validations without a higher accuracy after which training stops. 0: train all
    epochs."""
    select: Literal["best", "last"] = "best"
    """Model to test: that of the epoch with the best validation accuracy, or of the last epoch."""
    eval: EvalConfig = EvalConfig()
    """Sampled inference for validation and test."""
