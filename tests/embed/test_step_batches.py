"""The edges of a step: which ones in which order, and that they go to a GPU without a wait."""

import numpy as np
import pytest
import torch

from lsm import native
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
    num_steps = len(Itinerary(make_order("best", 4, 3, 1), 0, 3, rounds).epoch(0))
    with Uploads() as uploads:
        found = batches("cuda:0")
    assert len(found) == len(expected) > 0
    assert all(map(torch.equal, found, expected))
    assert uploads.num_copies == num_steps
    assert not uploads.waiting


def plain_batches(opened, layout, seed, size, step):
    """The batches of ``step``, from the edges of the store as they are: [n, 3] int64."""
    partitions, edges = layout.partitions, np.array(opened.edges("train"), np.int64)
    heads, tails = (np.searchsorted(layout.starts, edges[:, c], "right") - 1 for c in (0, -1))

    def shuffled(rows, generator_key):
        generator = torch.Generator().manual_seed(generator_key)
        return rows[torch.randperm(len(rows), generator=generator).numpy()]

    parts = [np.empty((0, edges.shape[1]), np.int64)]
    for head, tail in step.buckets:
        rows = edges[(heads == head) & (tails == tail)]
        if step.rounds > 1:
            key = native.batch_key(seed, step.epoch, head * partitions + tail, 0)
            first, last = (len(rows) * n // step.rounds for n in (step.round, step.round + 1))
            rows = shuffled(rows, key)[first:last]
        rows[:, 0] += step.frames[head] * layout.frame_rows - layout.starts[head]
        rows[:, -1] += step.frames[tail] * layout.frame_rows - layout.starts[tail]
        parts.append(rows)
    all_rows = shuffled(np.concatenate(parts), native.batch_key(seed, step.epoch, step.number, 0))
    most = max(
        sum(
            count * (step.round + 1) // step.rounds - count * step.round // step.rounds
            for count in (((heads == i) & (tails == j)).sum() for i, j in buckets)
        )
        for buckets in step.trained
    )
    return [all_rows[begin : begin + size] for begin in range(0, most, size)]


@pytest.mark.parametrize(("partitions", "ranks"), [(4, 1), (7, 1), (8, 2)])
@pytest.mark.parametrize("rounds", [1, 3])
def test_batches_are_those_of_a_plain_reference(store, partitions, ranks, rounds):
    opened = TripleStore.open(store)
    layout = PartitionLayout.of(opened.partition_starts(partitions).tolist(), 4)
    order, cpu = make_order("best", partitions, 3, ranks), torch.device("cpu")
    num_edges = 0
    for rank in range(ranks):
        made = StepBatches(opened.buckets("train", partitions), layout, 3, 32, seed=3, device=cpu)
        itinerary = Itinerary(order, rank, 3, rounds)
        for step in [each for epoch in (0, 1) for each in itinerary.epoch(epoch)]:
            found, expected = list(made.of(step)), plain_batches(opened, layout, 3, 32, step)
            assert len(found) == len(expected) == made.count(step)
            for batch, rows in zip(found, expected, strict=True):
                assert batch.dtype == torch.int64
                np.testing.assert_array_equal(batch.numpy(), rows)
                num_edges += len(rows)
    assert num_edges == 2 * opened.num_edges["train"]


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
