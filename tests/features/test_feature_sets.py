"""Rows of several sizes: types with rows of one size share a set, and each type gets its rows."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from lsm import native
from lsm.cache.options import CacheOptions
from lsm.comm.request import RowFormat
from lsm.core.counters import BY_SOURCE
from lsm.core.device import GpuPlace
from lsm.data.feature_files import FeatureFiles
from lsm.features import builders
from lsm.features.cached import CachedFeatureLoader
from lsm.features.open import open_features
from lsm.features.sets import FeatureSets, RowSet
from lsm.features.tiers_gpu import GpuOptions
from lsm.graph.types import NodeSpace
from lsm.storage.options import StorageOptions
from lsm.storage.read_scheduler import ReadScheduler
from lsm.storage.row_map import RowMap
from lsm.train.row_metrics import NewReads
from support.cached_features import deliver

SPACE = NodeSpace({"tag": 40, "paper": 300, "author": 200, "venue": 50, "word": 0})
# Papers and authors have rows of 32 bytes, venues of 12, tags and words none.
WIDE = {"paper": RowFormat(8, torch.float32), "author": RowFormat(32, torch.int8)}
NARROW = {"venue": RowFormat(3, torch.float32)}


def rows_of(rng, count, form):
    given = torch.from_numpy(rng.integers(0, 127, size=(count, form.row_bytes), dtype=np.uint8))
    if form.dtype == torch.float32:
        return torch.from_numpy(rng.standard_normal((count, form.dim), dtype=np.float32))
    return given.view(form.dtype)


@pytest.fixture(scope="module")
def typed_rows():
    rng = np.random.default_rng(0)
    return {name: rows_of(rng, SPACE.counts[name], form) for name, form in (WIDE | NARROW).items()}


def opening_of(folder, rows, formats, reads, storage):
    """One file with the rows of all types in ``formats``, as bytes."""
    held = np.concatenate([rows[name].numpy().view(np.uint8) for name in formats])
    path = folder / f"{held.shape[1]}.bin"
    path.write_bytes(held.tobytes() + bytes(-held.nbytes % 4096))
    form = next(iter(formats.values()))
    dim, dtype = (held.shape[1], torch.uint8) if len(formats) > 1 else (form.dim, form.dtype)
    return builders.Opening(
        FeatureFiles((path,), len(held), dim, dtype),
        storage,
        None,
        gpu=GpuOptions(),
        scores=torch.linspace(1, 0, SPACE.num_nodes),
        share=None,
        idle_bytes=1 << 20,
        num_threads=1,
        nodes=RowMap(len(held), first=SPACE.offsets[next(iter(formats))]),
        reads=reads,
    )


def open_sets(folder, rows, kind, merge_iterations=1):
    storage = StorageOptions(engine="posix", merge_iterations=merge_iterations, timeout_secs=20)
    reads = ReadScheduler([], merge_iterations)
    sets = []
    for formats in (WIDE, NARROW):
        opening = opening_of(folder, rows, formats, reads, storage)
        row_bytes = opening.files.row_bytes
        cache = CacheOptions(bytes=40 * row_bytes, ways=8, window=6, score="none")
        cache = cache.model_copy(
            update={
                "victim": cache.victim.model_copy(update={"mode": "pool", "bytes": 30 * row_bytes})
            }
        )
        if kind == "plain":
            loader = builders.plain(opening)
        else:
            loader = builders.cached(
                replace(opening, place=GpuPlace.twin() if kind == "gpu" else None), cache.resolved()
            )
        sets.append(RowSet(loader, formats))
    return FeatureSets(SPACE, sets)


def requests(count):
    """Ids of all types but one in every other batch, grouped by type."""
    rng = np.random.default_rng(3)
    found = []
    for number in range(count):
        parts = []
        for name, first in SPACE.offsets.items():
            most = 0 if name == "author" and number % 2 else SPACE.counts[name] // 3
            own = rng.permutation(
                np.unique((SPACE.counts[name] * rng.random(most) ** 2).astype(int))
            )
            parts.append(own + first)
        found.append(torch.from_numpy(np.concatenate(parts)))
    return found


@pytest.mark.parametrize("merge_iterations", [1, 3])
@pytest.mark.parametrize("kind", ["plain", "host", "gpu"])
def test_every_type_gets_its_rows(tmp_path, typed_rows, kind, merge_iterations):
    sets = open_sets(tmp_path, typed_rows, kind, merge_iterations)
    given, requested = requests(15), 0
    for ids, pending, rows in deliver(sets, given):
        assert list(rows) == ["paper", "author", "venue"]
        for name, own in SPACE.split(ids).items():
            if name in typed_rows:
                expected = typed_rows[name][own.ids]
                assert rows[name].dtype == expected.dtype
                assert torch.equal(rows[name], expected)
                requested += len(own.ids)
        assert pending.stats["requests"] == sum(map(len, rows.values()))
        for name in rows:
            assert pending.stats[f"requests/{name}"] == len(rows[name])
        for name in BY_SOURCE:
            assert pending.stats[name] == sum(pending.stats[f"{name}/{each}"] for each in rows)
    stats = sets.stats()
    if kind != "plain":
        assert stats["cache_requests"] == requested
        assert stats["cache_hits"] + stats["cache_victim_hits"] > 0
        assert stats["rows"] == stats["cache_misses"]
        wide, narrow = (each.rows.stats() for each in sets.sets)
        for name in BY_SOURCE:
            assert stats[f"cache_{name}/venue"] == narrow[f"cache_{name}"]
            by_type = [stats[f"cache_{name}/{each}"] for each in WIDE]
            assert sum(by_type) == wide[f"cache_{name}"]
    assert stats["read_amplification"] == stats["bytes_read"] / stats["bytes_requested"]
    sets.close()


@pytest.mark.parametrize("kind", ["plain", "host"])
def test_sums_of_storage_take_no_other_counters(tmp_path, typed_rows, monkeypatch, kind):
    with open_sets(tmp_path, typed_rows, kind) as sets:
        reads = NewReads(sets)
        expected_bytes = 0
        for _, pending, _ in deliver(sets, requests(6)):
            missed = {name: pending.stats[f"misses/{name}"] for name in typed_rows}
            expected_bytes += sum((WIDE | NARROW)[name].row_bytes * missed[name] for name in missed)
        stats = sets.stats()
        assert expected_bytes == stats["bytes_requested"] > 0
        monkeypatch.setattr(FeatureSets, "stats", None)
        monkeypatch.setattr(CachedFeatureLoader, "stats", None)
        expected = {name: stats[name] for name in ("bytes_read", "bytes_requested")}
        assert sets.storage_sums() == expected
        assert reads.take() == expected
        assert reads.take() == dict.fromkeys(expected, 0)


def test_reads_of_all_sets_are_one_wave(tmp_path, typed_rows):
    """An iteration of which one set needs no rows ends the wave as well."""
    sets = open_sets(tmp_path, typed_rows, "plain", merge_iterations=2)
    papers = SPACE.to_global("paper", torch.arange(10))
    both = torch.cat([papers, SPACE.to_global("venue", torch.arange(5))])
    first = sets.announce(both).start()
    assert sets.stats()["requests"] == 0
    second = sets.announce(papers).start()
    assert sets.stats()["rows"] == 25
    assert torch.equal(first.result()["venue"], typed_rows["venue"][:5])
    assert second.result()["venue"].shape == (0, 3)
    sets.close()


def test_ids_that_are_not_grouped_by_type_are_refused(tmp_path, typed_rows):
    sets = open_sets(tmp_path, typed_rows, "plain")
    venue, paper = SPACE.offsets["venue"], SPACE.offsets["paper"]
    for ids, at in [([paper, venue, paper], 2), ([paper, SPACE.num_nodes], 1), ([-1], 0)]:
        message = re.escape(f"grouped by node type in the order of the types, got {ids[at]} at")
        with pytest.raises(ValueError, match=message):
            sets.announce(torch.tensor(ids))
    sets.close()


def test_counts_of_ids_by_type_are_those_of_a_split():
    ends = [SPACE.offsets[name] + count for name, count in SPACE.counts.items()]
    for ids in [*requests(4), torch.empty(0, dtype=torch.int64)]:
        expected = [len(own.ids) for own in SPACE.split(ids).values()]
        assert native.count_by_range(ids, ends) == expected


def test_sets_that_do_not_fit_the_types_are_refused(tmp_path, typed_rows):
    sets = open_sets(tmp_path, typed_rows, "plain")
    wide, narrow = sets.sets
    with pytest.raises(ValueError, match="follow one another, got author, paper"):
        FeatureSets(SPACE, [RowSet(wide.rows, dict(reversed(WIDE.items()))), narrow])
    with pytest.raises(ValueError, match="expected rows of 12 bytes for paper, got 32"):
        FeatureSets(SPACE, [RowSet(narrow.rows, WIDE)])
    files = FeatureFiles((tmp_path / "12.bin",), 50, 3, torch.float32)
    with open_features(files) as other, pytest.raises(ValueError, match="ReadScheduler"):
        FeatureSets(SPACE, [wide, RowSet(other, NARROW)])
    sets.close()
