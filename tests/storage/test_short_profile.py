"""A run that finds no disk profile measures one, keeps it, and takes the same steps."""

import errno
import logging
import shutil

import pytest

from lsm.data.synth import synthesize
from lsm.distributed import collectives
from lsm.distributed.collectives import World
from lsm.storage import short_profile
from lsm.storage.disk_profile import disk_facts, load_profile, save_profile
from lsm.storage.measure import measure_engine
from lsm.storage.measure_profile import feature_source
from lsm.storage.short_profile import Found, find_on_machines, find_profile, measure_briefly
from lsm.train.trainer import train
from support.disk_profile import make_profile
from support.training import TRAIN_MEASURED, config, losses, make_store, overrides, run_job


@pytest.fixture
def store(tmp_path):
    """6,000 rows of 256 bytes, which count as enough to measure; without a profile."""
    path = tmp_path / "store"
    synthesize(path, nodes=6000, dim=64, classes=3, avg_degree=2, progress=False)
    return path


@pytest.fixture(autouse=True)
def small_is_enough(monkeypatch):
    monkeypatch.setattr(short_profile, "_LEAST_BYTES", 1 << 20)


def test_a_store_without_a_profile_gets_one(store):
    found = find_profile("auto", store, "posix")
    assert found.source.endswith(f"kept in {store / 'profile.json'}")
    assert load_profile(store / "profile.json") == found.profile
    assert found.profile.device == disk_facts(store)
    assert found.profile.engine == "posix"
    assert (found.profile.file_bytes, found.profile.num_files) == (6000 * 256, 1)
    assert found.profile.peak_iops == max(point.iops for point in found.profile.iops)
    assert find_profile("auto", store, "posix") == Found(found.profile, str(store / "profile.json"))


def test_a_profile_of_this_device_and_engine_is_taken_as_it_is(store):
    profile = make_profile(store)
    save_profile(profile, store / "profile.json")
    assert find_profile("auto", store, "posix").profile == profile
    for setting, engine in (("none", "posix"), ("auto", "memory"), ("auto", "nvme")):
        assert find_profile(setting, store, engine) == Found()


def test_a_profile_of_another_device_is_replaced(store):
    profile = make_profile(store)
    elsewhere = profile.device.model_copy(update={"bytes": 17})
    save_profile(profile.model_copy(update={"device": elsewhere}), store / "profile.json")
    # By name: no questions asked.
    assert find_profile(str(store / "profile.json"), store, "posix").profile.device == elsewhere
    found = find_profile("auto", store, "posix")
    assert found.profile.device == profile.device
    assert load_profile(store / "profile.json") == found.profile


def test_a_profile_of_another_engine_stays_and_the_measured_one_serves_this_run(store):
    profile = make_profile(store, engine="io_uring")
    save_profile(profile, store / "profile.json")
    found = find_profile("auto", store, "posix")
    assert found.profile.engine == "posix"
    assert found.source.endswith(f"for this run only: {store / 'profile.json'} is of io_uring")
    assert load_profile(store / "profile.json") == profile


def test_a_store_that_cannot_be_written_is_measured_for_this_run(store, monkeypatch):
    def refuse(profile, path):
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(short_profile, "save_profile", refuse)
    found = find_profile("auto", store, "posix")
    assert found.profile is not None
    assert "for this run only" in found.source
    assert "Read-only file system" in found.source
    assert not (store / "profile.json").exists()


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EINVAL, "Invalid argument", "features.bin"),
        RuntimeError("storage.num_threads: the system refuses to start so many threads, got 128"),
    ],
)
def test_what_cannot_be_measured_leaves_the_settings_fixed(store, monkeypatch, error):
    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr(short_profile, "measure_engine", fail)
    found = find_profile("auto", store, "posix")
    assert found.profile is None
    assert "could not be measured" in found.source
    assert str(error.args[-1]) in found.source


def test_a_device_that_is_too_slow_is_given_up(store, monkeypatch):
    monkeypatch.setattr(short_profile, "_LIMIT_SECS", 0.0)
    found = find_profile("auto", store, "posix")
    assert found.profile is None
    assert "too slow to be measured in 0 s" in found.source


def test_a_missing_or_broken_file_is_an_error(store):
    with pytest.raises(FileNotFoundError, match="no such disk profile"):
        find_profile(str(store / "other.json"), store, "posix")
    (store / "profile.json").write_text("{")
    with pytest.raises(ValueError, match="not valid JSON"):
        find_profile("auto", store, "posix")


def test_a_store_that_is_read_in_no_time_is_not_measured(store, monkeypatch):
    monkeypatch.undo()
    assert find_profile("auto", store, "posix") == Found()
    assert not (store / "profile.json").exists()


def test_a_measurement_without_time_has_reads(store):
    """On a busy machine the time may pass before a read ends."""
    assert measure_engine(feature_source(store), "posix", 4096, 1, 0.0, 0)["iops"] > 0


def test_a_measurement_reads_a_bounded_number_of_bytes(store, monkeypatch):
    read = []

    def counted(source, engine, block_bytes, depth, seconds, seed, **options):
        assert options["most_bytes"] <= source.num_bytes // 8
        # However long it may take.
        run = measure_engine(source, engine, block_bytes, depth, 3600, seed, **options)
        read.append(run["iops"])
        return run

    monkeypatch.setattr(short_profile, "measure_engine", counted)
    monkeypatch.setattr(short_profile, "_LIMIT_SECS", 3600)
    measure_briefly(feature_source(store), "posix")
    assert len(read) == 10  # three depths and two more sizes, twice


@pytest.mark.parametrize("local_rank", [0, 1])
def test_ranks_of_a_machine_take_what_its_first_found(store, monkeypatch, local_rank):
    profile = make_profile(store)
    asked = []

    def find(*arguments):
        asked.append(arguments)
        return Found(profile, "here")

    def gather(mine, world):
        host, _ = mine
        own = [(host, Found(profile, "here")), (host, None)]
        own[world.local_rank] = mine
        return [("elsewhere", Found(None, "there")), ("elsewhere", None), *own]

    monkeypatch.setattr(short_profile, "find_profile", find)
    monkeypatch.setattr(collectives, "gather_objects", gather)
    world = World(rank=2 + local_rank, size=4, local_rank=local_rank, local_size=2)
    assert find_on_machines("auto", store, "posix", world) == Found(profile, "here")
    assert len(asked) == (local_rank == 0)

    def fail(mine, world):
        return [("elsewhere", ValueError("broken")), *gather(mine, world)[1:]]

    monkeypatch.setattr(collectives, "gather_objects", fail)
    with pytest.raises(ValueError, match="broken"):
        find_on_machines("auto", store, "posix", world)


def test_training_measures_once_and_says_so(tmp_path, monkeypatch, caplog):
    store = make_store(tmp_path / "small")
    monkeypatch.setattr(short_profile, "_LEAST_BYTES", 0)
    # The store is smaller than the least that can be measured: what is measured is made up.
    monkeypatch.setattr(
        short_profile, "measure_briefly", lambda source, engine: make_profile(store)
    )

    def run(name, *settings):
        caplog.clear()
        with caplog.at_level(logging.INFO):
            train(config(store, tmp_path / name, "storage.engine=posix", *settings))
        said = [line for line in caplog.messages if "measured" in line or "profile" in line]
        return losses(tmp_path / name), said

    plain, said = run("none", "storage.profile=none")
    assert said == []
    got, (line,) = run("first")
    assert got == plain
    assert "as the disk was measured (measured in" in line
    assert f"kept in {store / 'profile.json'}): 4 to 64 iterations are read ahead" in line
    got, (line,) = run("second")
    assert got == plain
    assert f"as the disk was measured ({store / 'profile.json'}): 4 to 64" in line


@pytest.mark.slow
def test_two_ranks_measure_once_and_train_to_the_same_losses(store, tmp_path):
    both = overrides(store, tmp_path / "run", "storage.engine=posix")
    job = run_job(2, TRAIN_MEASURED, "base", *both)
    assert job.returncode == 0, job.stderr
    assert job.stderr.count("measured in") == 1
    load_profile(store / "profile.json")
    plain = overrides(store, tmp_path / "plain", "storage.engine=memory")
    job = run_job(2, TRAIN_MEASURED, "base", *plain)
    assert job.returncode == 0, job.stderr
    assert losses(tmp_path / "run") == losses(tmp_path / "plain")


def test_the_disk_is_that_of_the_features(store, disk):
    """Features may lie on a disk of their own, behind a link."""
    of_store = make_profile(store)
    save_profile(of_store, store / "profile.json")
    moved = disk / "features.bin"
    shutil.copy(store / "features.bin", moved)
    (store / "features.bin").unlink()
    (store / "features.bin").symlink_to(moved)
    assert disk_facts(moved) != disk_facts(store)
    assert find_profile("auto", store, "posix").profile != of_store
    save_profile(make_profile(moved), store / "profile.json")
    assert find_profile("auto", store, "posix").profile == make_profile(moved)
