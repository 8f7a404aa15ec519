"""Options of the network: the section ``model`` of a configuration."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from lsm.core.imported import Arguments, is_imported, known_or_imported
from lsm.core.option_types import Described, Positive
from lsm.core.section import Section

_OF_ONE_TYPE = ("graphsage", "gcn", "gat")
_OF_TYPES = ("rsage", "rgcn", "rgat", "hgt")
_WITH_HEADS = ("gat", "rgat", "hgt")

_NETWORKS = Described(f"{', '.join((*_OF_ONE_TYPE, *_OF_TYPES))}, or package.module:Class")


class ModelOptions(Section):
    """Architecture and widths of the network."""

    section: ClassVar[str] = "model"

    name: Annotated[str, known_or_imported(_NETWORKS, *_OF_ONE_TYPE, *_OF_TYPES), _NETWORKS] = (
        "graphsage"
    )
    """Architecture. Its layers are those of torch_geometric.nn. Of graphs with types: rsage, rgcn,
    rgat or hgt. package.module:Class: a class of your own, or of PyG."""
    args: Arguments = Field({})
    """Arguments of the class that package.module:Class names."""
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

    @property
    def is_own(self) -> bool:
        """True for a class that the user names."""
        return is_imported(self.name)

    @model_validator(mode="after")
    def _arguments_are_of_own_classes(self) -> ModelOptions:
        if self.args and not self.is_own:
            raise ValueError(
                f"model.args: expected none with model.name={self.name}, got {self.args}; set "
                "model.name=package.module:Class, such as torch_geometric.nn:GIN"
            )
        if self.is_own and self.heads != type(self).model_fields["heads"].default:
            raise ValueError(f"model.heads: {self.name} does not take it; set model.args.heads")
        return self

    @model_validator(mode="after")
    def _heads_divide_hidden_dim(self) -> ModelOptions:
        if self.name in _WITH_HEADS and self.hidden_dim % self.heads:
            raise ValueError(
                f"model.hidden_dim: expected a multiple of model.heads ({self.heads}), "
                f"got {self.hidden_dim}"
            )
        return self
