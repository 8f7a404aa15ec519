"""Options of the network: the section ``model`` of a configuration."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from lsm.core.option_types import Positive
from lsm.core.section import Section

_OF_TYPES = ("rsage", "rgcn", "rgat", "hgt")
_WITH_HEADS = ("gat", "rgat", "hgt")


class ModelOptions(Section):
    """Architecture and widths of the network."""

    section: ClassVar[str] = "model"

    name: Literal["graphsage", "gcn", "gat", "rsage", "rgcn", "rgat", "hgt"] = "graphsage"
    """Architecture. Its layers are those of torch_geometric.nn. Of graphs with types: rsage, rgcn,
    rgat or hgt."""
    hidden_dim: Positive = 128
    """Width of every hidden layer. gat, rgat, hgt: of all heads together."""
    num_layers: Positive | None = None
    """Number of layers, equal to the number of hops in sampler.num_neighbors. null: that number."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Probability of dropping a hidden value during training. gat, rgat: of an attention weight
    too."""
    heads: Positive = 4
    """gat, rgat, hgt: attention heads. hidden_dim must be a multiple of it."""

    @property
    def takes_types(self) -> bool:
        """True for an architecture of graphs with types."""
        return self.name in _OF_TYPES

    @model_validator(mode="after")
    def _heads_divide_hidden_dim(self) -> ModelOptions:
        if self.name in _WITH_HEADS and self.hidden_dim % self.heads:
            raise ValueError(
                f"model.hidden_dim: expected a multiple of model.heads ({self.heads}), "
                f"got {self.hidden_dim}"
            )
        return self
