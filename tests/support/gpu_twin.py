"""Feature loaders whose cache is memory of a GPU that the host stands for."""

from lsm.core.device import GpuPlace
from lsm.features import builders
from lsm.features.open import open_features
from lsm.features.tiers_gpu import GpuOptions


def open_twin(
    store,
    cache,
    storage=None,
    share=None,
    *,
    scores=None,
    gpu=None,
    idle_bytes=512 << 20,
    num_threads=1,
):
    """open_features() with the twin of a cache in GPU memory."""
    opening = builders.Opening(
        store,
        storage,
        GpuPlace.twin(),
        gpu=gpu or GpuOptions(),
        scores=scores,
        share=share,
        idle_bytes=idle_bytes,
        num_threads=num_threads,
    )
    return builders.cached(opening, cache.resolved())


def twin_opener(**gpu):
    """open_features(), with the twin of a cache in GPU memory where there is a cache. ``gpu``:
    fields of GpuOptions."""

    def open_either(store, cache=None, storage=None, share=None, device="cpu", **more):
        if cache is None:
            return open_features(store, cache, storage, share, device, **more)
        return open_twin(store, cache, storage, share, **more | {"gpu": GpuOptions(**gpu)})

    return open_either
