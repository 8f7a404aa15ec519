"""Every number of the configuration has a range, so that none ends in an overflow or an abort."""

import pytest

from lsm.config.load import dotted_keys, load_config, parse_config
from lsm.config.schema import Config


def error_of(override):
    with pytest.raises(ValueError, match=r".") as caught:
        load_config("base", [override])
    return str(caught.value)


@pytest.mark.parametrize("key", ["storage.num_threads", "loader.num_threads", "train.num_threads"])
@pytest.mark.parametrize("count", [1025, 2**31, 2**70])
def test_threads(key, count):
    assert error_of(f"{key}={count}") == f"{key}: expected at most 1024, got {count}"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("storage.queue_depth=4097", "storage.queue_depth: expected at most 4096, got 4097"),
        ("train.seed=-1", "train.seed: expected at least 0, got -1"),
        (f"train.seed={2**70}", f"train.seed: expected at most {2**63 - 1}, got {2**70}"),
        (
            "storage.max_read_bytes=1TiB",
            "storage.max_read_bytes: size: expected at most 16 MiB, got 1 TiB",
        ),
        (
            "storage.max_gap_bytes=17MiB",
            "storage.max_gap_bytes: size: expected at most 16 MiB, got 17 MiB",
        ),
        (
            "loader.staging_bytes=2048TiB",
            "loader.staging_bytes: size: expected at most 1024 TiB, got '2048TiB'",
        ),
        ("loader.prefetch=65536", "expected auto or an integer from 1 to 65535, got 65536"),
        (
            "storage.timeout_secs=1e10",
            "storage.timeout_secs: expected at most 1000000000",
        ),
        ("train.batch_size=2147483648", "train.batch_size: expected at most 2147483647"),
    ],
)
def test_a_value_out_of_range_is_named_with_its_key(override, message):
    assert message in error_of(override)


def nested(key, value):
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


FLOATS = ("lr", "weight_decay", "clip_norm")  # which may be as large as that


@pytest.mark.parametrize(
    ("key", "number"),
    [
        (key, number)
        for key in dotted_keys(Config)
        for number in (2**70, -(2**70))
        if number < 0 or not key.endswith(FLOATS)
    ],
)
def test_no_key_takes_an_integer_that_overflows(key, number):
    with pytest.raises(ValueError, match=key.replace(".", r"\.")):
        parse_config(nested(key, number))
