"""Whether torch takes deterministic algorithms is what the configuration says."""

import pytest
import torch

from lsm.distributed.collectives import World
from lsm.train.job import open_job
from lsm.train.tasks.node_prediction import NodePrediction
from support.training import config


@pytest.fixture
def torch_as_it_was():
    was = torch.are_deterministic_algorithms_enabled()
    yield
    torch.use_deterministic_algorithms(was)


@pytest.mark.parametrize(
    ("settings", "is_deterministic"),
    [((), True), (("train.deterministic=true",), True), (("train.deterministic=false",), False)],
)
def test_the_key_reaches_torch(store, tmp_path, torch_as_it_was, settings, is_deterministic):
    torch.use_deterministic_algorithms(not is_deterministic)
    with open_job(config(store, tmp_path, *settings), World(), NodePrediction()):
        assert torch.are_deterministic_algorithms_enabled() is is_deterministic
