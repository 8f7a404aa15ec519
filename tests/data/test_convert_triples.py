"""Triples: what a store holds is what its source had, in the order of its buckets."""

import gzip

import numpy as np
import pytest

from lsm.data.convert.triples import convert_triples


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """(directory, ids by split) with duplicates, self-loops and triples of train in valid."""
    root = tmp_path_factory.mktemp("triples")
    generator = np.random.default_rng(0)
    splits = {}
    for split, n in (("train", 5000), ("valid", 300), ("test", 300)):
        columns = (generator.zipf(1.5, n) % 300, generator.integers(0, 5, n))
        splits[split] = np.stack([*columns, generator.integers(0, 300, n)], 1)
        with gzip.open(root / f"{split}.tsv.gz", "wt") as file:
            file.writelines(f"e {h}\tr{r}\te {t}\n" for h, r, t in splits[split])
    return root, splits


@pytest.mark.parametrize("memory_bytes", [1 << 12, 1 << 28])  # hundreds of runs, or one
def test_names_and_buckets(source, tmp_path, memory_bytes):
    root, splits = source
    store = convert_triples(root, tmp_path / "store", memory_bytes=memory_bytes)
    entities, relations = list(store.entity_names()), list(store.relation_names())
    starts, parts = store.part_starts(), store.meta.parts
    for split, triples in splits.items():
        edges = store.edges(split)
        got = [(entities[h], relations[r], entities[t]) for h, r, t in edges.tolist()]
        want = {(f"e {h}", f"r{r}", f"e {t}") for h, r, t in triples.tolist()}
        assert len(got) == len(want)
        assert set(got) == want
        heads, tails = (np.searchsorted(starts, edges[:, i], side="right") - 1 for i in (0, 2))
        buckets = heads * parts + tails
        assert (np.diff(buckets) >= 0).all()
        sizes = np.bincount(buckets, minlength=parts**2)
        np.testing.assert_array_equal(sizes, np.diff(store.bucket_starts(split)))
    trained = {tuple(row) for row in splits["train"].tolist()}
    held = [{tuple(row) for row in splits[split].tolist()} for split in ("valid", "test")]
    assert store.meta.counts.leaked == sum(len(rows & trained) for rows in held)
    assert store.meta.counts.duplicates == 5600 - sum(store.meta.splits.values())
