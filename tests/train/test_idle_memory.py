"""Memory that a split has freed goes back to the system before another takes its own."""

import platform

import pytest
import torch

import lsm.train.trainer
from lsm.core import host_memory
from lsm.train.trainer import Trainer, train
from support.training import config, make_store

MIB = 1 << 20
NUM_BLOCKS = 300


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc of glibc keeps freed blocks")
def test_blocks_that_a_split_has_freed_are_not_kept_while_another_is_used(tmp_path, monkeypatch):
    """Blocks of 1 MiB are freed in a step and after an evaluation, and small ones between them are
    not."""
    kept, found = [], []
    step, evaluate = Trainer.train, lsm.train.trainer.evaluate

    def step_that_frees(self, batch):
        if not kept:
            for _ in range(NUM_BLOCKS):
                block = torch.ones(MIB // 4)
                kept.append((block, torch.ones(1024)))
            kept[:] = [small for _, small in kept]
            del block
        elif batch.iteration == 0:
            found.append(anonymous())
        return step(self, batch)

    def anonymous():
        return host_memory.resident_bytes()["anonymous"]

    def watched(*arguments):
        found.append(anonymous())
        result = evaluate(*arguments)
        blocks = [torch.ones(MIB // 4) for _ in range(NUM_BLOCKS)]
        small = [torch.ones(1024) for _ in range(NUM_BLOCKS)]
        del blocks
        kept.extend(small)
        return result

    monkeypatch.setattr(Trainer, "train", step_that_frees)
    monkeypatch.setattr(lsm.train.trainer, "evaluate", watched)
    before = anonymous()
    train(config(make_store(tmp_path / "store"), tmp_path / "run"))
    assert len(found) == 4  # two validations, the second epoch and the test
    assert max(found) < before + NUM_BLOCKS // 2 * MIB
