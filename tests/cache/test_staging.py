"""storage.staging=auto: both options are tried in turns, and the faster is taken.

Time is that of a clock which the test turns; that both deliver the same is tested with the
executor."""

import logging
from types import SimpleNamespace

import pytest

from lsm.cache.staging import OPTIONS, TRY_AGAIN, Staging


class Machine:
    """An executor, and a clock that its batches advance by the cost of their option."""

    def __init__(self, **secs):
        self.secs, self.now, self.options = secs, 0.0, []
        self.executor = SimpleNamespace(set_staging=self.options.append)

    def run(self, staging, num_batches, num_staged=4):
        """The options of the batches."""
        taken = []
        for _ in range(num_batches):
            with staging.batch(num_staged):
                self.now += self.secs[self.options[-1]] if self.options else 1
                taken.append(self.options[-1] if self.options else None)
        return taken

    def staging(self, option="auto"):
        return Staging(option, self.executor, clock=lambda: self.now)


@pytest.mark.parametrize(("gather", "copy", "expected"), [(1, 2, "gather"), (2, 1, "copy")])
def test_the_faster_option_is_taken(caplog, gather, copy, expected):
    machine = Machine(gather=gather, copy=copy)
    staging = machine.staging()
    with caplog.at_level(logging.INFO):
        taken = machine.run(staging, 40)
    trial = taken[: taken.index(expected, 24)]
    assert trial == list(OPTIONS) * 12  # in turns, three of them to warm up
    assert set(taken[24:]) == {expected}
    assert staging.option == expected
    (said,) = [each.getMessage() for each in caplog.records]
    assert said.startswith(f"storage.staging=auto takes {expected}: ")
    assert f"{gather / 4 * 1e6:.2f} us per such row with gather, {copy / 4 * 1e6:.2f} us" in said


def test_it_is_tried_again(caplog):
    caplog.set_level(logging.INFO)
    machine = Machine(gather=1, copy=2)
    staging = machine.staging()
    machine.run(staging, 500)
    machine.secs = {"gather": 3, "copy": 2}  # the cache has filled
    assert set(machine.run(staging, TRY_AGAIN - 501)) == {"gather"}
    assert machine.run(staging, 24) == list(OPTIONS) * 12
    assert set(machine.run(staging, 50)) == {"copy"}
    assert [each.getMessage().split(":")[0] for each in caplog.records] == [
        "storage.staging=auto takes gather",
        "storage.staging=auto takes copy",
    ]


def test_batches_without_rows_from_storage_say_nothing():
    machine = Machine(gather=1, copy=2)
    staging = machine.staging()
    assert machine.run(staging, 30, 0) == [None] * 30
    assert staging.option is None


@pytest.mark.parametrize("option", OPTIONS)
def test_a_option_that_was_given_stays(option):
    machine = Machine(gather=1, copy=1)
    staging = machine.staging(option)
    assert machine.run(staging, TRY_AGAIN + 5) == [option] * (TRY_AGAIN + 5)
    assert machine.options == [option]


def test_a_option_that_is_not():
    with pytest.raises(ValueError, match="staging: expected auto, gather or copy, got 'uva'"):
        Staging("uva", None)
