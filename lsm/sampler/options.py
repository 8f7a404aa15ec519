"""How neighbours are chosen: the kinds of sampling and their options."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("neighbor", "labor", "ladies")
_MAX_DEPENDENCY = 2**30


@dataclass(frozen=True)
class Sampling:
    """How neighbours are chosen, for samplers and loaders; ``Sampling.of("labor")`` for short.

    kind: neighbor: every node draws its neighbours for itself; labor (LABOR-0, Balin and
        Catalyurek, 2023): every source node has one draw, and every node takes its neighbours of
        smallest draw, which reads fewer nodes and leaves each node's choice uniform. All ranks have
        the same draws, as if they sampled one batch together.
    layer_dependency: labor: one draw per source node for all hops, instead of one for each.
    batch_dependency: labor: the draws of 1/k of the nodes are renewed at each iteration, so that
        batches near each other share nodes, which a cache has. 1: all are renewed.
    debias: ladies: weights of edges whose expectation is the row-normalised adjacency (Chen et al.,
        2023). Without it, rows of weights add up to one, and their expectation is biased: towards
        nodes that are in the batch already, and, since nodes are drawn without replacement but
        weighted as if with, towards equal weights.

    ladies (Zou et al., 2019): ``num_neighbors`` are numbers of nodes: each hop samples so many for
    all nodes that it expands together, likelier the larger their column of the adjacency is, and
    takes the edges from these and from nodes that the batch has already. Edges have weights.
    """

    kind: str = "neighbor"
    layer_dependency: bool = False
    batch_dependency: int = 1
    debias: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind: expected one of {', '.join(KINDS)}, got {self.kind!r}")
        if type(self.batch_dependency) is not int or not (
            1 <= self.batch_dependency <= _MAX_DEPENDENCY
        ):
            raise ValueError(
                f"batch_dependency: expected 1 to 2^30 iterations, got {self.batch_dependency!r}"
            )
        for name, is_set, kind in (
            ("layer_dependency", self.layer_dependency, "labor"),
            ("batch_dependency", self.batch_dependency > 1, "labor"),
            ("debias", self.debias, "ladies"),
        ):
            if is_set and self.kind != kind:
                raise ValueError(
                    f"{name}: an option of kind {kind}, got kind {self.kind}; set the kind to "
                    f"{kind}, or leave {name} out"
                )

    @classmethod
    def of(cls, sampling: str | Sampling) -> Sampling:
        """``sampling``, or the kind of that name with default options."""
        return cls(sampling) if isinstance(sampling, str) else sampling
