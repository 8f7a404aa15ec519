"""A command in a limited amount of memory takes no more of it, the page cache included."""

import mmap
import os
import subprocess
import sys

import pytest

from bench.memory_limit import MemoryLimit

FILE_BYTES, LIMIT_BYTES = 48 << 20, 24 << 20
READ_A_FILE = f"""
import mmap, sys
with open(sys.argv[1], "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
    print(sum(data[at] for at in range(0, {FILE_BYTES}, {mmap.PAGESIZE})))
"""


def test_a_memory_limit_covers_the_page_cache(tmp_path):
    path = tmp_path / "features.bin"
    path.write_bytes(b"\1" * FILE_BYTES)
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        limit = MemoryLimit(LIMIT_BYTES)
    except RuntimeError as error:
        pytest.skip(str(error))
    with limit:
        command = [sys.executable, "-c", READ_A_FILE, str(path)]
        done = limit.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) == FILE_BYTES // mmap.PAGESIZE
        started = limit.start(command, stdout=subprocess.DEVNULL)
        assert started.wait(60) == 0
        peak = limit.peak_bytes()
        assert peak is None or FILE_BYTES // 4 < peak <= LIMIT_BYTES
        greedy = [sys.executable, "-c", f"print(len(b'x' * {FILE_BYTES}))"]
        assert limit.run(greedy, capture_output=True, timeout=300).returncode != 0
        group = limit._group
    assert not group.exists()
