"""Sections of the optimisation: training, and the evaluation of the model."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from lsm.core.imported import Arguments, known_or_imported
from lsm.core.limits import MOST_THREADS
from lsm.core.option_types import Described, Fanouts, NonNegative, Positive, Seed
from lsm.core.section import Section

_OPTIMIZER_NAMES = ("adam", "adamw", "sgd")
_OPTIMIZERS = Described(f"{', '.join(_OPTIMIZER_NAMES)}, or package.module:Class")
_LOSS_NAMES = ("cross_entropy", "bce", "mse", "mae")
_LOSSES = Described(f"{', '.join(_LOSS_NAMES)}, or package.module:function")

MetricName = Literal[
    "accuracy", "f1_micro", "f1_macro", "auroc", "average_precision", "rmse", "mae"
]


class EvalConfig(Section):
    """Inference for validation and test."""

    section: ClassVar[str] = "train.eval"

    num_neighbors: Fanouts | None = None
    """Neighbours per hop for validation and test. null: as in sampler.num_neighbors, or 10 per hop
    with sampler.kind=ladies."""
    batch_size: Positive | None = None
    """Seeds per rank and batch for validation and test. null: train.batch_size."""
    exact: bool = False
    """Take all neighbours, layer by layer from disk as `lsm predict` does, in place of sampled
    ones. num_neighbors and batch_size then have no effect."""


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
    """Learning rate."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """L2 penalty of adam and sgd; of adamw, the share of each weight that a step removes."""
    optimizer: Annotated[str, known_or_imported(_OPTIMIZERS, *_OPTIMIZER_NAMES), _OPTIMIZERS] = (
        "adam"
    )
    """Optimizer of torch. package.module:Class: another class of torch.optim.Optimizer, which gets
    lr and, if it takes it, weight_decay. Embeddings of types without features take SparseAdam in
    each case."""
    optimizer_args: Arguments = Field({})
    """Further arguments of the optimizer, such as {betas: [0.9, 0.99]}."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Momentum of sgd."""
    schedule: Literal["constant", "cosine", "step", "plateau"] = "constant"
    """Learning rate over time. cosine: falls to 0 over all epochs; step: times step_factor every
    step_epochs epochs; plateau: times step_factor after every plateau_patience validations in a row
    without a better result."""
    warmup_iterations: NonNegative = 0
    """Iterations over which the learning rate rises from 0 to lr at the start."""
    step_epochs: Positive = 10
    """Epochs between two steps of schedule step."""
    step_factor: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Factor of each step of schedules step and plateau."""
    plateau_patience: Positive = 5
    """Validations without a better result before each step of schedule plateau."""
    accumulate: Positive = 1
    """Iterations per optimiser step; the last step of an epoch may have fewer. Its gradient is that
    of the mean over all of their seeds, its learning rate that of the last iteration."""
    clip_norm: Annotated[float, Field(gt=0)] | None = None
    """Largest norm of all gradients together; larger ones are scaled down to it. Embeddings of
    types without features do not count. null: no limit."""
    loss: Annotated[str, known_or_imported(_LOSSES, *_LOSS_NAMES), _LOSSES] = "cross_entropy"
    """Loss of training. cross_entropy: of a class of each node; bce: of several labels of 0 or 1;
    mse, mae: of numbers. package.module:function: a function of outputs and labels that returns the
    mean over seeds, or the loss of each."""
    metrics: Annotated[list[MetricName], Field(min_length=1)] | None = None
    """Metrics of validation and test, some also of training. The first one selects the best model.
    null: the one that suits the loss, which is accuracy, f1_micro, rmse or mae."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of each target that is spread over all classes, in the loss of training."""
    class_weights: Literal["none", "balanced"] = "none"
    """Weights of the classes in the loss of training. balanced: inversely proportional to the
    training nodes of a class, 1 on average over these nodes."""
    precision: Literal["fp32", "tf32", "bf16"] = "fp32"
    """Arithmetic of the model. tf32: a GPU multiplies float32 matrices with 10 bits of mantissa;
    bf16: autocast to bfloat16. Weights and sums stay float32."""
    compile: bool = False
    """Compile the model with torch.compile."""
    deterministic: bool = True
    """Use torch's deterministic algorithms. Slower on a GPU; operations without one warn once."""
    num_threads: Annotated[int, Field(ge=0, le=MOST_THREADS)] = 0
    """Threads of torch per rank. 0: this machine's cores divided by its ranks."""
    eval_every: NonNegative = 1
    """Epochs between two validations. The last epoch is always validated. 0: only the last."""
    patience: NonNegative = 0
    """Number of validations without a better result, by the first of train.metrics, after which
    training stops. 0: train all epochs."""
    select: Literal["best", "last"] = "best"
    """Model to test: that of the epoch with the best validation, by the first of train.metrics, or
    of the last epoch."""
    task: Literal["node", "link"] = "node"
    """Task to learn. node: the labels of each node; link: which nodes have an edge, by the section
    links."""
    eval: EvalConfig = EvalConfig()
    """Inference for validation and test."""

    @model_validator(mode="after")
    def _other_tasks_take_nothing_of_nodes(self) -> TrainConfig:
        for name in ("loss", "metrics", "label_smoothing", "class_weights"):
            unset = type(self).model_fields[name].default
            if self.task != "node" and getattr(self, name) != unset:
                raise ValueError(
                    f"train.{name}: expected {'null' if unset is None else unset} with "
                    f"train.task={self.task}, got {getattr(self, name)}; it is for node, and link "
                    "has the loss links.loss, and MRR and Hits as metrics"
                )
        return self

    @model_validator(mode="after")
    def _classes_are_of_cross_entropy(self) -> TrainConfig:
        for name, unset in (("label_smoothing", 0.0), ("class_weights", "none")):
            if self.loss != "cross_entropy" and getattr(self, name) != unset:
                raise ValueError(
                    f"train.{name}: expected {unset} with train.loss={self.loss}, got "
                    f"{getattr(self, name)}; it is for cross_entropy"
                )
        return self
