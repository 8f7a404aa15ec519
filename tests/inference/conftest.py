"""A run of `lsm train` on a small store, whose model every route takes."""

import pytest

from lsm.train.trainer import train
from support.training import config, make_store


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("predict") / "store")


@pytest.fixture(scope="session")
def trained(store, tmp_path_factory):
    return trained_run(store, tmp_path_factory)


@pytest.fixture(scope="session")
def attending(store, tmp_path_factory):
    """As ``trained``, by attention with several heads."""
    return trained_run(store, tmp_path_factory, "model.name=gat", "model.heads=4")


def trained_run(store, tmp_path_factory, *more):
    settings = config(store, tmp_path_factory.mktemp("run"), "train.epochs=1", *more)
    train(settings)
    return settings.run_dir
