"""The configuration: documented in full, strict, and clear about every mistake."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Literal, get_args

import pytest
import yaml

from lsm.config.load import dotted_keys, load_config, parse_config
from lsm.config.schema import Config
from lsm.config.train import TrainConfig
from lsm.core.section import dump_config

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
BASE = CONFIGS / "base.yaml"


def flatten(values, prefix=""):
    for key, value in values.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def error_of(*overrides):
    with pytest.raises(ValueError, match=r".") as caught:
        load_config(BASE, overrides)
    return str(caught.value)


def test_base_yaml_states_the_defaults():
    assert load_config(BASE) == Config()


def test_base_yaml_mentions_and_comments_every_key():
    lines = BASE.read_text().splitlines()
    path, commented = [], []
    for above, line in pairwise(lines):
        match = re.match(r"( *)([a-z_]+):", line)
        if match:
            path[len(match[1]) // 2 :] = [match[2]]
            assert above.strip().startswith("#"), f"{'.'.join(path)} has no comment"
            commented.append(".".join(path))
    assert commented == list(dotted_keys())


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.yaml")), ids=lambda file: file.stem)
def test_other_configs_hold_only_differences(file):
    load_config(file.stem)
    if file != BASE:
        default = dict(flatten(Config().model_dump(mode="json")))
        own = dict(flatten(yaml.safe_load(file.read_text())))
        assert own
        assert not [key for key, value in own.items() if default[key] == value]


def test_every_field_has_a_docstring():
    def check(model):
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name}"
            if hasattr(field.annotation, "model_fields"):
                check(field.annotation)

    check(Config)


def test_overrides_are_yaml_and_the_last_one_wins():
    config = load_config(
        BASE,
        ["train.lr=1e-3", "train.lr=2e-2", "metrics.progress=on", "loader.staging_bytes=3MiB"],
    )
    assert config.train.lr == 0.02
    assert config.metrics.progress == "on"  # text, as in YAML 1.2
    assert config.loader.staging_bytes == 3 * 2**20
    assert load_config(BASE, ["sampler.num_neighbors=[4, -1]"]).sampler.num_neighbors == [4, -1]


@pytest.mark.parametrize(
    "overrides",
    [
        ["storage.max_read_bytes=12345", "train.lr=1e-7", "model.name=gat"],
        [
            "run.dir=0809",
            "data.path=+08",
            "model.name=torch_geometric.nn:GIN",
            'model.args={a: "09_1"}',
        ],
        [
            "run.dir=1e-4",
            "model.name=torch_geometric.nn:GIN",
            'model.args={a: "1e3", b: 1e3, c: {d: ".5"}}',
        ],
        ['sampler.edge_types={"a,schema.b,c": [2, 2]}', "sampler.edge_types.a,x.y,c=[1, 1]"],
    ],
)
def test_dump_reads_back_unchanged(tmp_path, overrides):
    config = load_config(BASE, overrides)
    (tmp_path / "dump.yaml").write_text(dump_config(config))
    assert load_config(tmp_path / "dump.yaml") == config


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.epoch=3", "unknown key train.epoch; did you mean train.epochs?"),
        ("batch_size=3", "unknown key batch_size; did you mean train.batch_size?"),
        ("zzzzzz=3", "unknown key zzzzzz; the sections are run, data, "),
        ("train.epochs=many", "train.epochs: expected an integer, got 'many'"),
        ("train.epochs=true", "train.epochs: expected an integer, got True"),
        ("train.epochs=2.5", "train.epochs: expected an integer, got 2.5"),
        ("train.epochs=0", "train.epochs: expected at least 1, got 0"),
        ("model.dropout=1", "model.dropout: expected less than 1.0, got 1"),
        ("train=3", "train: expected a section with keys, got 3"),
        (
            "cache.policy=mru",
            "cache.policy: expected one of 'auto', 'none', 'round_robin', 'random'",
        ),
        ("cache.bytes=-1", "cache.bytes: size: expected a number of bytes >= 0, got -1"),
        ("cache.window=0", "cache.window: expected at least 1, got 0"),
        ("cache.window=65536", "cache.window: expected at most 65535, got 65536"),
        ("cache.ways=0", "cache.ways: expected auto or an integer from 1 to 2147483647, got 0"),
        (
            "cache.victim.mode=heap",
            "cache.victim.mode: expected one of 'auto', 'none', 'queues' or 'pool'",
        ),
        ("cache.victim.bytes=lots", "cache.victim.bytes: size: expected a size such as 16GiB"),
        ("sampler.num_neighbors=[5, x]", "sampler.num_neighbors.1: expected an integer, got 'x'"),
        ("sampler.num_neighbors=[5, -2]", "sampler.num_neighbors.1: expected at least -1, got -2"),
        ("sampler.layer_dependency=true", "sampler.layer_dependency: an option of kind labor"),
        ("sampler.batch_dependency=2", "sampler.batch_dependency: an option of kind labor"),
        ("sampler.debias=true", "sampler.debias: an option of kind ladies, got kind neighbor"),
        ("device=gpu", "device: expected one of 'auto', 'cpu' or 'cuda', got 'gpu'"),
        ("topology.placement=gpu", "topology.placement: expected one of 'auto', 'host', 'uva'"),
        ("model.num_layers=3", "model.num_layers: expected 2, the number of hops"),
        ("train.eval.num_neighbors=[3]", "train.eval.num_neighbors: expected 2 hops"),
        ("train.epochs", "expected key=value"),
        ("train.epochs=[1", "train.epochs: '[1' is not a YAML value"),
    ],
)
def test_a_mistake_is_named_with_its_full_key(override, message):
    assert message in error_of(override)


def test_a_cache_needs_room():
    lru = "cache.policy=lru"
    assert "cache.bytes: expected more than 0 bytes" in error_of(lru, "cache.bytes=0")
    without = ["cache.policy=none", "cache.bytes=0"]
    assert load_config(BASE, without).cache.bytes == 0  # of no concern
    pool = "cache.victim.mode=pool"
    assert "cache.victim.bytes: expected more" in error_of(lru, pool, "cache.victim.bytes=0")


def test_the_policies_are_those_of_the_planner():
    from lsm.cache.options import CacheOptions
    from lsm.cache.planner import ONLINE_POLICIES

    policies = get_args(CacheOptions.model_fields["policy"].annotation)
    assert policies == ("auto", "none", *ONLINE_POLICIES)


def test_all_mistakes_are_listed():
    message = error_of("train.epochs=0", "model.heads=many", "storage.max_read_bytes=3 miles")
    assert [line.partition(":")[0] for line in message.splitlines()] == [
        "storage.max_read_bytes",
        "model.heads",
        "train.epochs",
    ]


def test_gat_heads_must_divide_the_width():
    assert "expected a multiple of model.heads (3), got 128" in error_of(
        "model.name=gat", "model.heads=3"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train: {epochs: 1, epochs: 2}", "'epochs' appears twice in the section at line 1"),
        ("- 1", "expected sections with keys, got list"),
        ("train: {epoch: 1}", "unknown key train.epoch; did you mean train.epochs?"),
        ("a: [", "is not valid YAML"),
    ],
)
def test_a_bad_file_is_named(tmp_path, text, message):
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        load_config(file)
    assert str(file) in str(caught.value)


def test_an_empty_section_keeps_the_defaults(tmp_path):
    (tmp_path / "empty.yaml").write_text("train:\n  # epochs: 3\n")
    assert load_config(tmp_path / "empty.yaml", ["train.seed=4"]).train.seed == 4


def test_a_config_is_found_by_name_or_the_choice_is_shown():
    assert load_config("quickstart").data.path == "stores/amazon-computers"
    names = "base, coauthor-physics, debian, quickstart"
    with pytest.raises(FileNotFoundError, match=rf"'no-such'.*{names}"):
        load_config("no-such")


def test_nested_values_are_checked_too():
    with pytest.raises(ValueError, match=r"unknown key train\.eval\.batch;"):
        parse_config({"train": {"eval": {"batch": 3}}})


def test_ladies_wants_numbers_of_nodes_and_is_evaluated_with_few_neighbours():
    message = error_of("sampler.kind=ladies", "sampler.num_neighbors=[512, -1]")
    assert "sampler.num_neighbors: expected at least 1 node per hop" in message
    config = load_config(BASE, ["sampler.kind=ladies", "sampler.num_neighbors=[512, 256]"])
    assert config.eval_num_neighbors == [10, 10]


@pytest.mark.parametrize(
    "given", [{"loss": "mse"}, {"metrics": ["rmse"]}, {"label_smoothing": 0.1}], ids=str
)
def test_keys_of_nodes_are_of_no_other_task(given):
    """Also of none that is yet to come."""

    class More(TrainConfig):
        task: Literal["node", "link", "degree"] = "node"

    More(**given)
    for task in ("link", "degree"):
        with pytest.raises(ValueError, match=rf"expected .* with train.task={task}"):
            More(task=task, **given)
