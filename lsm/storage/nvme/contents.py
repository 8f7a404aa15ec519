"""Tells the contents of a drive by its first and last bytes."""

from __future__ import annotations

from lsm.storage.nvme.label import describe_label

START_BYTES = 128 << 10
"""Bytes at the start of a drive that hold the signatures of common file systems, RAIDs and
partition tables."""

# Offset, bytes, and the contents that they are a signature of.
_SIGNATURES = (
    (1080, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
    (0, b"XFSB", "an XFS file system"),
    (65_600, b"_BHRfS_M", "a Btrfs file system"),
    (1024, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    (0, b"LUKS\xba\xbe", "an encrypted volume (LUKS)"),
    (536, b"LVM2 001", "a volume of LVM"),
    (4086, b"SWAPSPACE2", "swap space"),
    (0, b"\xfc\x4e\x2b\xa9", "a part of a RAID"),
    (4096, b"\xfc\x4e\x2b\xa9", "a part of a RAID"),
)
PARTITION_TABLE = "a partition table"
_OTHER = "data of another kind"


def describe_contents(start: bytes, last: bytes, *more: bytes) -> str:
    """Describes the content of a drive in words; empty if all the bytes given are zero. ``start``:
    its first START_BYTES; ``last``: the page of the label; ``more``: any other parts."""
    labelled = describe_label(last)
    if labelled is not None:
        return labelled
    if start[510:512] == b"\x55\xaa" or any(start[b : b + 8] == b"EFI PART" for b in (512, 4096)):
        return PARTITION_TABLE
    for offset, signature, name in _SIGNATURES:
        if start[offset : offset + len(signature)] == signature:
            return name
    return _OTHER if any(map(any, (start, last, *more))) else ""
