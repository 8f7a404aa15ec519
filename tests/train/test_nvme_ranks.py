"""Jobs of several ranks that read through NVMe queue pairs: a controller for each of them."""

from __future__ import annotations

import re

import pytest

from lsm.run.drives import check_drives
from support.training import losses, overrides, run_job, run_ranks

pytestmark = pytest.mark.slow


def train(store, run_dir, *settings):
    arguments = overrides(store, run_dir, "train.batch_size=32", "train.epochs=1", *settings)
    job = run_job(2, "-m", "lsm", "train", "base", *arguments)
    assert job.returncode == 0, job.stderr
    return losses(run_dir)


def test_ranks_over_emulated_controllers_train_as_over_other_engines(store, tmp_path):
    expected = train(store, tmp_path / "posix", "storage.engine=posix")
    assert len(expected) == 5
    assert train(store, tmp_path / "nvme", "storage.engine=nvme") == expected


def test_ranks_that_name_the_same_drive_are_told_on_every_rank(store, tmp_path):
    """Before any rank looks for the drive, whose absence would be another error."""
    transport, device = "libnvm", "/dev/libnvm99"
    settings = [f"storage.transport={transport}", f"storage.devices=[{device}, {device}@2]"]
    arguments = overrides(store, tmp_path / "run", "storage.engine=nvme", *settings)
    codes, errors = run_ranks(2, [["-m", "lsm", "train", "base", *arguments]] * 2)
    assert codes == [1, 1]
    for rank, lines in errors.items():
        (line,) = lines
        assert line.startswith(
            f"error: rank {rank}: storage.devices: ranks 0 and 1 of one machine both name {device},"
        )
        assert "a controller belongs to one process; start one rank per machine" in line
    assert not (tmp_path / "run").exists()


def test_a_drive_that_one_rank_lacks_ends_all(store, tmp_path):
    """Each rank with a drive of its own; neither is there, and the job does not hang."""
    commands = [
        [
            *("-m", "lsm", "train", "base"),
            *overrides(store, tmp_path / "run", "storage.engine=nvme", "storage.transport=sysfs"),
            f"storage.devices=[ffff:ff:1f.{rank}]",
        ]
        for rank in range(2)
    ]
    codes, errors = run_ranks(2, commands)
    assert codes == [1, 1]
    for rank, (line,) in errors.items():
        assert re.search(rf"no PCI function at ffff:ff:1f\.{rank}|another rank ended", line)


def test_which_drives_ranks_may_have():
    check_drives([(0, ["0000:01:00.0@1", "0000:01:00.0@2"]), (0, ["0000:02:00.0"])])
    check_drives([(0, ["/dev/libnvm0"]), (1, ["/dev/libnvm0"])])
    check_drives([(0, []), (0, [])])
    with pytest.raises(ValueError, match=r"ranks 1 and 2 .* name 0000:02:00\.0, "):
        check_drives(
            [(0, ["0000:01:00.0"]), (0, ["0000:02:00.0"]), (0, ["0000:03:00.0", "0000:02:00.0@7"])]
        )
