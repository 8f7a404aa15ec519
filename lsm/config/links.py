"""Section of link prediction: ``links``."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from lsm.core.imported import Arguments, is_imported, known_or_imported
from lsm.core.option_types import Described, Positive
from lsm.core.section import Section

_KNOWN = ("dot", "distmult", "mlp")
_SCORERS = Described(f"{', '.join(_KNOWN)}, or package.module:Class")

CORRECTED = ("inbatch", "resident")
"""Negatives that are drawn as often as links end at them; the loss is corrected for that."""


class LinksConfig(Section):
    """Link prediction, with train.task=link."""

    section: ClassVar[str] = "links"

    negatives: Literal["uniform", "degree", "joint", "inbatch", "resident"] = "joint"
    """Destinations that a link is trained against. uniform: each link draws its own; degree: its
    own, in proportion to the links of a node; joint: all links of a batch share them, so that fewer
    rows are read; inbatch: the destinations of the batch's other links, corrected for how often
    they are drawn; resident: as joint, but drawn from the destinations of links of nearby
    iterations, whose rows a cache holds, and corrected as inbatch."""
    num_negatives: Positive = 64
    """Negatives of a link; of joint and resident, of a batch. inbatch ignores it."""
    resident_iterations: Positive = 8
    """Iterations in a group. Resident negatives are destinations of this rank's links in the group
    of the batch."""
    scorer: Annotated[str, known_or_imported(_SCORERS, *_KNOWN), _SCORERS] = "dot"
    """Score of two rows. dot, distmult: the same in both directions; mlp: a hidden layer, which
    tells source and destination apart. package.module:Class: a module of your own, called with the
    rows of sources and of destinations, [n, width] each, for scores [n]."""
    scorer_args: Arguments = Field({})
    """Arguments of the class that links.scorer=package.module:Class names."""
    loss: Literal["infonce", "bce", "bpr"] = "infonce"
    """infonce: cross entropy of a link among its negatives; bce: binary cross entropy; bpr: of the
    differences to its negatives. inbatch and resident take infonce."""
    out_dim: Positive | None = None
    """Width of the rows that are scored. null: model.hidden_dim."""
    exclude_seed_edges: bool = True
    """A batch samples none of its own links, nor their reverses. false: the network sees the links
    that it is to predict."""
    eval_candidates: Positive = 1000
    """Destinations that each link's own is ranked among in validation and test, drawn once, unless
    data.links holds given ones. All nodes if there are no more."""
    filtered: bool = True
    """Leave known links out of drawn candidates."""

    @model_validator(mode="after")
    def _arguments_are_of_own_classes(self) -> LinksConfig:
        if self.scorer_args and not is_imported(self.scorer):
            raise ValueError(
                f"links.scorer_args: expected none with links.scorer={self.scorer}, got "
                f"{self.scorer_args}; set links.scorer=package.module:Class"
            )
        return self

    @model_validator(mode="after")
    def _loss_suits_the_negatives(self) -> LinksConfig:
        if self.negatives in CORRECTED and self.loss != "infonce":
            raise ValueError(
                f"links.loss: expected infonce with links.negatives={self.negatives}, got "
                f"{self.loss}"
            )
        return self
