"""Fixtures for tests of several rooms."""

import gc
import signal
import tarfile

import pytest

from lsm.core.device import use_all_connections
from support.comm_ranks import Ranks
from support.mounts import mount_memory, unmount
from support.training import REPOSITORY, make_store

use_all_connections()  # as in training, before anything of CUDA starts


def pytest_collection_finish():
    """Exempts libraries and tests from garbage collections. Every training collects, which took
    0.4 s with them."""
    gc.freeze()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """The path of a small store that can be learnt."""
    return make_store(tmp_path_factory.mktemp("store") / "store")


@pytest.fixture(scope="session")
def carried_graph(tmp_path_factory):
    """The folder of arrays of the graph that the repository carries."""
    archive = REPOSITORY / "tests/datasets/amazon-computers/amazon-computers.tar.gz"
    assert archive.stat().st_size <= 4 << 20
    folder = tmp_path_factory.mktemp("carried")
    with tarfile.open(archive) as files:
        # Python before 3.11.4 has no filters, and ignores this.
        files.extraction_filter = getattr(tarfile, "data_filter", None)
        files.extractall(folder)
    return folder / "amazon-computers"


@pytest.fixture
def kept_handlers():
    """Restores the signal handlers: after Stopped, signals stay requests in the process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def disk(tmp_path):
    """A file system of 8 MiB."""
    mount_point = tmp_path / "disk"
    mount_memory(mount_point, "8m")
    yield mount_point
    unmount(mount_point)


@pytest.fixture(scope="module")
def ranks(request, tmp_path_factory):
    """As many ranks as NUM_RANKS of the module says."""
    pool = Ranks(request.module.NUM_RANKS, tmp_path_factory.mktemp("ranks"))
    yield pool
    pool.close()


@pytest.fixture
def few_ranks(tmp_path):
    """Three ranks for one test, after which they are of no use."""
    pool = Ranks(3, tmp_path)
    yield pool
    pool.close()
