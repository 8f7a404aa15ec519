"""The world that the environment describes."""

import pytest
import torch

from lsm import dist
from lsm.dist import World

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "29500",
}


def test_torchrun_names_the_world():
    assert World.from_env(TORCHRUN) == World(rank=5, size=8, local_rank=1, local_size=4)
    assert not World.from_env(TORCHRUN).is_main


def test_without_it_this_is_a_world_of_one():
    assert World.from_env({"PATH": "/bin"}) == World(0, 1, 0, 1)
    assert World.from_env({}).is_main


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"MASTER_PORT": None}, "MASTER_PORT missing"),
        ({"WORLD_SIZE": None}, "WORLD_SIZE missing"),
        ({"RANK": "8"}, "expected 0 <= RANK < WORLD_SIZE, got 8, 8"),
        ({"RANK": "first"}, "expected an integer in RANK, got 'first'"),
    ],
)
def test_half_a_world_is_an_error(changes, message):
    env = {key: value for key, value in (TORCHRUN | changes).items() if value is not None}
    with pytest.raises(RuntimeError, match=message):
        World.from_env(env)


def test_collectives_of_a_world_of_one_change_nothing(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with dist.joined(timeout_secs=1) as world:
        values = torch.tensor([1.0, 2.0])
        assert dist.all_reduce_sum(values, world) is values
        assert dist.broadcast_object({"a": 1}, world) == {"a": 1}
        assert not torch.distributed.is_initialized()


def test_only_errors_of_the_group_are_blamed_on_other_ranks():
    with pytest.raises(dist.PeerError, match="during the test"), dist.peers("the test"):
        raise RuntimeError("[../gloo/transport/tcp/pair.cc:547] Connection closed by peer")
    with pytest.raises(RuntimeError, match="own") as caught, dist.peers("the test"):
        raise RuntimeError("own mistake")
    assert not isinstance(caught.value, dist.PeerError)
