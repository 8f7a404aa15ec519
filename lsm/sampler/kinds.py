"""Kinds of sampling, each with its options."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from lsm.core.section import Section

if TYPE_CHECKING:
    from lsm import native


class Kind(Section, ABC):
    """A kind of sampling."""

    section: ClassVar[str] = "sampler"

    needs_weights: ClassVar[bool] = False
    """True if edges of its batches have weights."""
    takes_weights: ClassVar[bool] = True
    """True if it can draw in proportion to the weights of a store."""
    excludes_edges: ClassVar[bool] = True
    """True if it can leave given edges out of a batch, as links need."""

    @abstractmethod
    def native(self) -> native.NeighborSampling | native.LaborSampling | native.LadiesSampling:
        """The kind for native samplers."""

    def eval_default(self, num_neighbors: list[int]) -> list[int]:
        """Neighbours per hop of validation and test, by neighbor, if training samples
        ``num_neighbors`` by this kind."""
        return num_neighbors

    def check(self, num_neighbors: Sequence[int]) -> None:
        """Raises ValueError if ``num_neighbors`` does not suit the kind."""


class Neighbor(Kind):
    """Each node draws its neighbours independently."""

    def native(self) -> native.NeighborSampling:
        from lsm import native  # a configuration is read without it

        return native.NeighborSampling()


class Labor(Kind):
    """LABOR-0 (Balin and Catalyurek, 2023): every node takes its neighbours of smallest draw."""

    takes_weights: ClassVar[bool] = False

    layer_dependency: bool = False
    """labor: one draw per neighbour for all hops, instead of one for each hop. Batches need fewer
    rows still."""
    batch_dependency: Annotated[int, Field(ge=1, le=2**30)] = 1
    """labor: iterations over which draws are renewed, a share of the nodes at each iteration.
    Batches near each other then share rows, which a cache keeps. 1: all draws are renewed at each
    iteration."""

    def native(self) -> native.LaborSampling:
        from lsm import native  # a configuration is read without it

        return native.LaborSampling(self.layer_dependency, self.batch_dependency)


class Ladies(Kind):
    """LADIES (Zou et al., 2019): a hop samples nodes for all of its nodes together."""

    needs_weights: ClassVar[bool] = True
    takes_weights: ClassVar[bool] = False
    excludes_edges: ClassVar[bool] = False

    debias: bool = False
    """ladies: weight edges so that the expected aggregate is the mean over all neighbours. false:
    the weights of a node add up to one, and are biased, such as towards nodes that are in the batch
    already."""

    def native(self) -> native.LadiesSampling:
        from lsm import native  # a configuration is read without it

        return native.LadiesSampling(self.debias)

    def eval_default(self, num_neighbors: list[int]) -> list[int]:
        """10 per hop: ``num_neighbors`` are those of a whole hop."""
        return [10] * len(num_neighbors)

    def check(self, num_neighbors: Sequence[int]) -> None:
        if min(num_neighbors) < 1:
            raise ValueError(
                "sampler.num_neighbors: expected at least 1 node per hop for sampler.kind=ladies, "
                f"got {min(num_neighbors)}; give the number of nodes to sample"
            )


KINDS: Mapping[str, type[Neighbor] | type[Labor] | type[Ladies]] = {
    "neighbor": Neighbor,
    "labor": Labor,
    "ladies": Ladies,
}
"""Kinds by their names in sampler.kind."""
