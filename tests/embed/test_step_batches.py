"""The edges of a step go to a GPU without a wait."""

import pytest
import torch

from lsm.data.triples.store import TripleStore
from lsm.embed.batches import StepBatches
from lsm.embed.orders.itinerary import Itinerary
from lsm.embed.orders.order import make_order
from lsm.embed.table.layout import PartitionLayout
from support.uploads import Uploads


@pytest.mark.parametrize("rounds", [1, 2])
def test_edges_are_copied_from_page_locked_memory(store, monkeypatch, rounds):
    opened, generator = TripleStore.open(store), torch.Generator
    layout = PartitionLayout.of(opened.partition_starts(4).tolist(), 4)
    # A stand-in shuffles as the host does. torch's constructor is no call that it sees.
    monkeypatch.setattr(torch, "Generator", lambda device="cpu": generator())

    def batches(device):
        made = StepBatches(
            opened.buckets("train", 4), layout, 3, 32, seed=3, device=torch.device(device)
        )
        steps = Itinerary(make_order("best", 4, 3, 1), 0, 3, rounds).epoch(0)
        return [batch for step in steps for batch in made.of(step)]

    expected = batches("cpu")
    with Uploads() as uploads:
        found = batches("cuda:0")
    assert len(found) == len(expected) > 0
    assert all(map(torch.equal, found, expected))
    assert uploads.num_copies == 16 * rounds  # pairs of partitions
    assert not uploads.waiting


def test_a_copy_that_waits_is_seen():
    rows = torch.ones(3)
    with Uploads() as uploads:
        rows.pin_memory().to("cuda", non_blocking=True)
        assert not uploads.waiting
        for each in (
            lambda: rows.to("cuda", non_blocking=True),
            lambda: rows.pin_memory().to(device="cuda"),
            lambda: rows.to(torch.device("cuda", 0)),
        ):
            each()
            assert uploads.waiting == [rows.shape]
            uploads.waiting.clear()
    assert uploads.num_copies == 4
