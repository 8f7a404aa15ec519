"""The files of the package that a batch passes in training: each is one more to read and to change.

A file counts if one of its functions takes or returns a batch, in any of its forms, or takes its
ids, from the draw of the seeds to the call of the network. Layers are the network's own.
"""

import sys
import threading
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path

import torch

import lsm
from lsm.cache.planner import Plan
from lsm.features.cached import AnnouncedBatch
from lsm.features.pending_batch import PendingBatch
from lsm.loader.batch import Batch
from lsm.loader.loader import Loader
from lsm.loader.prepared import Prepared
from lsm.nn.models import SampledGNN
from lsm.sampler.neighbor import SampledGraph
from lsm.sampler.seeds import SeedBatch
from lsm.train.trainer import Trainer, train
from support.training import config, make_store

PACKAGE = Path(lsm.__file__).parent
FORMS = (SeedBatch, SampledGraph, Prepared, AnnouncedBatch, Plan, PendingBatch, Batch)
FROM_DISK = ("storage.engine=io_uring", "cache.policy=lookahead", "cache.bytes=4KiB")

FILES = {
    "seeds": {"sampler/seeds.py"},
    "sample": {"sampler/neighbor.py", "core/ids.py"},
    "order": {"loader/loader.py", "loader/pipeline.py", "loader/prepared.py"},
    "room": {"loader/rows_in_flight.py"},
    "plan": {"features/cached.py", "cache/planner.py", "features/pending_batch.py"},
    "read": {"storage/read_scheduler.py", "storage/row_map.py"},
    "replay": {"features/tiers.py"},
    "batch": {"loader/node_batches.py", "loader/batch.py"},
    "step": {"run/loop.py", "train/trainer.py"},
    "task": {"train/tasks/task.py", "train/tasks/node_prediction.py"},
    "network": {"nn/models.py"},
}


class Passed:
    """The functions that a batch passes, by file: a hook of sys.setprofile()."""

    def __init__(self) -> None:
        self.functions: defaultdict[str, set[str]] = defaultdict(set)
        self._trains = threading.local()

    def __call__(self, frame, event, argument) -> None:
        code = frame.f_code
        path = Path(code.co_filename)
        if event not in ("call", "return") or not path.is_relative_to(PACKAGE):
            return
        if code is Loader._next_batch.__code__:
            self._trains.network = False
        if getattr(self._trains, "network", False):
            return
        if self._is_carried(frame, event, argument):
            self.functions[path.relative_to(PACKAGE).as_posix()].add(code.co_qualname)
        if event == "call" and code is SampledGNN.forward.__code__:
            self._trains.network = True

    @staticmethod
    def _is_carried(frame, event, argument) -> bool:
        if event == "return":
            return isinstance(argument, FORMS)
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        arguments = [frame.f_locals.get(name) for name in names]
        return any(isinstance(each, FORMS) or are_ids(each) for each in arguments)


def are_ids(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.int64 and value.dim() == 1


@contextmanager
def hooked(hook):
    threading.setprofile(hook)
    sys.setprofile(hook)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def test_a_batch_passes_these_files(tmp_path, monkeypatch):
    passed, items = Passed(), Trainer.items

    def hooked_items(trainer):
        with hooked(passed):
            yield from items(trainer)

    monkeypatch.setattr(Trainer, "items", hooked_items)
    store = make_store(tmp_path / "store")
    train(config(store, tmp_path / "run", "train.epochs=1", *FROM_DISK))
    found = passed.functions
    print(len(found), "files:", *sorted(found))
    assert "NodeSeeds._at" in found["sampler/seeds.py"]
    assert "SampledGNN.forward" in found["nn/models.py"]
    assert set(found) == set.union(*FILES.values())
