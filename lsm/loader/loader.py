"""The iterator over batches: seeds, their samples and rows, composed by a pipeline."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from typing import Any, Never, Self

from lsm.core.arguments import whole_number
from lsm.core.limits import LARGEST_COUNT
from lsm.features.sets import Features
from lsm.loader.batch import Batch, used_in_stream
from lsm.loader.parts import LoaderParts
from lsm.loader.pipeline import Pipeline
from lsm.loader.prepared import Prepared
from lsm.loader.rows_in_flight import RunAhead


class Loader:
    """Iterates over an epoch of Batches, which background threads prepare ahead of the consumer.

    It knows neither nodes nor links: ``parts.seeds`` says which come when, and ``parts.batches``
    draws their neighbourhood and makes a batch of it.

    Args:
        parts: The seeds and the batches.
        features: Source of rows.
        policy: Bounds on the work ahead of the consumer.
        owns_features: Close ``features`` with the loader.
        form: Iterate over its results for the batches; None: over the batches themselves.
    """

    def __init__(
        self,
        parts: LoaderParts,
        features: Features,
        policy: RunAhead,
        *,
        owns_features: bool = False,
        form: Callable[[Batch], Any] | None = None,
    ) -> None:
        self.parts = parts
        """The seeds, the sampler and the batches."""
        self.features = features
        """Source of rows."""
        self._policy = policy
        self._owns_features, self._form = owns_features, form
        self._epoch = 0
        self._totals: dict[str, float] = {"batches": 0, "sampled_nodes": 0, "sampled_edges": 0}
        self._totals |= {"sample_secs": 0.0, "wait_secs": 0.0}

    def __repr__(self) -> str:
        told = f"{self.parts.description}, iterations={len(self)}, {self.features!r}"
        return f"{type(self).__name__}({told})"

    def __reduce__(self) -> Never:
        raise TypeError(
            f"a {type(self).__name__} stays in the process that opened it, with its threads and "
            "its engine; open one in the other process: a GraphStore, or its path, can be sent"
        )

    def __len__(self) -> int:
        """Iterations per epoch, the same on every rank."""
        return self.parts.seeds.num_iterations

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next ``for batch in loader``. Later loops continue from there.

        Args:
            epoch: Epoch, from 0.

        Raises:
            ValueError: ``epoch`` is no whole number from 0 on.
        """
        self._epoch = _checked_epoch(epoch)

    def __iter__(self) -> Generator[Any, None, None]:
        """Iterates over the batches of the next epoch, from 0 on: Batches, or their ``form``."""
        epoch, self._epoch = self._epoch, self._epoch + 1
        batches = self.iterate(epoch)
        form = self._form
        return batches if form is None else (form(batch) for batch in batches)

    def close(self) -> None:
        """Closes the feature loader if this loader opened it."""
        if self._owns_features:
            self.features.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def iterate(self, epoch: int, start_iteration: int = 0) -> Generator[Batch, None, None]:
        """Iterates over the batches of an epoch: those of an uninterrupted run.

        The iterator raises the errors of background threads. It blocks until a batch is ready.

        Args:
            epoch: Epoch, from 0.
            start_iteration: First iteration.

        Returns:
            An iterator over the batches of ``epoch`` from ``start_iteration`` on.

        Raises:
            OSError: A read failed.
            TimeoutError: A batch is not ready in time.
            ValueError: The topology is corrupt, or an argument is out of range.
        """
        first = whole_number("start_iteration", start_iteration, 0, len(self))
        return self._batches(self.parts.seeds.epoch(_checked_epoch(epoch)), first)

    def global_batch_size(self, iteration: int) -> int:
        """Counts the seeds of an iteration.

        Args:
            iteration: Iteration of the epoch, from 0.

        Returns:
            Its seeds, over all ranks.
        """
        return self.parts.seeds.global_count(iteration)

    def stats(self) -> dict[str, int | float]:
        """Returns the counters since construction.

        Returns:
            batches, sampled_nodes, sampled_edges, sample_secs (seconds of all sampling threads),
            wait_secs (seconds that the consumer waited for batches), and those of ``features``.
        """
        return self._totals | self.features.stats()

    def _batches(
        self, seeds_at: Callable[[int], Any], start_iteration: int
    ) -> Generator[Batch, None, None]:
        # Created here, at the first next(), so that an unused iterator starts no threads.
        pipeline = Pipeline(
            seeds_at,
            self.parts.batches.sample,
            self.features,
            first=start_iteration,
            last=len(self),
            policy=self._policy,
        )
        try:
            batches = iter(pipeline)
            while (batch := self._next_batch(batches)) is not None:
                yield batch
                del batch  # the consumer may free its memory while the next one is awaited
        finally:
            pipeline.close()

    def _next_batch(self, pipeline: Iterator[Prepared]) -> Batch | None:
        totals, start = self._totals, time.perf_counter()
        prepared = next(pipeline, None)
        totals["wait_secs"] += time.perf_counter() - start
        if prepared is None:
            return None
        batch = self.parts.batches.make(prepared.seeds, prepared.sample, prepared.x, prepared.stats)
        batch = used_in_stream(batch)
        totals["batches"] += 1
        totals["sampled_nodes"] += batch.num_nodes
        totals["sampled_edges"] += batch.num_edges
        totals["sample_secs"] += prepared.stats["sample_secs"]
        return batch


def _checked_epoch(epoch: int) -> int:
    return whole_number("epoch", epoch, 0, LARGEST_COUNT)
