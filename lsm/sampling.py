"""How neighbours are chosen: the kinds of sampling and their options."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("neighbor", "labor")
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
    """

    kind: str = "neighbor"
    layer_dependency: bool = False
    batch_dependency: int = 1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind: expected one of {', '.join(KINDS)}, got {self.kind!r}")
        if type(self.batch_dependency) is not int or not (
            1 <= self.batch_dependency <= _MAX_DEPENDENCY
        ):
            raise ValueError(
                f"batch_dependency: expected 1 to 2^30 iterations, got {self.batch_dependency!r}"
            )
        for name, is_set in (
            ("layer_dependency", self.layer_dependency),
            ("batch_dependency", self.batch_dependency > 1),
        ):
            if is_set and self.kind != "labor":
                raise ValueError(
                    f"{name}: kind {self.kind} has no draws to share; set the kind to labor, or "
                    f"leave {name} out"
                )

    @classmethod
    def of(cls, sampling: str | Sampling) -> Sampling:
        """``sampling``, or the kind of that name with default options."""
        return cls(sampling) if isinstance(sampling, str) else sampling
