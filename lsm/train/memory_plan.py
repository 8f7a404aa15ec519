"""The facts behind a rank's budget of host memory, and the plan that follows from them."""

from __future__ import annotations

from dataclasses import dataclass, field

from lsm.config.schema import Config
from lsm.core.memory import Shape
from lsm.core.units import format_bytes, sum_in_words

EXACT = "exact evaluation"
"""Its term of a plan."""


@dataclass(frozen=True)
class Facts:
    """The measurements that the shares depend on, next to the configuration. Bytes are of one
    rank."""

    shape: Shape
    budget: int
    """memory.bytes, or the value of auto."""
    available: int
    """Free memory plus that of the process itself: the upper bound of auto."""
    process: int
    """Resident memory of interpreter and libraries."""
    libraries: int
    """The pages of files in it."""
    step: int
    """Memory of a step without its batch and the model."""
    model: int
    """Memory of the model with gradients and moments, without embeddings."""
    embeddings: int = 0
    """Tables of embeddings."""
    reads: int = 0
    """Buffers of reads in flight, for an engine that reads from storage."""
    exact: int = 0
    """Memory of an exact evaluation."""
    gpu_room: int = 0
    """GPU memory that a cache can take."""


@dataclass(frozen=True)
class MemoryPlan:
    """The configuration with a number for each ``auto`` of memory, and the sum behind it."""

    config: Config
    budget: int
    terms: dict[str, int]
    """Bytes by use."""
    window_bytes: int
    """Upper bound of the window's memory."""
    batch_bytes: int
    """Memory of one batch's rows."""
    libraries: int
    """As in Facts."""
    choice: str = ""
    """The choice, with its reason."""
    notes: tuple[str, ...] = field(default=())
    """Sizes that are smaller than requested."""
    problem: str | None = None
    """A sum above the budget, if the budget is an estimate, or above the free memory."""

    @property
    def total(self) -> int:
        return sum(self.terms.values())

    def in_words(self) -> str:
        """One line for a user."""
        return (
            f"memory: planned {format_bytes(self.total)} per rank of a budget of "
            f"{format_bytes(self.budget)}; {self.choice}"
        )

    def peak_in_words(self, peak: int) -> str:
        """One line for a user, after the run has taken ``peak`` bytes."""
        return (
            f"memory: peak {format_bytes(peak)} per rank (planned {format_bytes(self.total)} of a "
            f"budget of {format_bytes(self.budget)})"
        )

    def terms_in_words(self) -> str:
        """The sum with its terms."""
        return sum_in_words(self.terms)
