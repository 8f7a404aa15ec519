"""Options of neighbour sampling: the sections ``sampler`` and ``topology`` of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from lsm.core.option_types import Fanouts
from lsm.core.section import Section
from lsm.sampler.kinds import KINDS, Kind


def _option(kind: str, name: str) -> Any:
    """The field of an option of a kind, for a section that has those of all kinds."""
    return copy(KINDS[kind].model_fields[name])


class Sampling(Section):
    """The method that draws neighbours; ``Sampling.of("labor")`` for short.

    labor is LABOR-0 (Balin and Catalyurek, 2023). All ranks have the same draws, as if they sampled
    one batch together. ladies (Zou et al., 2019) samples the nodes of a hop with probabilities
    proportional to their columns of the adjacency, and takes the edges from these nodes and from
    nodes that are in the batch already. With ``debias`` the expected weights of edges are the
    row-normalised adjacency (Chen et al., 2023). Without it, rows of weights add up to one and are
    biased: towards nodes that are in the batch already, and towards equal weights, because nodes
    are drawn without replacement and weighted as if drawn with it.
    """

    section: ClassVar[str] = "sampler"

    kind: Literal["neighbor", "labor", "ladies"] = "neighbor"
    """How neighbours are chosen for training; validation and test use neighbor. neighbor: each node
    draws its neighbours independently. labor: each neighbour has one draw, and every node takes its
    neighbours of smallest draw; a batch then needs fewer rows, and a node's neighbours stay equally
    likely. ladies: each hop samples nodes for all of its nodes together, likelier where they matter
    to more of them, and edges have weights."""
    layer_dependency: bool = _option("labor", "layer_dependency")
    batch_dependency: int = _option("labor", "batch_dependency")
    debias: bool = _option("ladies", "debias")

    @model_validator(mode="after")
    def _has_options_of_its_kind(self) -> Sampling:
        for kind, options in KINDS.items():
            for name, field in options.model_fields.items():
                if self.kind != kind and getattr(self, name) != field.default:
                    raise ValueError(
                        f"sampler.{name}: an option of kind {kind}, got kind {self.kind}; set the "
                        f"kind to {kind}, or leave {name} out"
                    )
        return self

    @property
    def chosen(self) -> Kind:
        """The kind with its options."""
        kind = KINDS[self.kind]
        return kind(**{name: getattr(self, name) for name in kind.model_fields})

    @classmethod
    def of(cls, sampling: str | Sampling | Mapping[str, Any]) -> Sampling:
        """Returns the Sampling that an argument gives.

        Args:
            sampling: A Sampling, a dict of its fields, or a kind, which then has default options.

        Returns:
            The Sampling.

        Raises:
            ValueError: A value is wrong; the error names the full key.
            TypeError: A field is unknown, or ``sampling`` is of another type.
        """
        given = {"kind": sampling} if isinstance(sampling, str) else sampling
        return Sampling.of_argument("sampling", given) or Sampling()


class SamplerOptions(Sampling):
    """Neighbour sampling."""

    num_neighbors: Fanouts = Field([10, 5])
    """Neighbours sampled per node at each hop, the seeds' hop first. -1: all. ladies: nodes sampled
    per hop, for all nodes of the hop together."""
    edge_types: dict[str, Fanouts] = Field({})
    """Neighbours per hop by edge type, in place of num_neighbors:
    {"paper,cites,paper": [10, 5]}. Types that are not named take num_neighbors; 0 leaves a type
    out."""
    disjoint: bool = False
    """Give each seed a subgraph of its own."""
    time_attr: Literal["time"] | None = None
    """time: a seed has no neighbour that is later than itself, by the times of edges, or else of
    their sources. Subgraphs are then disjoint. Validation and test do the same."""
    temporal_strategy: Literal["uniform", "last"] = "uniform"
    """With times: uniform takes any such neighbours, last the latest."""
    weight_attr: Literal["edge_weight"] | None = None
    """edge_weight: draw neighbours in proportion to the weights of their edges."""

    @model_validator(mode="after")
    def _suits_its_kind(self) -> SamplerOptions:
        self.chosen.check(self.num_neighbors)
        for name, hops in self.edge_types.items():
            if len(hops) != len(self.num_neighbors):
                raise ValueError(
                    f"sampler.edge_types: {name}: expected {len(self.num_neighbors)} hops as in "
                    f"sampler.num_neighbors, got {len(hops)}"
                )
        return self


class TopologyOptions(Section):
    """Placement of the graph structure."""

    section: ClassVar[str] = "topology"

    placement: Literal["auto", "host", "uva", "device"] = "auto"
    """Memory from which a job that trains on a GPU samples the graph. host: host threads sample;
    uva: the GPU samples from page-locked host memory; device: the GPU samples from its own memory;
    auto: device if the structure takes at most half of the free GPU memory, else uva. Batches are
    the same. With train.task=link the host samples."""
