"""Forms of a NeighborLoader's arguments that users type, and PyG's that it lacks."""

import inspect
import re

import numpy as np
import pytest
import torch
import torch_geometric
from torch_geometric.loader import NeighborLoader as LoaderOfPyG
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler.base import SubgraphType

import lsm
import lsm.pyg
from lsm.loader.pyg_arguments import MISSING
from support.training import make_store

CACHE = {"bytes": "16K", "window": 3, "victim": {"mode": "pool", "bytes": 9600}}
POSIX = {"engine": "posix"}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("typed") / "store")


@pytest.fixture(scope="module")
def store(path):
    return lsm.GraphStore.open(path)


def first(store, nodes="train", **options):
    with lsm.NeighborLoader(store, [3, 2], nodes, 32, storage=POSIX, **options) as loader:
        return next(iter(loader))


def same(a, b):
    return torch.equal(a.n_id, b.n_id) and torch.equal(a.x, b.x) and torch.equal(a.y, b.y)


def test_a_path_and_dicts_are_the_store_and_its_options(path, store):
    options = lsm.CacheOptions(bytes=16 << 10, window=3, victim_mode="pool", victim_bytes=9600)
    storage, sampling = lsm.StorageOptions(engine="posix"), lsm.Sampling(kind="labor")
    expected = lsm.NeighborLoader(
        store, [3, 2], "train", storage=storage, cache=options, sampling=sampling
    )
    for given in (path, str(path)):
        with lsm.NeighborLoader(
            given, [3, 2], "train", storage=POSIX, cache=CACHE, sampling={"kind": "labor"}
        ) as loader:
            assert loader.features.planner.config == expected.features.planner.config
            assert loader.features.engine == "posix"
            assert same(next(loader.iterate(0)), next(expected.iterate(0)))
    expected.close()


def test_features_open_from_a_path_and_dicts(path, store):
    ids = torch.tensor([4, 500, 4], dtype=torch.int32)
    with (
        lsm.open_features(store) as plain,
        lsm.open_features(path, CACHE, POSIX) as cached,
    ):
        assert cached.engine == "posix"
        assert torch.equal(cached.fetch(ids), plain.fetch(ids.long()))
        assert torch.equal(plain.fetch(ids), plain.fetch(ids.long()))
        cached.announce(ids[:2])  # and asked for in another type
        assert torch.equal(cached.fetch(ids[:2].long()), plain.fetch(ids[:2]))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"cache": {"byte": 3}}, TypeError, "CacheOptions: unknown option byte; did you mean byt"),
        ({"cache": {"bytes": "3 miles"}}, ValueError, r"cache\.bytes: size: expected a size such"),
        (
            {"cache": {"victim": {"modus": 1}}},
            ValueError,
            r"cache\.victim\.modus: there is no such",
        ),
        ({"cache": 5}, TypeError, r"cache: expected a lsm\.CacheOptions, or a dict .* got 5"),
        ({"cache": "16GiB"}, TypeError, "cache: expected a .* got '16GiB'"),
        ({"storage": {"engine": "gpu"}}, ValueError, r"storage\.engine: expected one of 'auto'"),
        ({"storage": "posix"}, TypeError, r"storage: expected a lsm\.StorageOptions, or a dict"),
        ({"sampling": {"kind": "x"}}, ValueError, r"sampler\.kind: expected one of 'neighbor'"),
        ({"sampling": 3}, TypeError, r"sampling: expected a lsm\.Sampling, or a dict"),
        ({"batchsize": 3}, TypeError, "unknown argument batchsize; did you mean batch_size"),
        ({"fanout": 3}, TypeError, "unknown argument fanout; expected store, num_neighbors, "),
        ({"num_workers": 4}, TypeError, "num_workers of PyG's .* set num_threads"),
        ({"replace": True}, TypeError, "replace of PyG's .* without replacement"),
        ({"subgraph_type": "induced"}, TypeError, r"subgraph_type of PyG's .*\.to_undirected"),
        ({"transform": print}, TypeError, "transform of PyG's .* in your loop"),
        (
            {"weight_attr": "edge_weight", "sampling": "ladies"},
            ValueError,
            "weight_attr: expected sampling=neighbor with it, got ladies",
        ),
    ],
)
def test_a_wrong_argument_is_named(path, options, error, message):
    with pytest.raises(error, match=message):
        lsm.NeighborLoader(path, [3, 2], **options)


def arguments_of_pyg():
    """Every argument of PyG's loader, and its default."""
    parameters = {}
    for function in (torch.utils.data.DataLoader, NodeLoader, LoaderOfPyG):
        parameters |= inspect.signature(function.__init__).parameters
    skipped = ("self", "kwargs", "data", "dataset", "node_sampler", "sampler", "in_order")
    return {name: each.default for name, each in parameters.items() if name not in skipped}


def test_every_argument_of_pyg_is_taken_or_explained(path):
    """Those that PyG deprecated, or adds later, are told like any unknown name."""
    given, known = arguments_of_pyg(), inspect.signature(lsm.NeighborLoader).parameters
    unknown = set(given) - set(known) - set(MISSING)
    assert not unknown, f"PyG {torch_geometric.__version__}"
    for name in set(given) & set(MISSING):
        with pytest.raises(TypeError, match=f"NeighborLoader: {name} of PyG's loader is not supp"):
            lsm.NeighborLoader(path, [3, 2], **{name: object()})


def test_defaults_of_pyg_are_taken(path, store):
    given = {name: value for name, value in arguments_of_pyg().items() if name in MISSING}
    given["num_workers"], given["pin_memory"] = 0, False
    assert len(given) > 15
    for directional in ("directional", SubgraphType.directional):
        assert same(first(path, **{**given, "subgraph_type": directional}), first(store))


def test_the_one_type_of_a_graph_without_types_is_taken(store):
    nodes = store.split("train")
    assert same(first(store, ("node", nodes)), first(store, nodes))
    assert same(first(store, ("node", "train")), first(store, "train"))
    assert same(first(store, "node"), first(store, torch.arange(store.num_nodes)))
    for other in (("paper", nodes), ("node",), ()):
        with pytest.raises(ValueError, match="expected ids or a split of a graph without types"):
            first(store, other)


def test_defaults_of_pyg_are_taken_as_other_numbers_too(store):
    given = {"timeout": 0.0, "num_workers": np.int64(0), "pin_memory": np.bool_(False)}
    assert same(first(store, **given), first(store))


def test_a_graph_of_pyg_is_told_to_be_converted():
    with pytest.raises(TypeError, match=r"store: .* got PyG's Data; .*from_pyg"):
        lsm.NeighborLoader(torch_geometric.data.Data(), [3])


@pytest.mark.parametrize("other", [None, 3, {}], ids=repr)
def test_another_object_is_no_store(other):
    for make in (lsm.NeighborLoader, lsm.LinkNeighborLoader, lsm.pyg.Sampler):
        with pytest.raises(TypeError, match="store: expected a GraphStore or its path, got"):
            make(other, [3])


def test_another_object_is_no_source_of_rows(store):
    for make in (lsm.NeighborLoader, lsm.LinkNeighborLoader):
        with pytest.raises(
            TypeError, match=r"features: expected the result of lsm\.open_features.*GraphStore"
        ):
            make(store, [3], features=store)


@pytest.mark.parametrize("name", ["shuffle", "drop_last", "disjoint", "as_pyg", "as_dgl"])
@pytest.mark.parametrize("bad", ["False", 2, "", []])
def test_flags_are_true_or_false(store, name, bad):
    with pytest.raises(
        ValueError, match=f"^{name}: expected True or False, got {re.escape(repr(bad))}"
    ):
        lsm.NeighborLoader(store, [3], **{name: bad})


@pytest.mark.parametrize("value", [0, False, np.bool_(False)])
def test_numbers_and_numpys_values_are_flags(store, value):
    shuffled = first(store, shuffle=True)
    assert same(first(store, shuffle=value), first(store))
    assert same(first(store, shuffle=None), first(store))  # as of torch's DataLoader
    assert same(first(store, shuffle=type(value)(1)), shuffled)
    assert not torch.equal(shuffled.input_id, first(store).input_id)


def test_another_object_is_no_topology_and_no_sampler(store):
    for make in (lsm.NeighborLoader, lsm.LinkNeighborLoader):
        with pytest.raises(
            TypeError, match=r"topology: expected the result of store\.topology\(\).* got int"
        ):
            make(store, [3], topology=3)
    with pytest.raises(TypeError, match=r"sampler: expected one with sample\(\).* got int"):
        lsm.NeighborLoader(store, [3], sampler=3)


def test_a_list_is_an_edge_type_too(store):
    (edge_type,) = store.edge_types
    assert store.edges(list(edge_type)).num_edges == store.num_edges
    with pytest.raises(ValueError, match="edge type: expected one of"):
        store.edges(["node", "to"])


def test_lists_and_arrays_are_ids(path, store):
    rows = store.to_pyg().x
    for cache in (None, CACHE):
        with lsm.open_features(path, cache, POSIX) as features:
            for ids in ([7, 3, 500], (7, 3, 500), np.array([7, 3, 500], np.int32), range(4), []):
                assert torch.equal(features.fetch(ids), rows[list(ids)])
            for bad in ("ab", ["a"], None, [[1], [2, 3]]):
                with pytest.raises(ValueError, match="ids: expected a tensor of integers, got"):
                    features.fetch(bad)
            with pytest.raises(ValueError, match=r"ids: expected \[N\] integers, got \[1\]"):
                features.fetch([1.5])


@pytest.mark.parametrize("bad", [["a"], [[1], [2, 3]]], ids=repr)
def test_seeds_that_are_no_numbers_are_named(store, bad):
    with pytest.raises(ValueError, match="input_nodes: expected a tensor of integers, got"):
        first(store, bad)
    with pytest.raises(ValueError, match="edge_label_index: expected a tensor of integers, got"):
        lsm.LinkNeighborLoader(store, [3], bad)


def test_val_is_a_name_of_valid(store):
    assert torch.equal(store.split("val"), store.split("valid"))
    assert not torch.equal(store.split("val"), store.split("test"))
    assert same(first(store, "val"), first(store, "valid"))
    with pytest.raises(ValueError, match="expected one of train, valid, test, got 'dev'"):
        store.split("dev")


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16], ids=str)
def test_smaller_integers_are_input_nodes_too(store, dtype):
    nodes = store.split("train")
    assert same(first(store, nodes.to(dtype)), first(store, nodes))
    assert same(first(store, nodes.numpy().astype(np.int32)), first(store, nodes))
    assert same(first(store, nodes.numpy()[::-1]), first(store, nodes.flip(0)))
    with pytest.raises(ValueError, match=r"input_nodes: expected \[N\] integers or a mask"):
        first(store, nodes.double())


def test_seeds_that_repeat_in_a_batch_are_refused_at_once(store):
    ids = torch.tensor([3, 5, 9, 8, 7, 5])
    told = (
        r"input_nodes: .*, got 5 at positions 1 and 5; leave out repeats, .* or set disjoint=True"
    )
    for given in (ids, ids.tolist(), ("node", ids)):
        with pytest.raises(ValueError, match=told):
            lsm.NeighborLoader(store, [3], given, 6)
    with pytest.raises(ValueError, match=told):
        lsm.NeighborLoader(store, [3], ids, 2, shuffle=True)
    with pytest.raises(ValueError, match=told):
        lsm.NeighborLoader(store, [3], ids, 3, world_size=2)
    with lsm.NeighborLoader(store, [3], ids, 5) as apart:
        assert torch.cat([batch.n_id[: batch.batch_size] for batch in apart]).equal(ids)
    with lsm.NeighborLoader(store, [3], ids, 6, disjoint=True) as disjoint:
        assert next(iter(disjoint)).n_id[:6].equal(ids)


def test_sizes_take_units(store):
    arguments = {"staging_bytes": "64KiB", "window_bytes": "1MiB", "cache": CACHE}
    assert same(first(store, **arguments), first(store))
    for name, wrong in (("staging_bytes", "256XB"), ("window_bytes", "-1"), ("staging_bytes", 1.5)):
        with pytest.raises(ValueError, match=f"{name}: expected "):
            first(store, **{name: wrong})


def test_rows_are_those_of_a_store(store):
    with pytest.raises(TypeError, match="store: expected a GraphStore or its path, got NoneType"):
        lsm.open_features(None)
    with pytest.raises(ValueError, match=r"device: expected cpu, cuda or a GPU .*, got 'gpu'"):
        lsm.open_features(store, device="gpu")


def test_a_graph_without_features_names_the_remedy(tmp_path):
    graph = torch_geometric.data.Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
    bare = lsm.GraphStore.from_pyg(graph, tmp_path / "bare")
    told = r"node have no features; make the store with x \(node_feat.npy\), or .*data.features"
    for opened in (lsm.open_features, lambda store: lsm.NeighborLoader(store, [2])):
        with pytest.raises(ValueError, match=told):
            opened(bare)


def test_printing_shows_shapes_and_sizes(store):
    batch = first(store)
    nodes, edges = len(batch.n_id), batch.edge_index.size(1)
    text = repr(batch)
    assert text.startswith(f"Batch(x=[{nodes}, {store.feature_dim}], y=[32], n_id=[{nodes}], ")
    assert f"edge_index=[2, {edges}]" in text
    assert f"num_sampled_nodes={batch.num_sampled_nodes}" in text
    assert "tensor" not in text
    assert "edge_weight" not in text
    assert repr(batch.layers()[-1]).startswith("Layer(indptr=[33], edge_index=[2, ")
    assert f"num_nodes={store.num_nodes}, num_edges={store.num_edges}, " in repr(store)
    assert f"feature_dim={store.feature_dim}, feature_dtype=float32)" in repr(store)
    with lsm.NeighborLoader(store, [3, 2], "train", 32, storage=POSIX, cache=CACHE) as loader:
        text = repr(loader)
        assert text.startswith(f"NeighborLoader({store!r}, num_neighbors=[3, 2], seeds=")
        assert f"iterations={len(loader)}, CachedFeatureLoader(dim=" in text
        assert "engine='posix', policy='lookahead', cached_rows=" in text
