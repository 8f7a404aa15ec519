"""Fixtures for tests of embeddings."""

import pytest

from support.triples import SIX_PARTITIONS, config, make_triples, tables


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """The path of a small store of triples that can be learnt."""
    return make_triples(tmp_path_factory.mktemp("triples") / "store")


@pytest.fixture(scope="module")
def whole(store, tmp_path_factory):
    """What an undisturbed run of SIX_PARTITIONS in a file learns."""
    from lsm.embed.trainer import train

    folder = tmp_path_factory.mktemp("whole")
    train(config(store, folder, *SIX_PARTITIONS))
    return tables(folder)
