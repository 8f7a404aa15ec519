"""Shares of memory over a grid of stores and budgets, against a record from before the rooms stated
their own needs.

The record was made with the exact metadata of a line in place of the 32 bytes that were counted
then; all other figures are those of that code."""

import pytest

from lsm.config.load import parse_config
from lsm.core.memory import BatchSize, Shape
from lsm.train.budget import share_out
from lsm.train.memory_plan import Facts

MIB = 1 << 20
BATCHES = {"small": BatchSize(10_000, 60_000, 9_000), "large": BatchSize(100_000, 150_000, 20_000)}
PLACES = {"host": {}, "ranks": {"shares_cache": True}, "gpu": {"on_gpu": True}}
SETTINGS: dict = {
    "base": {},
    "posix": {"storage": {"engine": "posix"}},
    "lru": {"cache": {"policy": "lru"}},
    "explicit": {"cache": {"policy": "lookahead", "bytes": "64MiB"}},
    "uncached": {"cache": {"policy": "none"}, "data": {"topology": "mmap"}},
    "hybrid": {
        "cache": {"policy": "hybrid", "victim": {"mode": "queues", "bytes": "32MiB"}},
        "memory": {"bytes": "1GiB"},
    },
    "s3fifo": {"cache": {"policy": "s3fifo", "ways": 1, "victim": {"mode": "pool"}}},
    "hot": {
        "cache": {"constant": {"bytes": "8MiB"}, "static": {"bytes": "5MiB"}},
        "loader": {"prefetch": 8, "num_threads": 3},
    },
}
# Place, digits of the number of nodes, bytes of a row, batch, budget in MiB, settings. Then budget
# and sum; engine, topology and staging; policy and bytes of the cache; mode, bytes and prefetch of
# the victim buffer; window, score, and bytes of the window.
RECORD = """
host 6 512 small 4096 base
4294967296 1380388688 memory memory 268435456 none auto auto auto 4 256 none 0
ranks 6 512 small 4096 base
4294967296 1682378576 memory memory 268435456 none auto auto auto 4 256 none 0
host 8 512 small 4096 base
4294967296 4294967262 auto mmap 268435456 lookahead 1581166080 pool 1476853248 4 256 none 202240000
ranks 8 512 small 4096 base
4294967296 4294966824 auto mmap 268435456 lookahead 1417977856 pool 1324430848 4 256 none 253440000
gpu 8 512 small 4096 base
4294967296 4294967176 auto mmap 268435456 lookahead 104857600 pool 2935013888 4 256 none 202240000
host 8 512 large 1024 base
1073741824 1073741446 auto mmap 134217728 lookahead 67610112 pool 63149568 0 11 none 46411770
ranks 8 512 large 1024 base
1073741824 1073741322 auto mmap 134217728 lookahead 13842944 pool 12929536 0 1 none 6950000
host 8 512 large 650 base
681574400 668111200 auto mmap 85196800 none auto auto auto 4 256 none 0
ranks 8 512 large 650 base
796194502 796194502 auto mmap 99524312 none auto auto auto 4 256 none 0
gpu 8 512 large 650 base
976654688 976654616 auto mmap 268435456 lookahead 104857600 pool 44199936 4 4 none 16391250
host 7 16 large 900 posix
943718400 943718376 posix mmap 58982400 lookahead 51265408 pool 26914336 4 22 none 89065850
host 8 4096 large 8192 lru
8589934592 8589934414 auto mmap 1073741824 lru 5001252864 none 0 0 1 none 4950000
host 8 512 small 2048 explicit
2147483648 868005192 auto mmap 134217728 lookahead 67108864 none 0 0 256 none 202240000
ranks 8 512 small 2048 explicit
2147483648 1059960136 auto mmap 134217728 lookahead 67108864 none 0 0 256 none 253440000
host 8 512 small 1024 hybrid
1073741824 1073741738 auto mmap 67108864 hybrid 320929280 queues 33554432 4 178 none 113057454
gpu 8 512 small 1024 hybrid
1073741824 1030825288 auto mmap 268435456 hybrid 104857600 queues 33554432 4 256 none 202240000
host 5 128 small 2048 s3fifo
2147483648 762818872 auto memory 134217728 s3fifo 19208192 none 0 4 256 auto 202240000
gpu 5 128 small 2048 s3fifo
2147483648 821258952 auto memory 268435456 s3fifo 19208192 pool 19208192 4 256 auto 202240000
host 8 512 small 2048 uncached
2147483648 625393744 auto mmap 134217728 none auto auto auto 4 256 none 0
host 8 512 small 2048 hot
2147483648 2147483240 auto mmap 134217728 lookahead 615051264 pool 574475264 4 256 none 202240000
ranks 8 512 small 2048 hot
2147483648 2147483446 auto mmap 134217728 lookahead 523712000 pool 489162240 4 256 none 253440000
"""
LINES = [line.split() for line in RECORD.strip().splitlines()]


@pytest.mark.parametrize(("given", "recorded"), [*zip(LINES[::2], LINES[1::2], strict=True)])
def test_shares_are_those_of_the_record(given, recorded):
    place, digits, row_bytes, batch, budget, settings = given
    num_nodes, bytes_of_auto = 10 ** int(digits), int(budget) * MIB
    facts = Facts(
        shape=Shape(
            num_nodes, int(row_bytes), 80 * num_nodes, 1000, BATCHES[batch], **PLACES[place]
        ),
        budget=bytes_of_auto,
        available=2 * bytes_of_auto,
        process=300 * MIB,
        libraries=200 * MIB,
        step=100 * MIB,
        model=0,
        gpu_room=100 * MIB,
    )
    plan = share_out(parse_config(SETTINGS[settings]), facts)
    config, cache = plan.config, plan.config.cache
    found = (
        *(plan.budget, plan.total),
        *(config.storage.engine, config.data.topology, config.loader.staging_bytes),
        *(cache.policy, cache.bytes),
        *(cache.victim.mode, cache.victim.bytes, cache.victim.prefetch),
        *(cache.window, cache.score, plan.window_bytes),
    )
    assert [str(each) for each in found] == recorded
