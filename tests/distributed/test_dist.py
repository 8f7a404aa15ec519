"""Joining a job, and the collectives of training."""

import pytest
import torch

from lsm.distributed import collectives
from lsm.distributed.watchdog import PeerError, awaiting


def test_collectives_of_a_world_of_one_change_nothing(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with collectives.joined(timeout_secs=1) as world:
        values = torch.tensor([1.0, 2.0])
        assert collectives.all_reduce_sum(values, world) is values
        assert collectives.broadcast_object({"a": 1}, world) == {"a": 1}
        assert not torch.distributed.is_initialized()


def test_only_errors_of_the_group_are_blamed_on_other_ranks():
    with pytest.raises(PeerError, match="during the test"), awaiting("the test"):
        raise RuntimeError("[../gloo/transport/tcp/pair.cc:547] Connection closed by peer")
    with pytest.raises(RuntimeError, match="own") as caught, awaiting("the test"):
        raise RuntimeError("own mistake")
    assert not isinstance(caught.value, PeerError)
