"""Chooses the length of a read from the disk profile."""

from __future__ import annotations

from lsm.storage.disk_profile import DiskProfile
from lsm.storage.options import READ_BYTES

MOST_READ_BYTES = 128 << 10
"""Longest read that is chosen for any disk."""


def longest_read(profile: DiskProfile | None) -> int:
    """Bytes of a read whose start is about a tenth of its cost: a power of two from 32 to 128 KiB.

    Longer reads were no faster, and each read in flight needs a buffer. Where so much memory cannot
    be locked, unregistered buffers still cost less than short reads."""
    longest = READ_BYTES
    if profile is not None:
        worth = 8 * profile.cost.secs_per_read / profile.cost.secs_per_byte
        while 2 * longest <= min(worth, MOST_READ_BYTES):
            longest *= 2
    return longest
