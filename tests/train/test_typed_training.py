"""Training on a store with types: no cache, engine or kill changes a loss."""

import json

import numpy as np
import pytest
import torch

import lsm
from lsm import native
from lsm.data.typed.synth import synthesize_typed
from lsm.sampler.neighbor_gpu import DeviceNeighborSampler
from lsm.train import loaders
from lsm.train.sampling import drawing_of
from lsm.train.trainer import train
from support.training import config, losses, overrides, run_forked, run_job, steps

TYPED = (
    "model.name=rsage",
    "model.dropout=0.1",
    "sampler.num_neighbors=[4, 3]",
    "train.lr=0.02",
    "train.epochs=5",
)
ROW_BYTES = {"target": 80, "type1": 40}  # float32; type2 has no features
CACHES = {
    "lookahead": ("cache.policy=lookahead", "cache.bytes=8KiB", "cache.window=4"),
    "lru": ("cache.policy=lru", "cache.bytes=8KiB"),
    "pool": (
        "cache.policy=lookahead",
        "cache.bytes=8KiB",
        "cache.victim.mode=pool",
        "cache.victim.bytes=4KiB",
    ),
    "static": ("cache.policy=static", "cache.bytes=8KiB", "cache.score=reverse_pagerank"),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("typed") / "store"
    synthesize_typed(path, 3, nodes=400, dim=20, classes=3, avg_degree=4.0, signal=2.0, seed=2)
    return path


@pytest.fixture(scope="module")
def alone(store, tmp_path_factory):
    """A run without a cache: its summary and its directory."""
    run_dir = tmp_path_factory.mktemp("alone")
    return train(config(store, run_dir, *TYPED, "storage.engine=memory")), run_dir


def test_it_learns_what_the_store_was_made_to_teach(alone):
    summary, _ = alone
    assert summary["test_accuracy"] > 0.75  # three classes: chance is 0.33


@pytest.mark.parametrize("engine", ["posix", "io_uring"])
@pytest.mark.parametrize("cache", CACHES)
def test_no_cache_and_no_engine_changes_a_loss(store, alone, tmp_path, cache, engine):
    if engine == "io_uring" and cache != "lookahead":
        engine = "mmap"
    settings = (*TYPED, f"storage.engine={engine}", *CACHES[cache])
    train(config(store, tmp_path, *settings))
    assert losses(tmp_path) == losses(alone[1])


def test_tensorboard_shows_each_type(store, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(config(store, tmp_path, *TYPED, "train.epochs=2", "metrics.loggers=tensorboard"))
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    epochs = [line for line in lines if line["kind"] == "epoch"]
    for name in ROW_BYTES:
        found = events.Scalars(f"epoch/types/{name}/requests")
        assert [each.value for each in found] == [
            each["types"][name]["requests"] for each in epochs
        ]


def test_records_add_up_over_types(store, tmp_path):
    settings = (*TYPED, "storage.engine=posix", *CACHES["lookahead"])
    train(config(store, tmp_path, *settings))
    for step in steps(tmp_path):
        types = step["types"]
        assert set(types) == set(ROW_BYTES)
        for name in ("requests", "hits", "misses", "storage_bytes", "cache_bytes"):
            assert sum(each[name] for each in types.values()) == step[name], name
        for name, each in types.items():
            assert each["requests"] == each["hits"] + each["misses"]
            assert each["storage_bytes"] == each["misses"] * ROW_BYTES[name]
    assert any(each["hits"] for step in steps(tmp_path) for each in step["types"].values())


@pytest.mark.parametrize("setting", ["sampler.kind=labor", "sampler.disjoint=true"])
def test_the_twin_of_the_gpu_takes_the_same_steps(store, tmp_path, monkeypatch, setting):
    settings = (*TYPED, "storage.engine=memory", setting, "train.epochs=2")
    train(config(store, tmp_path / "host", *settings))
    monkeypatch.setattr(
        loaders,
        "_gpu_samplers",
        lambda _setup, topology: (
            lambda drawing: DeviceNeighborSampler(
                *(topology, topology, drawing.num_neighbors),
                input_type="target",
                sampling=drawing.sampling,
                disjoint=drawing.disjoint,
                device=native.TWIN_BACKWARDS,
            )
        ),
    )
    train(config(store, tmp_path / "twin", *settings))
    assert losses(tmp_path / "twin") == losses(tmp_path / "host")


def test_a_killed_run_continues_with_the_same_losses(store, alone, tmp_path):
    settings = (*TYPED, "storage.engine=memory", "checkpoint.every_steps=3")
    train(config(store, tmp_path, *settings))
    (tmp_path / "result.json").unlink()
    checkpoints = sorted((tmp_path / "checkpoints").iterdir())
    kept = checkpoints[0]
    for other in checkpoints[1:]:
        other.unlink()
    summary = train(config(store, tmp_path, *settings, f"checkpoint.resume={kept}"))
    assert losses(tmp_path) == losses(alone[1])
    assert summary["test_accuracy"] == alone[0]["test_accuracy"]


@pytest.mark.parametrize("name", ["rgcn", "rgat", "hgt"])
def test_each_model_learns(store, tmp_path, name):
    summary = train(config(store, tmp_path, *TYPED, f"model.name={name}", "storage.engine=memory"))
    assert summary["test_accuracy"] > 0.6


@pytest.mark.parametrize(
    "setting",
    [
        'sampler.edge_types={"type1,of_type1,target": [0, 0]}',
        "sampler.disjoint=true",
        "sampler.kind=labor",
    ],
)
def test_drawing_is_as_the_options_say(store, alone, tmp_path, setting):
    """Other neighbours, so other losses from the first on; of a type that is left out, no edges."""
    train(config(store, tmp_path, *TYPED, "storage.engine=memory", "train.epochs=1", setting))
    assert losses(tmp_path)[0] != losses(alone[1])[0]


@pytest.mark.parametrize("cache", CACHES)
def test_subgraphs_of_several_seeds_share_nodes_in_a_cache(store, tmp_path, cache):
    """A batch then has a node several times."""
    arguments = *TYPED, "train.epochs=2", "sampler.disjoint=true"
    train(config(store, tmp_path / "cached", *arguments, *CACHES[cache]))
    train(config(store, tmp_path / "plain", *arguments, "storage.engine=memory"))
    assert losses(tmp_path / "cached") == losses(tmp_path / "plain")


def test_a_type_of_edges_that_is_left_out_brings_no_rows(store, tmp_path):
    """Type 1 is reached by one type of edges."""
    leave = 'sampler.edge_types={"type1,of_type1,target": [0, 0]}'
    settings = (*TYPED, "train.epochs=1", "storage.engine=posix", *CACHES["lru"], leave)
    train(config(store, tmp_path, *settings))
    assert all(step["types"]["type1"]["requests"] == 0 for step in steps(tmp_path))


def test_a_type_that_is_left_out_stays_so_after_training(store, tmp_path):
    left = ("type1", "of_type1", "target")
    settings = (*TYPED, "train.epochs=1", f'sampler.edge_types={{"{",".join(left)}": [0, 0]}}')
    given = config(store, tmp_path, *settings, "train.eval.num_neighbors=[-1, -1]")
    opened = lsm.GraphStore.open(store)
    for hops in (drawing_of(given, opened, "test"), drawing_of(given, opened, "test", [3, 3])):
        assert hops.num_neighbors[left] == [0, 0]
        assert any(map(any, hops.num_neighbors.values()))
    with pytest.raises(
        ValueError, match=r"train\.eval\.exact: sampler\.edge_types leaves out type1,"
    ):
        train(config(store, tmp_path / "exact", *settings, "train.eval.exact=true"))
    summary = train(given)
    out = tmp_path / "out"
    with pytest.raises(ValueError, match="--route: the run leaves out type1,of_type1,target"):
        lsm.predict(tmp_path, None, out, progress=False)
    found = lsm.predict(
        tmp_path, None, out, route="sampled", num_neighbors=[-1, -1], nodes="test", progress=False
    )
    predicted = np.load(found["outputs"]["predictions"]["file"])
    nodes = opened.nodes("target")
    ids = nodes.split("test")
    accuracy = (torch.from_numpy(predicted) == nodes.labels()[ids]).double().mean().item()
    assert accuracy == pytest.approx(summary["test_accuracy"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("data.input_type=user",), "data.input_type: expected one of target, type1, type2"),
        (("data.input_type=type1",), "has no labels of type type1"),
        (("model.name=gat",), "model.name"),
        (('sampler.edge_types={"a,b,c": [1, 1]}',), "sampler.edge_types: a,b,c is no edge type"),
        (('sampler.edge_types={"a,b,c": [1]}',), "sampler.edge_types: a,b,c: expected 2 hops"),
        (("sampler.time_attr=time",), "no times"),
        (("sampler.weight_attr=edge_weight",), "no weights"),
        (("sampler.kind=ladies",), "ladies"),
    ],
)
def test_settings_that_do_not_fit_are_named(store, tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        train(config(store, tmp_path, *TYPED, *settings))


@pytest.mark.parametrize("cache", [(), CACHES["lookahead"]])
def test_a_batch_may_reach_no_node_with_features(tmp_path, cache):
    """The model has embeddings of the seeds' type, and reads no row."""
    from torch_geometric.data import HeteroData

    torch.manual_seed(0)
    data = HeteroData()
    data["user"].num_nodes = 60
    data["user"].y = torch.arange(60) % 2
    for number, split in enumerate(("train", "val", "test")):
        data["user"][f"{split}_mask"] = torch.arange(60) // 20 == number
    data["item"].x = torch.randn(30, 20)
    data["user", "knows", "user"].edge_index = torch.randint(60, (2, 200))
    data["user", "buys", "item"].edge_index = torch.randint(30, (2, 90))
    lsm.GraphStore.from_pyg(data, tmp_path / "store")
    train(config(tmp_path / "store", tmp_path / "run", *TYPED, *cache))
    found = losses(tmp_path / "run")
    assert found[-1][2] < found[0][2]
    assert all(step["requests"] == 0 for step in steps(tmp_path / "run"))


def test_a_store_of_several_classified_types_wants_a_choice(tmp_path):
    from torch_geometric.data import HeteroData

    data = HeteroData()
    for name in ("user", "item"):
        data[name].x = torch.randn(20, 4)
        data[name].y = torch.arange(20) % 2
        data[name].train_mask = torch.ones(20, dtype=torch.bool)
    data["user", "buys", "item"].edge_index = torch.randint(20, (2, 40))
    lsm.GraphStore.from_pyg(data, tmp_path / "store")
    with pytest.raises(ValueError, match=r"input_type: not set, and .* has user, item with"):
        train(config(tmp_path / "store", tmp_path / "run", *TYPED))


def test_lsm_train_says_what_it_did(store, tmp_path):
    settings = overrides(store, tmp_path, *TYPED, "cache.bytes=8KiB")
    run = run_forked("-m", "lsm", "train", "base", *settings)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["test_accuracy"] > 0.75


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["shared", "partition-aware", "independent"])
def test_ranks_have_the_losses_of_ranks_without_a_cache(store, tmp_path, mode):
    def run(name, *settings):
        arguments = overrides(store, tmp_path / name, *TYPED, "train.batch_size=32", *settings)
        job = run_job(2, "-m", "lsm", "train", "base", *arguments)
        assert job.returncode == 0, job.stderr
        return losses(tmp_path / name)

    score = "cache.score=reverse_pagerank"
    cached = run("cached", "storage.engine=posix", *CACHES["pool"], f"comm.mode={mode}", score)
    assert cached == run("memory", "storage.engine=memory")
