"""A disk profile with round numbers."""

from lsm.storage.disk_profile import (
    DepthPoint,
    DiskProfile,
    ReadCost,
    SizePoint,
    disk_facts,
)


def make_profile(path, *, per_read=10e-6, per_byte=0.25e-9, engine="posix") -> DiskProfile:
    """10 us + 0.25 ns/byte: 40,000 bytes cost as much as a read. 1 ms from asking to having."""
    cost = ReadCost(secs_per_read=per_read, secs_per_byte=per_byte)
    return DiskProfile(
        date="2026-01-01",
        commit="0",
        machine={"cores": 2},
        device=disk_facts(path),
        engine=engine,
        num_files=1,
        file_bytes=1 << 30,
        block_bytes=4096,
        latency_secs=50e-6,
        request_secs=1e-3,
        iops=[DepthPoint(depth=1, iops=20e3), DepthPoint(depth=32, iops=90e3)],
        peak_iops=90e3,
        sizes=[SizePoint(bytes=size, secs=cost.secs(size)) for size in (4096, 1 << 20)],
        cost=cost,
    )
