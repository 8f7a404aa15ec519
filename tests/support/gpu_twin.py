"""Feature loaders whose cache is memory of a GPU that the host stands for."""

from lsm.features.open import TWIN, open_features
from lsm.features.tiers_gpu import GpuOptions


def twin_opener(**gpu):
    """open_features(), with the twin of a cache in GPU memory where there is a cache. ``gpu``:
    fields of GpuOptions."""

    def open_twin(store, cache=None, *arguments, **more):
        if cache is not None:
            more |= {"device": TWIN, "gpu": GpuOptions(**gpu)}
        return open_features(store, cache, *arguments, **more)

    return open_twin
