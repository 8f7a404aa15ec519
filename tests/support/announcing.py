"""A source of rows that needs no storage."""

from types import SimpleNamespace

import torch

from lsm.data.feature_files import FeatureFiles
from lsm.features.loader import FeatureLoader


class Announcing(FeatureLoader):
    """Gives ids as their rows. ``most``: most batches that were announced and not started."""

    window = 64

    def __init__(self):
        files = FeatureFiles((), 1, 1, torch.uint8)
        storage = SimpleNamespace(outstanding_reads=0, merge_iterations=1)
        super().__init__(files, storage, take_rows=torch.empty)
        self.held = self.most = 0

    def announce(self, ids, *, repeats=False):
        self.held += 1
        self.most = max(self.most, self.held)
        return SimpleNamespace(num_bytes=len(ids), start=lambda: self.start(ids))

    def start(self, ids):
        self.held -= 1
        return SimpleNamespace(
            num_bytes=len(ids), stats={}, arrived=True, result=lambda secs: self.result(ids)
        )

    def result(self, ids):
        return ids
