"""Options of embeddings: the section ``embed`` of a configuration."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from lsm.core.limits import LARGEST_COUNT
from lsm.core.option_types import AutoPositive, Described, Fraction, Positive
from lsm.core.section import Section
from lsm.embed.models.models import MODELS, EdgeModel, default_model, models_for, summaries

if TYPE_CHECKING:
    ModelName = str
else:
    ModelName = Literal[("auto", *MODELS)]
LossName = Literal["softmax", "logistic", "margin"]
RegularizerName = Literal["auto", "none", "n3", "l3"]

LARGEST_FUSED_DIM = 512
"""Longer rows would need tiles smaller than tensor cores accept, or more shared memory than a GPU
of compute capability 8.0 has."""


def _count_or_all(value: object) -> object:
    if value == "all" or (type(value) is int and 1 <= value <= LARGEST_COUNT):
        return value
    raise ValueError(f"expected all or an integer from 1 to {LARGEST_COUNT}, got {value!r}")


CountOrAll = Annotated[
    int | Literal["all"], BeforeValidator(_count_or_all), Described("all, or integer of at least 1")
]


class EmbedOptions(Section):
    """Model, loss and optimiser of embeddings, and their partitions."""

    section: ClassVar[str] = "embed"

    model: Annotated[
        ModelName,
        Field(
            description="Score of an edge. auto: dot for a graph without relations, else complex. "
            f"{summaries()}."
        ),
    ] = "auto"
    dim: Positive = 128
    """Floats of an embedding. complex and rotate take them for dim / 2 complex numbers: first all
    real parts, then all imaginary parts."""
    reciprocal: bool = True
    """A second embedding of each relation, for corrupted heads. false: heads and tails share one.
    Without relations it has no effect."""
    loss: LossName = "softmax"
    """Loss of an edge with one corrupted side, against its negatives. softmax: cross-entropy;
    logistic: binary cross-entropy of the edge plus its mean over the negatives; margin: mean over
    the negatives of the score short of embed.margin."""
    margin: Annotated[float, Field(gt=0)] = 1.0
    """margin: minimum distance between the scores of an edge and a negative. logistic, with transe
    and rotate: added to their scores, which are negative distances."""
    num_negatives: CountOrAll = 1000
    """Negatives of a chunk, for heads and for tails each. all: every resident node, once."""
    degree_fraction: Fraction = 0.0
    """Share of the negatives drawn in proportion to degree: as the ends of random edges of the
    batch, on the side that is corrupted. The others are drawn uniformly from the resident nodes."""
    chunk: Positive = 512
    """Edges of a batch that share negatives."""
    gpu_scores: Literal["stored", "fused"] = "stored"
    """Scores of negatives on a GPU. stored: kept in memory between torch's matrix products; fused:
    computed block by block in Triton kernels and never stored, for softmax with dot, distmult,
    complex or transe_l2 and an embed.dim of at most 512. fused is the faster one with
    train.precision=tf32, and the slower one without. The host ignores this option."""
    regularizer: RegularizerName = "auto"
    """Penalty of the embeddings of each edge, and so weighted by frequency. n3: cubed moduli of
    complex numbers (complex, rotate) or of floats; l3: cubed moduli of floats; auto: n3, and none
    for transe and rotate, whose scores do not grow with the embeddings."""
    regularizer_weight: Annotated[float, Field(ge=0)] = 0.04
    """Factor of the penalty, per edge and side."""
    optimizer: Literal["adagrad", "row_adagrad"] = "adagrad"
    """adagrad: a sum of squared gradients per float; row_adagrad: one per embedding, of mean
    squares."""
    lr: Annotated[float, Field(gt=0)] = 0.2
    """Learning rate. Gradients are sums over a batch, so it does not depend on train.batch_size."""
    eps: Annotated[float, Field(gt=0)] = 1e-10
    """Added to the square root of the sum of squares."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of floats set to 0 in head combined with relation, and in tail combined with relation.
    The others are divided by 1 - dropout."""
    init_scale: Annotated[float, Field(gt=0)] = 1e-3
    """Standard deviation of initial embeddings."""
    partitions: Positive = 1
    """Partitions of the nodes, at most 128. 1: all embeddings are in memory."""
    buffer: Annotated[int, Field(ge=3, le=LARGEST_COUNT)] = 3
    """Partitions in memory at once, in addition to one in flight. Ignored with one partition."""
    order: Literal["best", "legend", "beta", "random"] = "best"
    """Order in which partitions are loaded. best: fewest loads, each hidden by training."""
    rounds: AutoPositive = "auto"
    """Passes over the partitions in each epoch. With 2, every pass trains half of the edges of each
    pair of partitions, drawn anew every epoch. More rounds mix the edges better, which raises the
    quality, but move the partitions that many times. auto: enough rounds for each partition to come
    into memory 8 times an epoch, such as 4 for 8 partitions with 3 in memory. No effect when all
    partitions are in memory."""

    shift_scores: bool = True
    """From disk, with softmax: train with log((buffer - 1) / (partitions - 1)) added to the scores
    of nodes in the partition of the edge's other node. Those are in memory with each of that node's
    edges, others with few of them, so they are negatives too often. false lowers the quality. No
    effect when all partitions are in memory."""

    @model_validator(mode="after")
    def _has_complex_numbers(self) -> EmbedOptions:
        if self.is_complex and self.dim % 2:
            raise ValueError(
                f"embed.dim: expected an even number for embed.model={self.model}, got {self.dim}; "
                f"set embed.dim={self.dim + 1}"
            )
        return self

    @model_validator(mode="after")
    def _has_fused_kernels(self) -> EmbedOptions:
        if self.gpu_scores == "stored":
            return self
        remedy = "set embed.gpu_scores=stored"
        model = self._chosen
        if self.loss != "softmax" or (model is not None and not model.takes("fused")):
            raise ValueError(
                "embed.gpu_scores: fused is for embed.loss=softmax and embed.model one of "
                f"{', '.join(models_for('fused'))}, got {self.loss} and {self.model}; {remedy}"
            )
        if self.dim > LARGEST_FUSED_DIM:
            raise ValueError(
                f"embed.gpu_scores: fused is for an embed.dim of at most {LARGEST_FUSED_DIM}, got "
                f"{self.dim}; {remedy}"
            )
        return self

    def for_graph(self, num_relations: int) -> EmbedOptions:
        """Chooses the model, if it is auto.

        Args:
            num_relations: Relations of the graph; 0: edges have no type.

        Returns:
            The same options with the model that auto takes on such a graph.

        Raises:
            ValueError: The other options do not fit the model.
        """
        if self.model != "auto":
            return self
        return type(self)(**(self.model_dump() | {"model": default_model(num_relations)}))

    @property
    def _chosen(self) -> EdgeModel | None:
        """None for auto."""
        return None if self.model == "auto" else MODELS[self.model]

    @property
    def edge_model(self) -> EdgeModel:
        """The model, once :meth:`for_graph` has chosen."""
        model = self._chosen
        assert model is not None, "embed.model: auto was not chosen for a graph"
        return model

    @property
    def has_relations(self) -> bool:
        """True if the model scores relations."""
        return self._chosen is None or self._chosen.operator.has_relations

    @property
    def is_complex(self) -> bool:
        """True if an embedding is of complex numbers."""
        return self._chosen is not None and self._chosen.is_complex

    @property
    def is_distance(self) -> bool:
        """True if scores are negative distances."""
        return self._chosen is not None and self._chosen.comparator.is_distance

    @property
    def score_shift(self) -> float:
        """Added to all scores. Without it, logistic would rate every edge of a distance as less
        likely than not."""
        return self.margin if self.loss == "logistic" and self.is_distance else 0.0

    @property
    def partition_shift(self) -> float:
        """Added to the scores of entities in the partition of their query's entity.

        A bucket (a, b) meets the other partitions of the buffer at random, (a, a) too. So a buffer
        that has a query's partition is present for an entity of another partition
        ``(partitions - 1) / (buffer - 1)`` times as often, given their edge, as for one of the same
        partition. A softmax over a buffer's entities learns the log of that ratio with the scores,
        unless it is added to them.
        """
        if not self.shift_scores or self.loss != "softmax" or self.buffer >= self.partitions:
            return 0.0
        return math.log((self.buffer - 1) / (self.partitions - 1))

    @property
    def penalised(self) -> Literal["none", "floats", "moduli"]:
        """The numbers whose cubes are penalised: floats, or moduli of complex numbers."""
        if self.regularizer == "none" or (self.regularizer == "auto" and self.is_distance):
            return "none"
        if self.regularizer_weight == 0:
            return "none"
        return "moduli" if self.regularizer != "l3" and self.is_complex else "floats"

    @property
    def state_width(self) -> int:
        """Floats of optimiser state that follow each embedding."""
        return self.dim if self.optimizer == "adagrad" else 1

    @property
    def width(self) -> int:
        """Floats of a row: embedding, then optimiser state."""
        return self.dim + self.state_width

    def relation_rows(self, num_relations: int) -> int:
        """Counts the rows of the table of relations.

        With ``reciprocal``, row ``num_relations + r`` is of relation r for corrupted heads.

        Args:
            num_relations: Relations of the graph.

        Returns:
            Rows of the table.
        """
        return num_relations * (2 if self.reciprocal else 1)
