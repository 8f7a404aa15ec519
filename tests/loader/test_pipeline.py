"""The threads of a pipeline, with rows that need no storage."""

import pytest
import torch

from lsm.loader.pipeline import Pipeline
from lsm.loader.prepared import IdsAlone
from lsm.loader.rows_in_flight import RunAhead
from lsm.storage.read_ahead import ReadAhead
from support.announcing import Announcing

SECS = 20


class Failing(Announcing):
    """Has no rows for id 1."""

    completed_ahead = 2

    def __init__(self):
        super().__init__()
        self.asked = []

    def result(self, ids):
        self.asked.append(int(ids))
        if self.asked[-1] == 1:
            raise OSError("no rows")
        return ids


def test_no_batch_is_completed_after_one_that_failed():
    """Ranks that wait for that batch of this rank would not answer to the next."""
    features = Failing()
    pipeline = Pipeline(
        lambda iteration: torch.tensor([iteration]),
        IdsAlone,
        features,
        first=0,
        last=9,
        policy=RunAhead(ReadAhead.fixed(4), 1 << 20, timeout_secs=SECS),
    )
    try:
        batches = iter(pipeline)
        assert next(batches).x.tolist() == [0]
        with pytest.raises(OSError, match="no rows"):
            next(batches)
        (completing,) = (each for each in pipeline._threads if each.name == "lsm-rows")
        completing.join(SECS)
        assert not completing.is_alive()
    finally:
        pipeline.close()
    assert features.asked == [0, 1]
