"""Memory of the batches that a loader prepares ahead of training."""

from __future__ import annotations

from lsm.cache.memory import WINDOW_ID_BYTES
from lsm.core.memory import HEADROOM, Shape, Terms
from lsm.core.option_types import settled
from lsm.features.cached import COMPLETED_AHEAD
from lsm.features.memory import idle_bytes
from lsm.loader.options import LoaderOptions
from lsm.sampler.memory import graph_bytes, packed_bytes

STAGING_BYTES = 256 << 20
"""loader.staging_bytes=auto for a GPU, and the least for the host if a sixteenth of the budget is
as much."""

_AHEAD = 4  # iterations, where the disk does not decide


def staging(options: LoaderOptions, shape: Shape, budget: int) -> int:
    """``loader.staging_bytes``, or the value of auto in a ``budget`` of host memory."""
    if options.staging_bytes != "auto":
        return options.staging_bytes
    if shape.on_gpu:
        return STAGING_BYTES
    few = min(_AHEAD * shape.rows_bytes, budget // 8)
    return max(1, few, min(STAGING_BYTES, budget // 16))


def staged_bytes(options: LoaderOptions, shape: Shape) -> int:
    """Most memory of rows in flight: at least one batch, whatever the staging memory."""
    most = max(options.max_prefetch, _ahead(options)) * shape.rows_bytes
    return max(shape.rows_bytes, min(settled(options.staging_bytes), most))


def terms(options: LoaderOptions, shape: Shape) -> Terms:
    """Rows in flight. A GPU has the whole staging memory at once; the idle blocks of the
    page-locked pool count as well, since it holds rows from storage only."""
    staging_bytes = settled(options.staging_bytes)
    staged = int(HEADROOM * staged_bytes(options, shape))
    idle = idle_bytes(shape.rows_bytes, staging_bytes) if shape.on_gpu else 0
    return Terms(
        {"staging": staged + idle},
        {"rows of batches ahead (loader.staging_bytes)": staging_bytes},
    )


def uncached_batches(options: LoaderOptions, shape: Shape) -> int:
    """The batch that trains, and the graphs of those read ahead."""
    graphs = 2 + 2 * (_ahead(options) + options.num_threads)
    return int(HEADROOM * (shape.rows_bytes + graphs * graph_bytes(shape.batch)))


def cached_batches(options: LoaderOptions, shape: Shape, num_open: int) -> int:
    """Over a cache: the batch in training, complete batches, ``num_open`` batches that rows of the
    victim buffer enter, and packed graphs before the window."""
    complete = 1 + COMPLETED_AHEAD + 1
    on_host = 0 if shape.on_gpu else (complete + num_open) * shape.rows_bytes
    graphs = complete * graph_bytes(shape.batch)
    graphs += (_ahead(options) + options.num_threads) * window_bytes(shape)
    return int(HEADROOM * (on_host + graphs))


def window_bytes(shape: Shape) -> int:
    """Memory of an iteration in the window: its packed graph, and a planner's metadata of its
    ids."""
    return packed_bytes(shape.batch) + WINDOW_ID_BYTES * shape.batch.nodes


def _ahead(options: LoaderOptions) -> int:
    return _AHEAD if options.prefetch == "auto" else options.prefetch
