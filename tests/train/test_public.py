"""``lsm.load_config`` and ``lsm.fit``, whatever of the package was imported before."""

import json

import pytest

from support.training import make_store, overrides, run_alone, run_forked

PROGRAM = """
import json, sys
{imports}
config = lsm.load_config("base", json.loads(sys.argv[1]))
summary = {call}(config)
assert lsm.train.trainer.train.__module__ == "lsm.train.trainer"
print(json.dumps(summary))
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("public") / "store")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("imports", "call"),
    [
        ("import lsm", "lsm.fit"),
        ("import lsm.train.trainer\nimport lsm", "lsm.fit"),
        ("from lsm.train import fit\nimport lsm\nassert lsm.fit is fit", "fit"),
        ("import lsm", "lsm.train"),
        ("import lsm.train.trainer", "lsm.train"),
        ("from lsm.train.trainer import train\nimport lsm", "lsm.train"),
        ("import lsm.train as train\nimport lsm\nassert lsm.train is train", "train"),
    ],
)
def test_training_starts_under_both_names(store, tmp_path, imports, call):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(imports=imports, call=call))
    settings = json.dumps(overrides(store, tmp_path / "run", "train.epochs=1"))
    done = run_forked(program, settings)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary == json.loads((tmp_path / "run" / "result.json").read_text())
    assert summary["epochs"] == 1


def test_the_configuration_needs_neither_torch_nor_the_native_module():
    code = """
import sys, lsm
config = lsm.load_config("quickstart", ["cache.window=16"])
assert config.cache.window == 16 and isinstance(config.cache, lsm.CacheOptions)
assert isinstance(config.storage, lsm.StorageOptions)
assert not {"torch", "lsm._core"} & set(sys.modules)
"""
    done = run_alone("-c", code)
    assert done.returncode == 0, done.stderr
