"""Memory of the buffers of reads in flight, as a budget counts it."""

import pytest

from lsm.storage.engine import buffers_of
from lsm.storage.options import StorageOptions

KIB = 1 << 10


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"engine": "io_uring"}, 160 * 128 * KIB),  # a quarter is spare
        ({"engine": "io_uring", "queue_depth": 8, "num_threads": 3}, 30 * 128 * KIB),
        ({"engine": "io_uring", "queue_depth": 1}, 2 * 128 * KIB),
        ({"engine": "io_uring", "max_read_bytes": 32 * KIB}, 160 * 32 * KIB),
        ({"engine": "nvme", "queue_depth": 8}, 10 * 128 * KIB),
        ({"engine": "nvme", "queue_depth": 8, "devices": ["/a", "/b"]}, 20 * 128 * KIB),
        ({"engine": "posix", "queue_depth": 8}, 16 * 128 * KIB),
        ({"engine": "memory"}, 0),
        ({"engine": "mmap"}, 0),
        ({"engine": "gds"}, 0),
    ],
)
def test_each_buffer_holds_the_longest_read(options, expected):
    assert buffers_of(StorageOptions(**options)) == expected
