"""Python scans no ids of a batch: torch only allocates and slices on the way from ids to rows."""

import pytest
from torch.utils._python_dispatch import TorchDispatchMode

from lsm.features.open import open_features
from lsm.storage.options import StorageOptions
from support.cached_features import batches, deliver, hot_scores, options
from support.gpu_twin import twin_opener

# Allocation, and views of the same memory.
CHEAP = {"empty", "view", "slice", "alias", "detach"}


class Operations(TorchDispatchMode):
    """Collects the names of torch's operations, in the thread that enters it."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, function, _types, args=(), kwargs=None):
        self.names.add(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


def operations_of(loader) -> set[str]:
    requests = batches(12)
    with loader, Operations() as seen:
        for _, _, rows in deliver(loader, requests):
            assert len(rows)
    return seen.names


@pytest.mark.parametrize("opener", [open_features, twin_opener(planner="host")])
@pytest.mark.parametrize("mode", ["none", "pool"])
def test_a_batch_through_a_cache(row_store, opener, mode):
    cache = options(victim={"mode": mode, "bytes": 2000}, score="none")
    loader = opener(row_store, cache, storage=StorageOptions(engine="posix"), scores=hot_scores())
    assert operations_of(loader) <= CHEAP


def test_a_batch_from_storage(row_store):
    loader = open_features(row_store, storage=StorageOptions(engine="posix"))
    assert operations_of(loader) <= CHEAP
