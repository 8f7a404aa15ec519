"""The configuration ``debian`` trains the graph that the repository carries."""

import shutil
from pathlib import Path

import pytest

from lsm.config.load import load_config
from lsm.data.convert.npy import convert_npy
from lsm.train.trainer import train

pytestmark = pytest.mark.slow

ARCHIVE = Path(__file__).parents[1] / "datasets/debian/debian.tar.xz"


def test_one_epoch_learns_most_sections(tmp_path):
    shutil.unpack_archive(ARCHIVE, tmp_path)
    convert_npy(tmp_path / "debian", tmp_path / "store", add_reverse=True)
    places = (f"data.path={tmp_path / 'store'}", f"run.dir={tmp_path / 'run'}")
    engine = ("storage.engine=posix", "train.num_threads=1", "metrics.loggers=[]")
    summary = train(load_config("debian", [*places, *engine, "train.epochs=1"]))
    assert summary["test_accuracy"] > 0.7  # 0.75 to 0.76; the features alone give 0.50 (linear)
