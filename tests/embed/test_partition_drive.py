"""Partitions on a raw drive: the numbers of a run in files, and no other data lost.

A drive is a file that an emulated controller shows as a namespace."""

import signal

import pytest

from lsm.distributed.environment import World
from lsm.embed import job, open_run, trainer
from lsm.embed.run import EmbeddingRun
from lsm.embed.table.drive import RECORD_NAME
from lsm.embed.trainer import train
from lsm.storage.nvme.label import LABEL_BYTES, read_label, write_label
from lsm.storage.transfers import TransferOptions
from support.training import run_forked
from support.triples import SIX_PARTITIONS, config, overrides, tables

CRASH = __file__.replace("embed/test_partition_drive.py", "support/crash_embed.py")
DRIVE_BYTES = (3 << 20) + 512  # the label lies in the last whole page


@pytest.fixture
def drive(tmp_path):
    path = tmp_path / "namespace"
    path.write_bytes(bytes(DRIVE_BYTES))
    return path


def on(drive, *more):
    return (*SIX_PARTITIONS, "storage.engine=nvme", f"storage.devices=[{drive}]", *more)


def put(drive, offset, data):
    content = bytearray(drive.read_bytes())
    content[offset : offset + len(data)] = data
    drive.write_bytes(content)


def label_of(drive):
    end = DRIVE_BYTES // LABEL_BYTES * LABEL_BYTES
    return drive.read_bytes()[end - LABEL_BYTES : end]


def test_a_run_on_a_drive_learns_what_one_in_files_does(store, whole, drive, tmp_path):
    settings = config(store, tmp_path / "run", *on(drive))
    summary = train(settings)
    assert tables(tmp_path / "run", drive) == whole
    assert not (tmp_path / "run" / "partitions.bin").exists()
    layout = EmbeddingRun.open(tmp_path / "run").layout
    assert summary["bytes_written"] >= 6 * layout.frame_bytes
    assert not any(drive.read_bytes()[layout.file_bytes : -2 * LABEL_BYTES])
    assert not any(drive.read_bytes()[-512:])
    assert read_label(label_of(drive), "lsm-gnn partitions")["run_dir"] == str(tmp_path / "run")


def test_a_run_on_a_drive_is_read_as_one_in_files(store, drive, tmp_path):
    for name, more in (("files", SIX_PARTITIONS), ("drive", on(drive))):
        train(config(store, tmp_path / name, *more))
    in_files, on_drive = (open_run(tmp_path / name) for name in ("files", "drive"))
    ids = [239, 0, 7, 100, 7]
    assert on_drive.entities(ids).equal(in_files.entities(ids))
    for ours, theirs in zip(on_drive.blocks(), in_files.blocks(), strict=True):
        assert ours[0] == theirs[0]
        assert ours[1].equal(theirs[1])


@pytest.mark.slow
@pytest.mark.parametrize(("where", "number"), [("swap", 4), ("swap", 17), ("state", 1)])
def test_a_killed_run_on_a_drive_continues(store, whole, drive, tmp_path, where, number):
    settings = overrides(store, tmp_path / "run", *on(drive))
    killed = run_forked(CRASH, 0, where, number, 0, "base", *settings)
    assert killed.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)
    train(config(store, tmp_path / "run", *on(drive)))
    assert tables(tmp_path / "run", drive) == whole


FEATURES = write_label("lsm-gnn features", {"store": "papers"})


@pytest.mark.parametrize(
    ("offset", "data", "found"),
    [
        (1080, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
        (0, b"XFSB", "an XFS file system"),
        (65_600, b"_BHRfS_M", "a Btrfs file system"),
        (536, b"LVM2 001", "a volume of LVM"),
        (4096, b"\xfc\x4e\x2b\xa9", "a part of a RAID"),
        (510, b"\x55\xaa", "a partition table"),
        (512, b"EFI PART", "a partition table"),
        ((3 << 20) - LABEL_BYTES, FEATURES, "features of store 'papers'"),
        (0, b"\1", "data of another kind"),
        (700_001, b"\1", "data of another kind"),
        pytest.param((3 << 20) // 2, bytes(512) + b"\1" * 65_536, "data of another kind", id="mid"),
    ],
)
def test_a_drive_that_holds_data_is_left_as_it_is(store, drive, tmp_path, offset, data, found):
    put(drive, offset, data)
    before = drive.read_bytes()
    with pytest.raises(ValueError, match=rf"{drive} holds {found}.*left as it is.*storage.erase="):
        train(config(store, tmp_path / "run", *on(drive)))
    assert drive.read_bytes() == before
    train(config(store, tmp_path / "run", *on(drive, f"storage.erase={drive}")))
    assert drive.read_bytes() != before


def test_the_drive_of_another_run_is_left_as_it_is(store, whole, drive, tmp_path):
    train(config(store, tmp_path / "first", *on(drive)))
    before = drive.read_bytes()
    with pytest.raises(ValueError, match=rf"holds the partitions of the run in {tmp_path}/first"):
        train(config(store, tmp_path / "second", *on(drive)))
    assert drive.read_bytes() == before
    assert tables(tmp_path / "first", drive) == whole


def test_a_refused_drive_leaves_the_run_of_its_directory(store, whole, drive, tmp_path):
    train(config(store, tmp_path / "run", *SIX_PARTITIONS))
    put(drive, 0, b"XFSB")
    with pytest.raises(ValueError, match="holds an XFS file system"):
        train(config(store, tmp_path / "run", *on(drive, "checkpoint.resume=never")))
    assert tables(tmp_path / "run") == whole


def test_a_run_that_starts_afresh_takes_its_own_drive(store, whole, drive, tmp_path):
    train(config(store, tmp_path / "run", *on(drive, "train.epochs=1")))
    train(config(store, tmp_path / "run", *on(drive, "checkpoint.resume=never")))
    assert tables(tmp_path / "run", drive) == whole


@pytest.mark.slow
def test_a_run_killed_before_its_first_checkpoint_takes_its_drive_again(
    store, whole, drive, tmp_path, monkeypatch
):
    def fail(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "save_state", fail)
        with pytest.raises(KeyboardInterrupt):
            train(config(store, tmp_path / "run", *on(drive)))
    assert any(drive.read_bytes())
    train(config(store, tmp_path / "run", *on(drive)))
    assert tables(tmp_path / "run", drive) == whole


def test_a_run_continues_on_its_own_drive_only(store, drive, tmp_path):
    train(config(store, tmp_path / "run", *on(drive, "train.epochs=1")))
    other = tmp_path / "other"
    other.write_bytes(bytes(DRIVE_BYTES))
    with pytest.raises(ValueError, match=rf"{other} holds nothing, and not the partitions of .*"):
        train(config(store, tmp_path / "run", *on(other, f"storage.erase={other}")))
    assert not any(other.read_bytes())
    with pytest.raises(ValueError, match=rf"lie on a drive \(they were written to {drive}\)"):
        train(config(store, tmp_path / "run", *SIX_PARTITIONS))
    renamed = drive.rename(tmp_path / "renamed")
    train(config(store, tmp_path / "run", *on(renamed)))
    with pytest.raises(ValueError, match="holds nothing, and not the partitions of"):
        list(EmbeddingRun.open(tmp_path / "run", [f"storage.devices=[{other}]"]).blocks())


def test_a_file_of_partitions_is_not_taken_for_a_drive(store, drive, tmp_path):
    train(config(store, tmp_path / "run", *SIX_PARTITIONS, "train.epochs=1"))
    with pytest.raises(ValueError, match="holds nothing, and not the partitions of"):
        train(config(store, tmp_path / "run", *on(drive)))
    assert not (tmp_path / "run" / RECORD_NAME).exists()


def test_a_drive_that_is_too_small_is_refused_with_the_arithmetic(store, drive, tmp_path):
    drive.write_bytes(bytes(24 * 4096))
    with pytest.raises(ValueError, match=r"has 96 KiB, and 2 slots x 6 partitions x 20 KiB need"):
        train(config(store, tmp_path / "run", *on(drive, "embed.dim=64")))
    assert not any(drive.read_bytes())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devices": ["0000:01:00.0"]}, "storage.engine: expected nvme .* got auto"),
        ({"engine": "posix", "transport": "sysfs"}, "storage.engine: expected nvme"),
        ({"engine": "nvme", "transport": "sysfs"}, r"storage.devices: .*such as \[0000:01:00.0\]"),
        ({"engine": "nvme", "devices": ["a", "b"]}, "storage.devices: "),
        ({"engine": "nvme", "devices": ["a"], "erase": "b"}, "storage.erase: .* got b"),
        ({"erase": "b"}, "storage.erase: .* got b"),
    ],
)
def test_keys_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        TransferOptions(**options)


def test_ranks_do_not_share_a_controller(store, tmp_path, monkeypatch):
    settings = config(
        store,
        tmp_path / "run",
        "storage.engine=nvme",
        "storage.transport=sysfs",
        "storage.devices=[ffff:ff:1f.7]",
        "embed.partitions=8",
    )
    world = World(rank=0, size=2, local_rank=0, local_size=2, node_rank=0)
    with (
        pytest.raises(ValueError, match="2 ranks would share ffff:ff:1f"),
        job.open_job(settings, world, tmp_path / "run"),
    ):
        pass


def test_a_run_on_a_drive_gets_room_for_the_best(store, drive, tmp_path):
    """After epochs without validations."""
    later = ("train.epochs=4", "train.eval_every=1")
    for name, more in (("files", SIX_PARTITIONS), ("drive", on(drive))):
        train(config(store, tmp_path / name, *more))
        train(config(store, tmp_path / name, *more, *later))
    layout = EmbeddingRun.open(tmp_path / "drive").layout
    assert layout.num_slots == 3
    assert read_label(label_of(drive), "lsm-gnn partitions")["bytes"] == layout.file_bytes
    for kept in (False, True):
        assert tables(tmp_path / "drive", drive, kept=kept) == tables(tmp_path / "files", kept=kept)


def test_a_drive_without_room_for_the_best_is_said(store, drive, tmp_path):
    settings = ("embed.dim=640", "train.epochs=1")
    train(config(store, tmp_path / "run", *on(drive), *settings))
    needs = r"and 3 slots x 6 partitions x .* need .*or train\.select=last, which needs 2 slots"
    more = ("train.epochs=2", "train.eval_every=1")
    with pytest.raises(ValueError, match=needs):
        train(config(store, tmp_path / "run", *on(drive), *settings, *more))
