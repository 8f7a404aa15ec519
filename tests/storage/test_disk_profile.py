"""Disk profiles: measured, written, read back, refused if broken; the settings they give."""

import json
import os

import numpy as np
import pytest

from lsm.config.load import load_config, parse_config
from lsm.config.schema import Config
from lsm.data.verify import verify_store
from lsm.storage.disk_profile import (
    ReadCost,
    disk_facts,
    load_profile,
    save_profile,
)
from lsm.storage.longest_read import longest_read
from lsm.storage.measure_profile import enough_bytes, feature_source, measure_profile
from lsm.storage.options import StorageOptions
from lsm.storage.read_ahead import ReadAhead
from lsm.train.read_settings import ReadSettings
from lsm.train.trainer import train
from support.disk_profile import make_profile
from support.training import config, losses, run_forked, steps

ROW_BYTES = 48


@pytest.fixture
def bare(store):
    """The store, without a profile before and after."""
    yield store
    (store / "profile.json").unlink(missing_ok=True)


def test_a_profile_reads_back_unchanged(tmp_path):
    profile = make_profile(tmp_path)
    save_profile(profile, tmp_path / "profile.json")
    assert load_profile(tmp_path / "profile.json") == profile
    assert os.listdir(tmp_path) == ["profile.json"]
    assert str(tmp_path) not in (tmp_path / "profile.json").read_text()


def changed(profile, key, value) -> str:
    values = profile.model_dump()
    *sections, last = key.split(".")
    part = values
    for section in sections:
        part = part[section]
    part[last] = value
    return json.dumps(values)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("schema_version", 2, "expected schema_version 1, got 2"),
        ("peak_iops", -5.0, "peak_iops: Input should be greater than 0"),
        ("latency_secs", float("nan"), "latency_secs"),
        ("cost.secs_per_byte", 0.0, "cost.secs_per_byte: Input should be greater than 0"),
        ("cost.secs_per_read", -1.0, "cost.secs_per_read"),
        ("engine", "floppy", "engine: Input should be 'posix' or 'io_uring'"),
        ("surprise", 1, "surprise: Extra inputs are not permitted"),
        ("iops", [{"depth": 4, "iops": 1.0}, {"depth": 2, "iops": 1.0}], "iops: expected rising"),
    ],
)
def test_a_broken_profile_is_an_error_that_says_what_and_where(tmp_path, key, value, message):
    path = tmp_path / "profile.json"
    path.write_text(changed(make_profile(tmp_path), key, value))
    with pytest.raises(ValueError, match=message) as caught:
        load_profile(path)
    assert str(caught.value).startswith(str(path))
    assert "lsm bench storage STORE --profile" in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "3"])
def test_what_is_no_profile_is_refused(tmp_path, text):
    (tmp_path / "p").write_text(text)
    with pytest.raises(ValueError, match="lsm bench storage"):
        load_profile(tmp_path / "p")


def test_a_truncated_profile_is_refused(tmp_path):
    path = tmp_path / "profile.json"
    save_profile(make_profile(tmp_path), path)
    path.write_text(path.read_text()[:200])
    with pytest.raises(ValueError, match="not valid JSON"):
        load_profile(path)


def test_the_line_is_found_in_spite_of_noise_and_strays():
    rng = np.random.default_rng(0)
    points = []
    for size in [4096 << k for k in range(9)]:
        for _ in range(3):
            points.append((float(size), (10e-6 + 0.25e-9 * size) * rng.uniform(0.98, 1.02)))
    points[4] = (points[4][0], 40 * points[4][1])
    points[20] = (points[20][0], 5 * points[20][1])
    cost = ReadCost.fitted(points)
    assert cost.secs_per_read == pytest.approx(10e-6, rel=0.05)
    assert cost.secs_per_byte == pytest.approx(0.25e-9, rel=0.05)


def test_a_line_needs_longer_reads_to_cost_more():
    with pytest.raises(ValueError, match="took no longer"):
        ReadCost.fitted([(4096.0, 2e-6), (8192.0, 1e-6)])


@pytest.mark.parametrize(
    ("per_read", "per_byte", "max_read", "gap"),
    [
        (10e-6, 0.25e-9, 1 << 20, 9 * 4096),  # 40,000 bytes, whole blocks
        (10e-6, 0.25e-9, 32 << 10, 6 * 4096),  # a block on either side
        (10e-6, 0.25e-9, 8 << 10, 0),
        (0.4e-6, 0.15e-9, 1 << 20, 0),  # a fast drive: 2,667 bytes cost as much as a read
        (0.0, 0.15e-9, 1 << 20, 0),
    ],
)
def test_gaps_are_read_where_that_costs_less_than_another_read(
    tmp_path, per_read, per_byte, max_read, gap
):
    profile = make_profile(tmp_path, per_read=per_read, per_byte=per_byte)
    assert profile.max_gap_bytes(max_read) == gap
    assert gap * per_byte <= per_read


def test_settings_follow_from_the_profile(tmp_path):
    settings = ReadSettings.of(Config(), make_profile(tmp_path))
    # 8 x 40,000 bytes, at most 128 KiB; 0.95 / 0.05 x 90,000 x 1 ms reads.
    assert settings.options.max_read_bytes == 128 << 10
    assert settings.options.max_gap_bytes == 9 * 4096
    assert settings.options.merge_iterations == "half"
    assert settings.read_ahead.accesses == pytest.approx(1710)
    assert settings.read_ahead == ReadAhead(4, 64, settings.read_ahead.accesses, merges=True)


def test_settings_are_told_in_one_line(tmp_path):
    told = ReadSettings.of(Config(), make_profile(tmp_path)).in_words()
    assert told == (
        "4 to 64 iterations are read ahead to keep 1710 reads outstanding, half of them planned "
        "together; gaps up to 36 KiB are read, in reads of up to 128 KiB"
    )
    fast = make_profile(tmp_path, per_read=0.4e-6, per_byte=0.15e-9)
    told = ReadSettings.of(Config(), fast).in_words()
    assert told.endswith("each planned by itself; no gaps are read, in reads of up to 32 KiB")


def test_on_a_fast_drive_reads_stay_short_and_single(tmp_path):
    settings = ReadSettings.of(Config(), make_profile(tmp_path, per_read=0.4e-6, per_byte=0.15e-9))
    assert settings.options == StorageOptions().resolved()
    assert settings.read_ahead == ReadAhead(4, 64, settings.read_ahead.accesses)
    assert longest_read(None) == StorageOptions().resolved().max_read_bytes


def test_without_a_profile_or_with_fixed_settings_nothing_follows(tmp_path):
    fixed = StorageOptions().resolved()
    assert ReadSettings.of(Config(), None) == ReadSettings(fixed, ReadAhead.fixed(4))
    keys = {"max_read_bytes": 65536, "max_gap_bytes": 8192, "merge_iterations": 3}
    fixed = parse_config({"storage": keys, "loader": {"prefetch": 7}})
    settings = ReadSettings.of(fixed, make_profile(tmp_path))
    assert settings.options == StorageOptions(**keys)
    assert (settings.read_ahead.iterations, settings.read_ahead.max_iterations) == (7, 7)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "loader.prefetch=0",
            "loader.prefetch: expected auto or an integer from 1 to 65535, got 0",
        ),
        ("loader.prefetch=many", "expected auto or an integer from 1 to 65535, got 'many'"),
        ("storage.merge_iterations=true", "expected auto, half or an integer from 1 to"),
        ("storage.max_gap_bytes=wide", "storage.max_gap_bytes: size: expected a size such as"),
        ("storage.target_share=1", "storage.target_share: expected less than 1.0, got 1"),
    ],
)
def test_bad_settings_name_their_key(override, message):
    with pytest.raises(ValueError, match=r".") as caught:
        load_config("base", [override])
    assert message in str(caught.value)


def lsm(*arguments):
    return run_forked("-m", "lsm", *arguments)


@pytest.mark.slow
def test_bench_writes_the_profile_beside_the_store(tmp_path_factory):
    from lsm.data.synth import synthesize

    store = tmp_path_factory.mktemp("measured") / "store"
    synthesize(store, nodes=6000, dim=64, classes=3, avg_degree=2, progress=False)
    options = ["--profile", "--engine", "posix", "--seconds", 0.01, "--repeats", 1]
    done = lsm("bench", "storage", store, *options)
    assert done.returncode == 0, done.stderr
    profile = load_profile(store / "profile.json")
    assert [point.depth for point in profile.iops] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert profile.peak_iops == max(point.iops for point in profile.iops)
    assert (profile.file_bytes, profile.num_files) == (6000 * 256, 1)
    assert profile.device == disk_facts(store)
    assert str(store) not in (store / "profile.json").read_text()
    assert "warning: 1.5 MiB are too few for figures to go by" in done.stderr
    assert verify_store(store, progress=False) == []


def test_enough_bytes_are_read_at_most_once_in_a_measurement(tmp_path):
    profile = make_profile(tmp_path)  # 1 MiB in 10 + 262 us: 3.85 GB/s, 1.16 GB in 0.3 s
    assert enough_bytes(profile, 0.3) == 2 << 30
    assert enough_bytes(profile, 0.2) == 1 << 30
    assert enough_bytes(profile, 1e-6) == 16 << 20  # 16 of the longest reads


@pytest.mark.slow
def test_bench_says_where_a_profile_cannot_go_or_come_from(store):
    for arguments, message in (
        (["--profile"], "expected a STORE to write profile.json to, or --json FILE"),
        ([store, "--profile"], "expected at least 262144 bytes of features"),
    ):
        done = lsm("bench", "storage", *arguments)
        assert done.returncode != 0
        assert message in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
    with pytest.raises(ValueError, match="expected io_uring or posix, got memory"):
        measure_profile(feature_source(store), "memory", 0.01, 1)
    with pytest.raises(FileNotFoundError, match="not a store"):
        feature_source(store.parent)


@pytest.fixture(scope="module")
def in_memory(store, tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("memory")
    train(config(store, run_dir, "storage.engine=memory"))
    return losses(run_dir)


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("loader.staging_bytes=1KiB",),  # less than an iteration
        ("loader.max_prefetch=2", "loader.num_threads=2"),
        ("storage.merge_iterations=1",),
        ("cache.policy=lookahead", "cache.window=4", f"cache.bytes={200 * ROW_BYTES}"),
        # All rows fit: from the second epoch on there is nothing to read.
        ("cache.policy=lookahead", "cache.window=3", f"cache.bytes={1000 * ROW_BYTES}"),
    ],
)
def test_losses_do_not_depend_on_how_far_reads_run_ahead(bare, in_memory, tmp_path, settings):
    save_profile(make_profile(bare), bare / "profile.json")
    train(config(bare, tmp_path, "storage.engine=posix", "storage.timeout_secs=60", *settings))
    assert losses(tmp_path) == in_memory


def test_steps_say_how_far_reads_run_ahead(bare, tmp_path):
    # One store of five iterations: with a profile all of them may be in flight, without four.
    for profiled, most in ((False, 4), (True, 5)):
        if profiled:
            save_profile(make_profile(bare), bare / "profile.json")
        run_dir = tmp_path / str(profiled)
        train(config(bare, run_dir, "storage.engine=posix"))
        recorded = steps(run_dir)
        assert all(1 <= step["iterations_in_flight"] <= most for step in recorded)
        assert all(step["reads_outstanding"] >= 0 for step in recorded)
        lines = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
        epoch = next(line for line in lines if line["kind"] == "epoch")
        own = [step["iterations_in_flight"] for step in recorded if step["epoch"] == 1]
        assert epoch["iterations_in_flight"] == pytest.approx(sum(own) / len(own))
