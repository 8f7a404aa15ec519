"""Arguments that loaders of nodes and of links share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lsm.core.arguments import flag, seconds, size, whole_number
from lsm.core.limits import MOST_THREADS
from lsm.features.row_source import RowSource
from lsm.loader.batch import Batch
from lsm.loader.dgl import to_item
from lsm.loader.rows_in_flight import RunAhead
from lsm.storage.read_ahead import ReadAhead


def run_ahead(
    prefetch: int | ReadAhead,
    staging_bytes: int | str,
    num_threads: int,
    timeout_secs: float,
    window_bytes: int | str | None,
) -> RunAhead:
    """The bounds of a pipeline. Raises ValueError for a number that is none of threads, of
    iterations, of bytes or of seconds."""
    whole_number("num_threads", num_threads, 1, MOST_THREADS)
    if not isinstance(prefetch, ReadAhead):
        prefetch = ReadAhead.fixed(whole_number("prefetch", prefetch, 1))
    staging = size("staging_bytes", staging_bytes)
    window = None if window_bytes is None else size("window_bytes", window_bytes)
    return RunAhead(prefetch, staging, num_threads, seconds("timeout_secs", timeout_secs), window)


def check_features(features: Any) -> None:
    """Raises TypeError for ``features`` that are neither None nor a source of rows."""
    if features is not None and not isinstance(features, RowSource):
        raise TypeError(
            "features: expected the result of lsm.open_features(store), got "
            f"{type(features).__name__}"
        )


def form_of(*, as_pyg: bool, as_dgl: bool) -> Callable[[Batch], Any] | None:
    """The form in which a loader gives its batches; None: as Batch. Raises ValueError for both."""
    as_pyg, as_dgl = flag("as_pyg", as_pyg), flag("as_dgl", as_dgl)
    if as_pyg and as_dgl:
        raise ValueError("as_dgl: expected False with as_pyg=True")
    if as_dgl:
        return to_item
    return Batch.to_pyg if as_pyg else None
