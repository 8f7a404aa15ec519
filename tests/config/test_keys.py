"""Keys by their full names: guesses for unknown ones, and dotted keys in files."""

import pytest

from lsm.config.keys import nested, unknown_key
from lsm.config.load import find_config, load_config, load_tree
from lsm.config.schema import Config
from lsm.embed.config import EmbedConfig


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("train.epoch", "train.epochs"),
        ("train.num_epochs", "train.epochs"),
        ("train.sede", "train.seed"),
        ("train.lrr", "train.lr"),
        ("train.batch", "train.batch_size"),
        ("train.batchsize", "train.batch_size"),
        ("Train.LR", "train.lr"),
        ("trian.lr", "train.lr"),
        ("cahce.byte", "cache.bytes"),
        ("cache.vitcim.bytes", "cache.victim.bytes"),
        ("cache.mode", "cache.victim.mode"),
        ("train.eval.batch", "train.eval.batch_size"),
        ("model.lr", "train.lr"),
        ("train.device", "device"),
        ("storage.device", "storage.devices"),
        ("storage.engin", "storage.engine"),
        ("model.layers", "model.num_layers"),
        ("batch_size", "train.batch_size"),
        ("num_layer", "model.num_layers"),
        ("seed", "train.seed"),
        ("bytes", "memory.bytes or cache.bytes"),
    ],
)
def test_a_slip_gets_the_key_that_was_meant(name, meant):
    assert unknown_key(Config, name) == f"unknown key {name}; did you mean {meant}?"


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("train.gamma", "train has batch_size, epochs, seed, lr, "),
        ("train.gradient", "train has batch_size, "),
        ("train.gpu", "train has batch_size, "),
        ("train.bytes", "train has batch_size, "),
        ("model.type", "model has name, args, hidden_dim, num_layers, dropout, heads"),
        ("data.dir", "data has path, input_type, topology"),
        ("run.path", "run has dir"),
        ("memory.limit", "memory has bytes"),
        ("cache.size", "cache has policy, "),
        ("train.eval.", "train.eval has num_neighbors, batch_size"),
        ("gamma", "the sections are run, data, memory, "),
        ("learning_rate", "the sections are run, data, memory, "),
        ("evaluation.every", "the sections are run, data, memory, "),
        ("train.lr.x", "the sections are run, data, memory, "),
        ("", "the sections are run, data, memory, "),
    ],
)
def test_another_name_gets_the_keys_that_there_are(name, listed):
    text = unknown_key(Config, name)
    assert text.startswith(f"unknown key {name}; {listed}")
    assert "did you mean" not in text


def test_a_python_option_is_guessed_as_rarely():
    from lsm.cache.options import CacheOptions

    with pytest.raises(TypeError, match="unknown option victim_byte; did you mean victim_bytes"):
        CacheOptions(victim_byte=1)
    with pytest.raises(TypeError, match="unknown option capacity; expected policy, ways"):
        CacheOptions(capacity=1)


def write(tmp_path, text):
    path = tmp_path / "own.yaml"
    path.write_text(text)
    return path


def test_a_file_may_have_keys_by_their_full_names(tmp_path):
    path = write(
        tmp_path,
        "train.lr: 0.5\n"
        "train: {epochs: 3, eval.batch_size: 7}\n"
        "train.eval.num_neighbors: [4, 4]\n"
        "cache:\n  victim.bytes: 16M\n"
        "loader:\nloader.prefetch: 9\n",
    )
    config = load_config(path, ["train.seed=5"])
    assert (config.train.lr, config.train.epochs, config.train.seed) == (0.5, 3, 5)
    assert (config.train.eval.batch_size, config.train.eval.num_neighbors) == (7, [4, 4])
    assert (config.cache.victim.bytes, config.loader.prefetch) == (16 << 20, 9)
    tree = load_tree(EmbedConfig, write(tmp_path, "embed.lr: 0.25\n"))
    assert tree.embed.lr == 0.25


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train.lr: 1\ntrain: {lr: 2}", r"own\.yaml: train\.lr is given twice"),
        ("train: {eval: {batch_size: 1}, eval.batch_size: 2}", r"train\.eval\.batch_size is given"),
        ("train: 3\ntrain.lr: 1", r"own\.yaml: train is given twice"),
        ("train.gamma: 3", r"unknown key train\.gamma; train has batch_size"),
        ("train.lr.x: 3", r"train\.lr"),
        ("train..lr: 3", r"unknown key train\.\.lr"),
        (".lr: 3", r"unknown key \.lr"),
        ("train.: 3", r"unknown key train\."),
    ],
)
def test_a_wrong_dotted_key_is_named(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        load_config(write(tmp_path, text))


def test_nested_values_stay_as_they_are():
    values = {"a": {"b": [{"c.d": 1}], "e": None}, 3: "x"}
    assert nested(values) == values


@pytest.mark.parametrize(
    ("text", "fanouts"), [("10,5", [10, 5]), ("10, -1 # all", [10, -1]), ("[4, 3]", [4, 3])]
)
def test_a_list_needs_no_brackets_on_the_command_line(text, fanouts):
    assert load_config("base", [f"sampler.num_neighbors={text}"]).sampler.num_neighbors == fanouts
    both = [f"train.eval.num_neighbors={text}"]
    assert load_config("base", both).train.eval.num_neighbors == fanouts


def test_a_list_of_texts_needs_no_brackets():
    config = load_config("base", ["storage.devices=0000:01:00.0,/dev/libnvm0@2"])
    assert config.storage.devices == ["0000:01:00.0", "/dev/libnvm0@2"]
    assert load_config("base", ["storage.devices=/dev/libnvm0"]).storage.devices == ["/dev/libnvm0"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("10;5", r"num_neighbors\.0: expected an integer, got '10;5'"),
        ("10", r"num_neighbors: expected a list, such as \[10, 5\], got 10"),
        ("10,x", r"num_neighbors\.1: expected an integer, got 'x'"),
        ("10]", r"num_neighbors: .* is not a YAML value"),
    ],
)
def test_a_wrong_list_is_named(text, message):
    with pytest.raises(ValueError, match=message):
        load_config(find_config("base"), [f"sampler.num_neighbors={text}"])


MOVED = {"num_threads": 3, "prefetch": 9, "max_prefetch": 17, "staging_bytes": 5 << 20}


@pytest.mark.parametrize("key", MOVED)
def test_a_moved_key_is_read_with_a_hint(tmp_path, caplog, key):
    old, value = f"sampler.{key}", MOVED[key]
    from_file = load_config(write(tmp_path, f"sampler: {{{key}: {value}, kind: labor}}\n"))
    assert f"the key {old} is called loader.{key} now" in caplog.text
    caplog.clear()
    overridden = load_config("base", [f"{old}={value}", "sampler.kind=labor"])
    assert caplog.text.count(f"the key {old} is called loader.{key} now") == 1
    for config in (from_file, overridden):
        assert getattr(config.loader, key) == value
        assert config.sampler.kind == "labor"
    again = load_config("base", [f"{old}={value}", f"loader.{key}=2"])
    assert getattr(again.loader, key) == 2


def test_a_key_by_both_of_its_names_is_refused(tmp_path):
    path = write(tmp_path, "sampler.prefetch: 3\nloader.prefetch: 4\n")
    with pytest.raises(ValueError, match=r"loader\.prefetch: given twice, as sampler\.prefetch"):
        load_config(path)
