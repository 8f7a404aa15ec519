"""SIGKILL at random moments, also while a partition or a checkpoint is written; a full disk."""

import random
import shutil
import signal

import pytest

from lsm.embed.trainer import train
from support.training import run_forked
from support.triples import SIX_PARTITIONS, config, overrides, tables

pytestmark = pytest.mark.slow

CRASH = __file__.replace("embed/test_embed_kills.py", "support/crash_embed.py")


@pytest.mark.parametrize("where", ["batch", "swap", "state"])
def test_a_killed_run_continues_to_the_same_numbers(store, whole, tmp_path, where):
    """Kills run after run of one directory, then lets it end."""
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    generator = random.Random(seed)
    killed = 0
    settings = ["base", *overrides(store, tmp_path / "run", *SIX_PARTITIONS)]
    for _ in range(3):
        number = generator.randrange({"batch": 30, "swap": 25, "state": 4}[where])
        delay_ms = generator.choice([0, 0.2, 1, 3])
        ended = run_forked(CRASH, 0, where, number, delay_ms, *settings)
        if ended.returncode == 0:
            break
        killed += ended.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)
    assert killed
    if not (tmp_path / "run" / "result.json").exists():
        train(config(store, tmp_path / "run", *SIX_PARTITIONS))
    assert tables(tmp_path / "run") == whole


def test_a_full_disk_at_a_checkpoint_leaves_the_one_before(store, disk, tmp_path, monkeypatch):
    settings = config(store, disk / "run", *SIX_PARTITIONS, "embed.dim=8", "metrics.jsonl=false")
    filler = disk / "filler"

    from lsm.embed import trainer

    whole, count = trainer.save_state, iter(range(100))

    def save_state(*arguments, **options):
        if next(count) == 3:
            filler.write_bytes(bytes(max(0, shutil.disk_usage(disk).free - 100)))
        return whole(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(trainer, "save_state", save_state)
        with pytest.raises(RuntimeError, match=r"run.dir: cannot write .*No space left"):
            train(settings)
    filler.unlink()
    train(settings)
    train(config(store, tmp_path, *SIX_PARTITIONS, "embed.dim=8", "metrics.jsonl=false"))
    assert tables(disk / "run") == tables(tmp_path)
