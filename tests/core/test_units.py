"""Sizes with units are read exactly and shown readably."""

import pytest

from lsm.core.units import format_bytes, parse_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("16GiB", 17179869184),
        ("512MiB", 536870912),
        ("4KiB", 4096),
        ("4096", 4096),
        ("4096 B", 4096),
        ("1.5kib", 1536),
        ("0.1GB", 100_000_000),
        ("2TiB", 2199023255552),
        ("16G", 17179869184),  # of SLURM's --mem and systemd's MemoryMax
        ("512m", 536870912),
        ("1.5 K", 1536),
        ("2T", 2199023255552),
        (0, 0),
        (77, 77),
    ],
)
def test_parse(text, expected):
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    "text", ["", "GiB", "-1", "4 KiBs", "4Ki", "G", "1e9", "0.5", "1.0001KiB", -1, None]
)
def test_parse_refuses(text):
    with pytest.raises(ValueError, match="size"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("num_bytes", "expected"),
    [(0, "0 B"), (1023, "1023 B"), (4096, "4 KiB"), (1610612736, "1.5 GiB"), (2**20 - 1, "1 MiB")],
)
def test_format(num_bytes, expected):
    assert format_bytes(num_bytes) == expected
