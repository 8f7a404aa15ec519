"""Philox4x32-10 and Philox2x32-10 against the known-answer vectors of Random123 (kat_vectors)."""

import pytest

from lsm import native


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        (
            [0, 0, 0, 0],
            [0, 0],
            [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8],
        ),
        (
            [0xFFFFFFFF] * 4,
            [0xFFFFFFFF] * 2,
            [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD],
        ),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_known_answers(counter, key, expected):
    assert native.philox4x32(counter, key[0] | key[1] << 32) == expected


def test_batch_key_depends_on_every_part():
    base = (1, 2, 3, 4)
    keys = {native.batch_key(*base)}
    for position in range(4):
        for value in (0, 7, 2**40):
            parts = list(base)
            parts[position] = value
            keys.add(native.batch_key(*parts))
    keys.add(native.batch_key(2, 1, 3, 4))
    assert len(keys) == 14


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ([0, 0], 0, [0xFF1DAE59, 0x6CD10DF2]),
        ([0xFFFFFFFF] * 2, 0xFFFFFFFF, [0x2C3F628B, 0xAB4FD7AD]),
        ([0x243F6A88, 0x85A308D3], 0x13198A2E, [0xDD7CE038, 0xF62A4C12]),
    ],
)
def test_known_answers_of_the_narrow_one(counter, key, expected):
    assert native.philox2x32(counter, key) == expected
