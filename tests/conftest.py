"""What tests of several rooms are given."""

import pytest

from support.comm_ranks import Ranks
from support.training import make_store


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """The path of a small store that can be learnt."""
    return make_store(tmp_path_factory.mktemp("store") / "store")


@pytest.fixture(scope="module")
def ranks(request, tmp_path_factory):
    """As many ranks as NUM_RANKS of the module says."""
    pool = Ranks(request.module.NUM_RANKS, tmp_path_factory.mktemp("ranks"))
    yield pool
    pool.close()
