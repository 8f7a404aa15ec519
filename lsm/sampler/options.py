"""Options of neighbour sampling: the sections ``sampler`` and ``topology`` of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from lsm.core.option_types import Fanouts
from lsm.core.section import Section


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
    layer_dependency: bool = False
    """labor: one draw per neighbour for all hops, instead of one for each hop. Batches need fewer
    rows still."""
    batch_dependency: Annotated[int, Field(ge=1, le=2**30)] = 1
    """labor: iterations over which draws are renewed, a share of the nodes at each iteration.
    Batches near each other then share rows, which a cache keeps. 1: all draws are renewed at each
    iteration."""
    debias: bool = False
    """ladies: weight edges so that the expected aggregate is the mean over all neighbours. false:
    the weights of a node add up to one, and are biased, for one towards nodes that are in the batch
    already."""

    @model_validator(mode="after")
    def _has_options_of_its_kind(self) -> Sampling:
        for name, is_set, kind in (
            ("layer_dependency", self.layer_dependency, "labor"),
            ("batch_dependency", self.batch_dependency > 1, "labor"),
            ("debias", self.debias, "ladies"),
        ):
            if is_set and self.kind != kind:
                raise ValueError(
                    f"sampler.{name}: an option of kind {kind}, got kind {self.kind}; set the kind "
                    f"to {kind}, or leave {name} out"
                )
        return self

    @classmethod
    def of(cls, sampling: str | Sampling | Mapping[str, Any]) -> Sampling:
        """Returns the Sampling that an argument gives.

        Args:
            sampling: A Sampling, a dict of its fields, or a kind, which has then default options.

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

    @model_validator(mode="after")
    def _samples_nodes_with_ladies(self) -> SamplerOptions:
        if self.kind == "ladies" and min(self.num_neighbors) < 1:
            raise ValueError(
                "sampler.num_neighbors: expected at least 1 node per hop for sampler.kind=ladies, "
                f"got {min(self.num_neighbors)}; give the number of nodes to sample"
            )
        return self


class TopologyOptions(Section):
    """Placement of the graph structure."""

    section: ClassVar[str] = "topology"

    placement: Literal["auto", "host", "uva", "device"] = "auto"
    """Memory from which a job that trains on a GPU samples the graph. host: host threads sample;
    uva: the GPU samples from page-locked host memory; device: the GPU samples from its own memory;
    auto: device if the structure takes at most half of the free GPU memory, else uva. Batches are
    the same."""
