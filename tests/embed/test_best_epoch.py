"""The embeddings of the best validation are kept, tested and read, whatever interrupts training."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest

from lsm.embed import open_run, trainer
from lsm.embed.config import load_embed_config
from lsm.embed.evaluate import evaluate_run
from lsm.embed.run import EmbeddingRun
from lsm.embed.table import files as partition_files
from lsm.embed.table.layout import PartitionLayout
from lsm.embed.table.slots import Slots
from lsm.embed.trainer import EmbedTrainer, train
from support.training import run_forked, run_job
from support.triples import config, overrides, tables

MRR = {1: 0.3, 2: 0.5, 3: 0.4, 4: 0.6, 5: 0.1, 6: 0.6, 7: 0.2}
BEST = 4
SETTINGS = ("embed.partitions=6", "train.eval_every=1", "checkpoint.every_steps=9")
CRASH = __file__.replace("embed/test_best_epoch.py", "support/crash_embed.py")


@pytest.fixture
def known_mrr(monkeypatch):
    """Validations find MRR."""
    whole = EmbedTrainer._rank

    def rank(self, split, most=0):
        ranking = whole(self, split, most)
        return ranking if split == "test" else replace(ranking, mrr=MRR[self.position.epoch + 1])

    monkeypatch.setattr(EmbedTrainer, "_rank", rank)


@pytest.fixture(scope="module")
def expected(store, tmp_path_factory):
    """By number of epochs: the tables of a run of so many, and its summary."""
    found = {}
    for epochs in (2, BEST, 7):
        folder = tmp_path_factory.mktemp("last")
        plain = ("embed.partitions=6", f"train.epochs={epochs}", "checkpoint.every_steps=9")
        found[epochs] = (train(config(store, folder, *plain)), tables(folder))
    return found


def test_the_configuration_of_a_run_continues_it(store, tmp_path):
    """Also if the run was told to start afresh."""
    run_dir = tmp_path / "run"
    train(config(store, run_dir, *SETTINGS, "train.epochs=1", "checkpoint.resume=never"))
    saved = str(run_dir / "config.yaml")
    with pytest.raises(ValueError, match="holds a finished run"):
        train(load_embed_config(saved, []))
    train(load_embed_config(saved, ["train.epochs=2"]))
    train(config(store, tmp_path / "whole", *SETTINGS, "train.epochs=2"))
    assert tables(run_dir) == tables(tmp_path / "whole")


@pytest.mark.parametrize("partitions", [1, 6])
def test_the_best_is_kept_and_tested(store, tmp_path, known_mrr, partitions):
    more = (f"embed.partitions={partitions}", "train.eval_every=1")
    summary = train(config(store, tmp_path / "run", *more, "train.epochs=7"))
    alone = train(config(store, tmp_path / "alone", more[0], f"train.epochs={BEST}"))
    assert (summary["epochs"], summary["best_epoch"], summary["kept_epoch"]) == (7, BEST, BEST)
    for name in ("test_mrr", "test_hits_at_1", "test_hits_at_10"):
        assert summary[name] == pytest.approx(alone[name], abs=1e-12)
    assert tables(tmp_path / "run", kept=True) == tables(tmp_path / "alone")
    assert tables(tmp_path / "run") != tables(tmp_path / "alone")
    run, one = open_run(tmp_path / "run"), open_run(tmp_path / "alone")
    np.testing.assert_array_equal(run.entities(range(240)), one.entities(range(240)))
    np.testing.assert_array_equal(run.relations(), one.relations())
    assert evaluate_run(run.run, "test")["test_mrr"] == pytest.approx(alone["test_mrr"], abs=1e-12)
    assert len(list((tmp_path / "run").glob("relations-*.bin"))) == 2


def test_the_last_is_kept_if_asked_for(store, tmp_path, known_mrr, expected):
    summary = train(config(store, tmp_path, *SETTINGS, "train.epochs=7", "train.select=last"))
    assert (summary["best_epoch"], summary["kept_epoch"]) == (BEST, 7)
    assert summary["test_mrr"] == pytest.approx(expected[7][0]["test_mrr"], abs=1e-12)
    assert tables(tmp_path, kept=True) == expected[7][1]
    assert EmbeddingRun.open(tmp_path).layout.num_slots == 2


def test_a_finished_run_continues_from_its_last_epoch(store, tmp_path, known_mrr, expected):
    train(config(store, tmp_path, *SETTINGS, "train.epochs=3"))
    assert tables(tmp_path, kept=True) == expected[2][1]
    summary = train(config(store, tmp_path, *SETTINGS, "train.epochs=7"))
    assert summary["kept_epoch"] == BEST
    assert tables(tmp_path, kept=True) == expected[BEST][1]
    assert tables(tmp_path) == expected[7][1]


def test_a_run_that_had_no_validations_gets_room_for_the_best(store, tmp_path, known_mrr, expected):
    train(config(store, tmp_path, "embed.partitions=6", "train.epochs=3"))
    assert EmbeddingRun.open(tmp_path).layout.num_slots == 2
    summary = train(config(store, tmp_path, *SETTINGS, "train.epochs=7"))
    assert summary["kept_epoch"] == BEST
    assert tables(tmp_path, kept=True) == expected[BEST][1]
    assert tables(tmp_path) == expected[7][1]


@pytest.mark.parametrize(
    ("more", "is_refused"),
    [
        ("eval.candidates=uniform", True),
        ("eval.filtered=false", True),
        ("train.eval_edges=3", True),
        ("eval.sample=7", False),  # of no effect with all candidates
        ("checkpoint.every_steps=5", False),
    ],
)
def test_validations_of_another_measure_are_not_compared(store, tmp_path, more, is_refused):
    settings = (*SETTINGS, "embed.partitions=1")
    train(config(store, tmp_path, *settings, "train.epochs=1"))
    longer = config(store, tmp_path, *settings, "train.epochs=2", more)
    if not is_refused:
        assert train(longer)["epochs"] == 2
        return
    with pytest.raises(ValueError, match=rf"other settings: {more.split('=')[0]} \("):
        train(longer)
    last = config(store, tmp_path / "last", *settings, "train.epochs=1", "train.select=last")
    train(last)
    longer = (*settings, "train.epochs=2", "train.select=last", "train.patience=0", more)
    train(config(store, tmp_path / "last", *longer))


def test_a_state_of_an_earlier_version_is_read(store, tmp_path, known_mrr, expected):
    train(config(store, tmp_path, *SETTINGS, f"train.epochs={BEST}"))
    state = json.loads((tmp_path / "state.json").read_text())
    del state["crc32"], state["position"]["sums"]
    state["position"]["best_mrr"] = state["position"].pop("best_score")
    (tmp_path / "state.json").write_text(json.dumps(state))
    summary = train(config(store, tmp_path, *SETTINGS, "train.epochs=7"))
    assert (summary["kept_epoch"], summary["valid_mrr"]) == (BEST, MRR[BEST])
    assert tables(tmp_path) == expected[7][1]


class Crash(Exception):
    pass


@pytest.mark.parametrize("where", ["batch", "before state", "after state", "test"])
def test_an_interrupted_run_keeps_the_same(
    store, tmp_path, known_mrr, expected, monkeypatch, where
):
    """Interrupted at random moments, again and again."""
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    generator = random.Random(seed)
    settings = config(store, tmp_path, *SETTINGS, "train.epochs=7")
    owner, name = {
        "batch": (EmbedTrainer, "train"),
        "test": (EmbedTrainer, "_rank_kept"),
    }.get(where, (trainer, "save_state"))
    whole = getattr(owner, name)
    for _ in range(6):
        at = generator.randrange({"batch": 180, "test": 1}.get(where, 20))
        count = iter(range(10**6))

        def interrupted(*given, _count=count, _at=at, **options):
            if next(_count) != _at:
                return whole(*given, **options)
            if where == "after state":
                whole(*given, **options)
            raise Crash

        with monkeypatch.context() as patched:
            patched.setattr(owner, name, interrupted)
            try:
                train(settings)
            except Crash:
                continue
            break
    if not (tmp_path / "result.json").exists():
        train(settings)
    summary = json.loads((tmp_path / "result.json").read_text())
    assert (summary["best_epoch"], summary["kept_epoch"]) == (BEST, BEST)
    assert summary["test_mrr"] == pytest.approx(expected[BEST][0]["test_mrr"], abs=1e-12)
    assert tables(tmp_path, kept=True) == expected[BEST][1]
    assert tables(tmp_path) == expected[7][1]


@pytest.mark.slow
def test_a_killed_run_keeps_the_same(store, tmp_path):
    """SIGKILL while partitions are written, with validations as they are."""
    more = (*SETTINGS, "train.epochs=4", "embed.lr=0.5")
    whole = train(config(store, tmp_path / "whole", *more))
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    generator = random.Random(seed)
    settings = ["base", *overrides(store, tmp_path / "run", *more)]
    for _ in range(3):
        where = (generator.randrange(120), generator.choice([0, 0.2, 1]))
        if run_forked(CRASH, 0, "swap", *where, *settings).returncode == 0:
            break
    if not (tmp_path / "run" / "result.json").exists():
        train(config(store, tmp_path / "run", *more))
    summary = json.loads((tmp_path / "run" / "result.json").read_text())
    for name in ("best_epoch", "kept_epoch", "test_mrr", "valid_mrr"):
        assert summary[name] == whole[name]
    assert tables(tmp_path / "run", kept=True) == tables(tmp_path / "whole", kept=True)


@pytest.mark.slow
def test_two_ranks_keep_the_best(store, tmp_path):
    """The MRR of the summary is that of the embeddings that are read."""
    more = ("embed.partitions=8", "train.eval_every=1", "train.epochs=6", "embed.lr=1.0")
    command = ("-m", "lsm", "embed", "train", "base", *overrides(store, tmp_path, *more))
    ended = run_job(2, *command)
    assert ended.returncode == 0, ended.stderr
    summary = json.loads(ended.stdout.splitlines()[-1])
    assert summary["kept_epoch"] == summary["best_epoch"]
    kept = evaluate_run(EmbeddingRun.open(tmp_path), "test")
    assert kept["test_mrr"] == pytest.approx(summary["test_mrr"], abs=1e-9)
    valid = evaluate_run(EmbeddingRun.open(tmp_path), "valid")
    assert valid["valid_mrr"] == pytest.approx(summary["valid_mrr"], abs=1e-9)


def test_slots_that_a_checkpoint_names_are_not_written():
    """Over random writes and checkpoints."""
    generator = random.Random(0)
    slots = Slots([1] * 4, num_slots=3)
    named = {"last": [1] * 4}
    for _ in range(2000):
        partition = generator.randrange(4)
        written = slots.write(partition).slot
        assert written in range(3)
        assert all(table[partition] != written for table in named.values())
        if generator.random() < 0.1:
            is_best = generator.random() < 0.3
            named["last"] = slots.current
            named |= {"best": slots.current} if is_best else {}
            slots.save(is_best=is_best)


def test_a_disk_too_small_for_three_slots_is_said_with_the_arithmetic(disk):
    layout = PartitionLayout.of(range(0, 8193, 1024), 80, 3)
    path = disk / "run" / partition_files.FILE_NAME
    message = (
        r"needs 3 slots x 8 partitions x 320 KiB = 7\.5 MiB, and its disk has 6 MiB free; choose "
        "another run.dir, or a smaller embed.dim, or train.select=last, which needs 2 slots"
    )
    (disk / "filler").write_bytes(bytes(2 << 20))
    with pytest.raises(RuntimeError, match=message):
        partition_files.create(path, layout)
    assert not path.exists()
    two = PartitionLayout.of(range(0, 8193, 1024), 80)
    partition_files.create(path, two)
    with pytest.raises(RuntimeError, match=r"has 1 MiB free next to 5 MiB of it"):
        partition_files.grow(path, layout)
    assert path.stat().st_size == two.file_bytes


def test_a_file_size_limit_is_named(tmp_path):
    code = """
import resource, signal, sys
from pathlib import Path
from lsm.embed.table import files
from lsm.embed.table.layout import PartitionLayout
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
try:
    files.create(Path(sys.argv[1]), PartitionLayout.of(range(0, 8193, 1024), 80))
except OSError as error:
    sys.exit(error.strerror)
"""
    ended = run_forked("-c", code, tmp_path / "run" / "partitions.bin")
    message = "the file size limit (ulimit -f) is reached: 5 MiB (5242880 bytes) more needed"
    assert ended.stderr.strip() == f"{message}; raise it"
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["train.select=first"], "train.select: expected"),
        (["train.eval_every=-1"], "train.eval_every: expected auto or an integer of at least 0"),
    ],
)
def test_settings_that_cannot_be(store, tmp_path, more, message):
    with pytest.raises(ValueError, match=message):
        config(store, tmp_path, *more)


def test_validations_need_edges(store, tmp_path):
    from lsm.data.triples.convert import convert_triples

    source = tmp_path / "source"
    source.mkdir()
    for split in ("train", "test"):
        (source / f"{split}.txt").write_text("a\tr\tb\nb\tr\tc\n")
    convert_triples(source, tmp_path / "store", progress=False)
    with pytest.raises(ValueError, match=r"train\.eval_every: .* has no validation edges"):
        train(config(tmp_path / "store", tmp_path / "run", "train.eval_every=1"))
