"""The record of embeddings' quality: both forms trained, and finished runs not trained again."""

import json
import shutil

import pytest

from support.store_files import REPOSITORY
from support.training import run_forked
from support.triples import FAST, NUM_ENTITIES

pytestmark = pytest.mark.slow


def write_triples(folder):
    folder.mkdir(parents=True)
    for split, heads in {"train": range(NUM_ENTITIES), "valid": range(9), "test": range(9)}.items():
        lines = (f"{head}\tr\t{(head + 7) % NUM_ENTITIES}\n" for head in heads)
        (folder / f"{split}.txt").write_text("".join(lines))


def measure(tmp_path):
    """The record, and the runs that were made for it."""
    command = [REPOSITORY / "bench" / "embed_quality.py", "--configs", "wn18rr"]
    command += ["--sources", tmp_path / "sources", "--dir", tmp_path / "scratch"]
    command += [f"--set={key}" for key in FAST if not key.startswith("metrics")]
    done = run_forked(*command)
    assert done.returncode == 0, done.stderr
    trained = [line for line in done.stderr.splitlines() if line.startswith("+ embed train")]
    return json.loads(done.stdout), trained


def test_a_record_is_of_both_forms_and_continues(tmp_path):
    write_triples(tmp_path / "sources" / "wn18rr")
    record, trained = measure(tmp_path)
    assert len(trained) == 2
    (result,) = record["embed_quality"]
    assert (result["config"], result["store"]) == ("wn18rr", "wn18rr")
    assert [result[form]["partitions"] for form in ("memory", "disk")] == [1, 8]
    assert result["disk"]["bytes_read"] > 0
    for form in ("memory", "disk"):
        assert 0 < result[form]["test_mrr"] <= 1
        assert result[form]["protocol"].startswith("filtered, both sides")
    assert result["short_by"] == result["memory"]["test_mrr"] - result["disk"]["test_mrr"]
    assert str(tmp_path) not in json.dumps(record)

    (tmp_path / "scratch" / "wn18rr-disk.json").unlink()
    shutil.rmtree(tmp_path / "scratch" / "wn18rr-disk")
    again, trained = measure(tmp_path)
    assert len(trained) == 1
    assert "embed.partitions=8" in trained[0]
    assert again["embed_quality"][0]["memory"] == result["memory"]
    assert again["embed_quality"][0]["disk"]["test_mrr"] == result["disk"]["test_mrr"]
