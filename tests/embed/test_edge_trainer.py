"""Training lowers the loss, gives the same bits for the same seed, and stops at a loss of NaN."""

import pytest
import torch

from lsm.embed.adagrad import initial_rows
from lsm.embed.edge_trainer import EdgeTrainer
from lsm.embed.options import EmbedOptions

NODES, RELATIONS = 60, 4
GENERATOR = torch.Generator().manual_seed(8)
HEADS = torch.randint(NODES, (300,), generator=GENERATOR)
KINDS = torch.randint(RELATIONS, (300,), generator=GENERATOR)
EDGES = torch.stack((HEADS, KINDS, (HEADS + 7 * KINDS + 1) % NODES), 1)


def tables_of(options):
    relations = initial_rows(options, options.relation_rows(RELATIONS), seed=2)
    return initial_rows(options, NODES, seed=1), relations if options.has_relations else None


def train(options, num_steps, seed=4, reduce=None):
    rows, relations = tables_of(options)
    trainer = EdgeTrainer(rows, relations, options)
    losses = [
        trainer.train(EDGES, [(0, 30), (30, NODES)], seed, step, reduce=reduce)
        for step in range(num_steps)
    ]
    return rows, relations, losses


@pytest.mark.parametrize("optimizer", ["adagrad", "row_adagrad"])
@pytest.mark.parametrize("model", ["distmult", "complex", "transe_l1", "transe_l2", "rotate"])
def test_training_learns_the_edges(model, optimizer):
    """The graph is a sum modulo the number of nodes. Guessing costs log(101) = 4.6."""
    options = EmbedOptions(
        model=model, dim=16, num_negatives=100, chunk=64, init_scale=0.3, optimizer=optimizer
    )
    _, _, losses = train(options, 40)
    assert losses[0].count == 2 * len(EDGES)
    assert losses[-1].sum / losses[-1].count < 0.7 * losses[0].sum / losses[0].count


def test_the_same_seed_and_steps_give_the_same_bits():
    options = EmbedOptions(dim=16, num_negatives=50, chunk=100, dropout=0.2, degree_fraction=0.5)
    first, again, other = train(options, 3), train(options, 3), train(options, 3, seed=5)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert first[2] == again[2]
    assert not torch.equal(first[0], other[0])


def test_steps_draw_differently():
    options = EmbedOptions(dim=16, num_negatives=50)
    results = []
    for step in (0, 1):
        rows, relations = tables_of(options)
        EdgeTrainer(rows, relations, options).train(EDGES, [(0, NODES)], 4, step)
        results.append(rows)
    assert not torch.equal(*results)


def test_only_resident_candidates_and_ends_of_edges_are_updated():
    options = EmbedOptions(dim=8, num_negatives=40)
    rows, relations = tables_of(options)
    before = rows.clone()
    edges = torch.tensor([[3, 0, 5], [4, 1, 5]])
    EdgeTrainer(rows, relations, options).train(edges, [(20, 30), (50, 52)], 4, 0)
    changed = set((rows != before).any(1).nonzero().flatten().tolist())
    assert {3, 4, 5} < changed <= {3, 4, 5, *range(20, 30), 50, 51}


def test_two_ranks_with_summed_gradients_of_relations_train_relations_as_one():
    options = EmbedOptions(dim=8, num_negatives="all")
    parts, sums = (EDGES[:200], EDGES[200:]), []
    for part in parts:  # each rank's own gradients
        rows, relations = tables_of(options)
        EdgeTrainer(rows, relations, options).train(
            part, [(0, NODES)], 4, 0, reduce=lambda grads: sums.append(grads.clone())
        )
    rows, relations = tables_of(options)
    EdgeTrainer(rows, relations, options).train(
        parts[0], [(0, NODES)], 4, 0, reduce=lambda grads: grads.copy_(sums[0] + sums[1])
    )
    _, together, _ = train(options, 1)
    torch.testing.assert_close(relations, together, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_stops_before_the_update(value):
    options = EmbedOptions(dim=8, num_negatives=10, lr=7.0)
    rows, relations = tables_of(options)
    rows[int(EDGES[0, 0]), 0] = value
    before = rows.clone(), relations.clone()
    trainer = EdgeTrainer(rows, relations, options)
    with pytest.raises(FloatingPointError, match=r"loss of step 12 is .*smaller embed\.lr \(now 7"):
        trainer.train(EDGES, [(0, NODES)], 1, 12)
    assert torch.equal(rows.nan_to_num(), before[0].nan_to_num())
    assert torch.equal(relations, before[1])


def test_dot_takes_edges_without_relations():
    options = EmbedOptions(model="dot", dim=8, init_scale=0.1)
    rows, _ = tables_of(options)
    trainer = EdgeTrainer(rows, None, options)
    first = trainer.train(EDGES[:, [0, 2]], [(0, NODES)], 1, 0)
    assert trainer.train(EDGES[:, [0, 2]], [(0, NODES)], 1, 0).sum < first.sum


def test_wrong_tables_are_named():
    options = EmbedOptions(model="complex", dim=8)
    rows, relations = tables_of(options)
    with pytest.raises(ValueError, match=r"rows: expected \[n, 16\] float32 .* got \[60, 15\]"):
        EdgeTrainer(rows[:, 1:], relations, options)
    with pytest.raises(ValueError, match=r"rows: expected .* torch.float64"):
        EdgeTrainer(rows.double(), relations, options)
    with pytest.raises(ValueError, match=r"complex needs relations.* set embed\.model=dot"):
        EdgeTrainer(rows, None, options)
    with pytest.raises(ValueError, match=r"two rows per relation .* got 7 rows"):
        EdgeTrainer(rows, relations[:7], options)
