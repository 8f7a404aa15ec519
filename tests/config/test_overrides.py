"""The values of ``key=value`` texts, and input that is nested too deeply for its parser."""

import math
import re

import pytest

import lsm.embed
from lsm.ablation.config import AblationConfig
from lsm.config.load import find_config, load_config, load_tree
from lsm.core.section import dump_config
from lsm.data.graph_store import GraphStore
from lsm.storage.disk_profile import load_profile

DEPTH = 100_000


@pytest.mark.parametrize(
    "text", ["a #b", "123", "1e3", "true", "2026-01-01", "[x]", "{a: b}", "'q'", " a ", "a: b", "~"]
)
def test_keys_of_text_take_it_as_it_is(text):
    assert load_config("base", [f"run.dir={text}"]).run.dir == text
    assert load_config("base", [f"data.path={text}"]).data.path == text
    study = load_tree(AblationConfig, find_config("eviction", "ablation"), [f"output={text}"])
    assert study.output == text


def test_a_directory_may_be_named_by_a_number(tmp_path):
    (tmp_path / "123.yaml").write_text("run:\n  dir: 123\n")
    with pytest.raises(ValueError, match=r"run\.dir: expected text \(in a file, quotes"):
        load_config(tmp_path / "123.yaml")
    assert load_config("base", ["run.dir=123"]).run.dir == "123"


@pytest.mark.parametrize("text", ["", "null"])
def test_optional_text_may_be_null(text):
    assert load_config("base", [f"data.path={text}"]).data.path is None
    assert load_config("base", [f"run.dir={text}"]).run.dir is None


def test_a_directory_may_not_be_named_by_empty_text(tmp_path):
    (tmp_path / "empty.yaml").write_text("run: {dir: ''}\n")
    with pytest.raises(ValueError, match=r"run\.dir: expected text of at least 1 character"):
        load_config(tmp_path / "empty.yaml")


def test_other_keys_are_yaml():
    settings = load_config(
        "base",
        ["sampler.num_neighbors=[4, 3] # two", "model.num_layers=null", "train.compile=true"],
    )
    assert settings.sampler.num_neighbors == [4, 3]
    assert settings.model.num_layers is None
    assert settings.train.compile is True
    assert load_config("base", ["storage.devices=[a, b]"]).storage.devices == ["a", "b"]
    assert load_config("base", ["loader.prefetch=auto"]).loader.prefetch == "auto"


@pytest.mark.parametrize(
    ("text", "value"),
    [("010", 10), ("008", 8), ("1_000", 1000), ("0x1F", 31), ("0b11", 3), ("+5", 5)],
)
def test_integers_are_decimal_unless_they_say_so(text, value):
    assert load_config("base", [f"train.seed={text}"]).train.seed == value
    assert load_config("base", [f"memory.bytes={text}"]).memory.bytes == value


@pytest.mark.parametrize("text", ["1:30", "0o17", "1_", "0x", "12 nodes"])
def test_texts_with_digits_are_no_integers(text):
    with pytest.raises(ValueError, match=r"^train\.epochs: "):
        load_config("base", [f"train.epochs={text}"])


@pytest.mark.parametrize("text", ["true-names", "false positives", "Trueish"])
def test_text_may_begin_like_true_or_false(tmp_path, text):
    path = tmp_path / "named.yaml"
    path.write_text(f"data: {{path: {text}}}\n")
    assert load_config(path).data.path == text
    assert load_config("base", [OWN, f"model.args.act={text}"]).model.args == {"act": text}
    with pytest.raises(ValueError, match=rf"^train\.compile: expected true or false, got '{text}'"):
        load_config("base", [f"train.compile={text}"])


@pytest.mark.parametrize("text", ["[" * DEPTH, "{a: " * DEPTH])
def test_a_deeply_nested_override_is_one_clear_error(text):
    with pytest.raises(ValueError, match=r"^train\.epochs: .{,80} is not a YAML value") as caught:
        load_config("base", [f"train.epochs={text}"])
    assert "nested too deeply" in str(caught.value)


def test_a_section_that_contains_itself_is_one_clear_error(tmp_path):
    path = tmp_path / "circle.yaml"
    path.write_text("train: &all {lr: *all}")
    with pytest.raises(ValueError, match=r"circle\.yaml is not valid YAML: .*recursive"):
        load_config(path)
    with pytest.raises(ValueError, match=r"^model\.args: .* is not a YAML value: .*recursive"):
        load_config("base", [OWN, "model.args=&all {a: *all}"])


def test_a_number_that_yaml_cannot_hold_names_the_key():
    with pytest.raises(ValueError, match=r"^train\.epochs: .* is not a YAML value"):
        load_config("base", [f"train.epochs={'9' * 5000}"])


@pytest.mark.parametrize("text", [".inf", "-.inf", ".NaN", "1e400"])
@pytest.mark.parametrize("key", ["train.lr", "train.weight_decay", "train.clip_norm"])
def test_numbers_of_the_optimisation_are_finite(key, text):
    with pytest.raises(ValueError, match=rf"^{key}: expected a finite number, got -?(inf|nan)$"):
        load_config("base", [f"{key}={text}"])


@pytest.mark.parametrize(
    ("text", "value"),
    [("2026-01-31", "2026-01-31"), ("2026-13-45", "2026-13-45"), ("=", "="), (".Inf", math.inf)],
)
def test_arguments_of_own_classes_are_read_back_as_they_were(tmp_path, text, value):
    settings = load_config("base", [OWN, f"model.args={{since: {text}}}"])
    assert settings.model.args == {"since": value}
    (tmp_path / "saved.yaml").write_text(dump_config(settings))
    assert load_config(tmp_path / "saved.yaml") == settings


def test_a_deeply_nested_config_is_one_clear_error(tmp_path):
    path = tmp_path / "deep.yaml"
    path.write_text("train: " + "[" * DEPTH)
    with pytest.raises(ValueError, match=r"deep\.yaml is not valid YAML: it is nested too deeply"):
        load_config(path)


@pytest.mark.parametrize("content", ["[" * DEPTH, '{"a":' * DEPTH, "9" * 5000])
def test_json_that_cannot_be_parsed_names_the_file(tmp_path, content):
    (tmp_path / "profile.json").write_text(content)
    with pytest.raises(ValueError, match=r"profile\.json: not valid JSON"):
        load_profile(tmp_path / "profile.json")
    (tmp_path / "meta.json").write_text(content)
    with pytest.raises(ValueError, match=r"meta\.json: not valid JSON"):
        GraphStore.open(tmp_path)


OWN = "model.name=torch_geometric.nn:GIN"


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["model.args={jk: cat, dropout: 0.5}"], {"jk": "cat", "dropout": 0.5}),
        (["model.args.jk=cat", "model.args.dropout=0.5"], {"jk": "cat", "dropout": 0.5}),
        (["model.args={jk: cat}", "model.args.jk=max"], {"jk": "max"}),
        (["model.args.norm_kwargs.eps=1e-3"], {"norm_kwargs": {"eps": 1e-3}}),
        (["model.args.jk=null"], {"jk": None}),
        (["model.args={}"], {}),
    ],
)
def test_entries_of_a_mapping_are_set_one_by_one(overrides, expected):
    assert load_config("base", [OWN, *overrides]).model.args == expected


def test_a_file_has_entries_of_a_mapping_by_their_full_names(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text("model.name: torch_geometric.nn:GIN\nmodel.args.jk: cat\n")
    assert load_config(path, ["model.args.eps=0.1"]).model.args == {"jk": "cat", "eps": 0.1}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.args=3", "model.args: expected a mapping, such as {name: value}, got 3"),
        ("model.args.a.b=3", "model.args.a.b: expected a mapping at a, got 1"),
        ("model.arg.jk=cat", "unknown key model.arg.jk"),
    ],
)
def test_entries_of_something_else_are_named(override, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        load_config("base", [OWN, "model.args.a=1", override])


@pytest.mark.parametrize("overrides", ["train.epochs=5", {"train.epochs": 5}], ids=["text", "dict"])
@pytest.mark.parametrize("load", [lsm.load_config, lsm.embed.load_embed_config])
def test_overrides_are_a_list(load, overrides):
    with pytest.raises(TypeError, match=r"overrides: expected a list, such as \[\"train.epochs=5"):
        load("base", overrides)


@pytest.mark.parametrize("load", [lsm.load_config, lsm.embed.load_embed_config])
def test_a_configuration_is_read_from_a_path(load):
    with pytest.raises(TypeError, match="config: expected a path, got dict"):
        load({})


@pytest.mark.parametrize("config", [None, "base", {"train.epochs": 5}], ids=str)
@pytest.mark.parametrize(
    ("train", "name"),
    [(lsm.fit, "lsm.load_config"), (lsm.embed.train, "lsm.embed.load_embed_config")],
)
def test_training_takes_a_configuration_that_is_read(train, name, config):
    kind = type(config).__name__
    with pytest.raises(TypeError, match=rf"config: expected the result of {name}\(.*, got {kind}"):
        train(config)
