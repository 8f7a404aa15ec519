"""Steps of several iterations, against loops that differentiate their seeds' mean loss at once."""

import math
from unittest import mock

import pytest
import torch
from torch.nn import functional

import lsm
import lsm.train.model
from lsm.config.train import TrainConfig
from lsm.data.typed.synth import synthesize_typed
from lsm.distributed.collectives import World
from lsm.distributed.signals import EXIT_STOPPED
from lsm.nn.embeddings import dense_parameters, sparse_parameters
from lsm.nn.models import build_model
from lsm.nn.options import ModelOptions
from lsm.nn.typed_models import TypedInputs, build_typed_model
from lsm.train import checkpoint
from lsm.train.model import Network, build_network
from lsm.train.schedule import Schedule
from lsm.train.setup import Setup
from lsm.train.trainer import train
from support.training import (
    CRASH_AT,
    config,
    losses,
    make_store,
    overrides,
    run_forked,
    run_job,
)

NUM_RANKS = 2
EPOCHS, PER_EPOCH, BATCH = 2, 5, 64
PLAIN = (
    *("model.dropout=0", "train.eval_every=0", "train.select=last", "storage.engine=memory"),
    *("sampler.num_neighbors=[-1, -1]", "train.schedule=cosine"),
)
SGD = ("train.optimizer=sgd", "train.momentum=0.9", "train.lr=0.3")
TYPED = ("model.name=rsage", "model.dropout=0")
CLIP, TYPED_CLIP = 0.93, 0.5  # some steps of each run have a larger norm, some a smaller one


def rate_share(iteration):
    """A cosine from 1 to 0 over all iterations."""
    return (1 + math.cos(math.pi * iteration / (EPOCHS * PER_EPOCH))) / 2


def reference(store, seeds, model, optimizers, accumulate, clip):
    """The losses of each iteration and the weights at the end, of a loop that knows batches, but
    neither accumulates nor has ranks."""
    found, norms = [], []
    lr = [optimizer.param_groups[0]["lr"] for optimizer in optimizers]
    with lsm.NeighborLoader(store, [-1, -1], seeds, BATCH, shuffle=True) as loader:
        for epoch in range(EPOCHS):
            batches = list(loader)
            assert len(batches) == PER_EPOCH
            for first in range(0, PER_EPOCH, accumulate):
                group = batches[first : first + accumulate]
                sums = [
                    functional.cross_entropy(model(batch), batch.y, reduction="sum")
                    for batch in group
                ]
                model.zero_grad()
                (sum(sums) / sum(len(batch.y) for batch in group)).backward()
                norms.append(torch.nn.utils.clip_grad_norm_(dense_parameters(model), clip))
                last = epoch * PER_EPOCH + first + len(group) - 1
                for optimizer, rate in zip(optimizers, lr, strict=True):
                    optimizer.param_groups[0]["lr"] = rate * rate_share(last)
                    optimizer.step()
                found += [
                    each.item() / len(batch.y) for each, batch in zip(sums, group, strict=True)
                ]
    assert min(norms) < clip < max(norms)
    return found, model.state_dict()


def reference_of_one_type(path, accumulate):
    torch.manual_seed(0)
    model = build_model(ModelOptions(hidden_dim=16, dropout=0.0), 12, 3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    return reference(lsm.GraphStore.open(path), "train", model, [optimizer], accumulate, CLIP)


def reference_with_types(path, accumulate):
    store = lsm.GraphStore.open(path)
    torch.manual_seed(0)
    options = ModelOptions(name="rsage", hidden_dim=16, dropout=0.0)
    model = build_typed_model(options, TypedInputs.of(store, "target", ()), 3, 2)
    tables = list(sparse_parameters(model).values())
    assert tables
    optimizers = [
        torch.optim.Adam(dense_parameters(model), lr=0.01),
        torch.optim.SparseAdam(tables, lr=0.01),
    ]
    seeds = ("target", store.nodes("target").split("train"))
    return reference(store, seeds, model, optimizers, accumulate, TYPED_CLIP)


def check(run_dir, expected):
    found, weights = expected
    assert [loss for *_, loss in losses(run_dir)] == pytest.approx(found, rel=2e-4)
    trained = torch.load(run_dir / "model.pt", weights_only=True)
    assert set(trained) == set(weights)
    for name, value in weights.items():
        torch.testing.assert_close(trained[name], value, rtol=1e-3, atol=1e-4, msg=name)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A store with 257 training nodes: of the last global batch, one rank of two has no seed."""
    return make_store(tmp_path_factory.mktemp("small") / "store", num_train=257)


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    """A store whose third type has no features, with as many iterations."""
    path = tmp_path_factory.mktemp("typed") / "store"
    return synthesize_typed(path, 3, nodes=500, dim=20, classes=3, avg_degree=3.0, seed=2).path


@pytest.mark.parametrize("accumulate", [1, 2, 3, 9])
def test_a_step_is_that_of_the_mean_over_its_iterations(small, tmp_path, accumulate):
    """Those of 2 and 3 end an epoch with fewer iterations, those of 9 are whole epochs."""
    clip = f"train.clip_norm={CLIP}"
    train(config(small, tmp_path, *PLAIN, *SGD, clip, f"train.accumulate={accumulate}"))
    check(tmp_path, reference_of_one_type(small, accumulate))


@pytest.mark.parametrize("accumulate", [2, 3])
def test_embeddings_of_types_without_features_accumulate_too(typed, tmp_path, accumulate):
    clip = f"train.clip_norm={TYPED_CLIP}"
    train(config(typed, tmp_path, *PLAIN, *TYPED, clip, f"train.accumulate={accumulate}"))
    check(tmp_path, reference_with_types(typed, accumulate))


@pytest.mark.slow
@pytest.mark.parametrize("is_typed", [False, True], ids=["one type", "types"])
def test_ranks_step_as_one_process_does(small, typed, tmp_path, is_typed):
    store, more, clip = (typed, TYPED, TYPED_CLIP) if is_typed else (small, SGD, CLIP)
    more = (*PLAIN, *more, f"train.clip_norm={clip}", "train.accumulate=2")
    more += (f"train.batch_size={BATCH // 2}",)
    job = run_job(2, "-m", "lsm", "train", "base", *overrides(store, tmp_path, *more))
    assert job.returncode == 0, job.stderr
    check(tmp_path, (reference_with_types if is_typed else reference_of_one_type)(store, 2))


class Two(torch.nn.Module):
    """Two weights, of which a batch may use one."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))

    def forward(self, factors):
        pairs = zip((self.first, self.second), factors, strict=True)
        return sum((weight * factor).sum() for weight, factor in pairs if factor is not None)


def accumulated(context, factors):
    """The gradients of Two after a backward pass for each of this rank's ``factors``."""
    world = World(context.rank, context.size)
    setup = Setup(lsm.load_config("base"), world, torch.device("cpu"), None, None)
    with mock.patch.object(lsm.train.model, "new_model", return_value=Two()):
        network = build_network(setup, None, 1)
    for each in factors[context.rank]:
        network.parallel(each).backward()
        network.keep_gradients()
    return [weight.grad.tolist() for weight in network.model.parameters()]


def test_a_weight_that_later_iterations_do_not_use_keeps_its_gradient(ranks):
    """One rank uses the second weight first, and then none does."""
    factors = [[(1.0, 2.0), (1.0, None)], [(3.0, None), (1.0, None)]]
    for found in ranks.check(accumulated, factors):
        assert found == [[3.0] * 3, [1.0] * 3]


def test_a_kept_gradient_of_embeddings_is_no_larger_than_its_table():
    table = torch.nn.Embedding(9, 2, sparse=True)
    options = TrainConfig(accumulate=6)
    network = Network(table, table, torch.optim.SparseAdam([table.weight]), Schedule(options, 6))
    lists = ([1, 1, 4], [4, 5], [1], [8] * 20, [0, 1, 2, 3, 4, 5, 6, 7, 8], [])
    expected = torch.zeros(9, 2)
    for ids in lists:
        table(torch.tensor(ids, dtype=torch.int64)).sum().backward()
        network.keep_gradients()
        for each in ids:
            expected[each] += 1
        gradient = table.weight.grad
        assert gradient._indices().size(1) <= 9
        assert set(gradient._indices()[0].tolist()) == set(expected[:, 0].nonzero()[:, 0].tolist())
        assert torch.equal(gradient.to_dense(), expected)


RESUMED = (*SGD, "train.accumulate=2", "train.epochs=3", "checkpoint.every_epochs=0")
ENDS = {"step-000000-00000004", "step-000001-00000002", "step-000001-00000004"}
ENDS |= {"step-000002-00000002", "step-000002-00000005"}


def test_a_run_continues_between_steps_to_the_same_losses(store, tmp_path):
    """Checkpoints are due within steps, and lie at their ends. Dropout is on."""
    train(config(store, tmp_path / "whole", *RESUMED))
    settings = (*RESUMED, "checkpoint.every_steps=3", "checkpoint.keep=9")
    train(config(store, tmp_path / "cut", *settings))
    kept = checkpoint.list_checkpoints(tmp_path / "cut/checkpoints")
    assert {path.stem for path in kept} == ENDS
    for path in kept[:3]:
        (tmp_path / "cut/result.json").unlink()
        train(config(store, tmp_path / "cut", *settings, f"checkpoint.resume={path}"))
        assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    (tmp_path / "cut/result.json").unlink()
    other = (*settings, f"checkpoint.resume={kept[0]}", "train.accumulate=1")
    with pytest.raises(ValueError, match=r"train.accumulate \(2 there, 1 now\)"):
        train(config(store, tmp_path / "cut", *other))


@pytest.mark.slow
def test_a_signal_waits_for_the_end_of_a_step(store, tmp_path):
    settings = overrides(store, tmp_path / "run", *RESUMED)
    job = run_forked(CRASH_AT, "term", 0, 1, 2, "base", *settings)
    assert job.returncode == EXIT_STOPPED, job.stderr
    assert "stopped by a signal after epoch 2, iteration 3; a checkpoint" in job.stderr
    train(config(store, tmp_path / "run", *RESUMED))
    train(config(store, tmp_path / "whole", *RESUMED))
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "all"])
def test_a_number_that_is_none_is_named(store, tmp_path, value):
    with pytest.raises(ValueError, match=r"train.accumulate: expected .*, got") as caught:
        config(store, tmp_path, f"train.accumulate={value}")
    assert "\n" not in str(caught.value)
