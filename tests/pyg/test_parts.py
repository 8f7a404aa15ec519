"""PyG's loaders over lsm.pyg.parts give the batches that lsm's own loaders prepare ahead."""

import itertools
import logging
import os

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkLoader, NodeLoader
from torch_geometric.nn import GraphSAGE, SAGEConv, to_hetero
from torch_geometric.sampler import NegativeSampling
from torch_geometric.utils import trim_to_layer

import lsm
import lsm.pyg
from support.pyg_links import assert_same_data
from support.typed_graphs import CITES, WRITES, typed_graph

MASKS = ("train_mask", "val_mask", "test_mask")
CACHES = {
    "none": None,
    "lookahead": {"policy": "lookahead", "bytes": "4KiB", "window": 4},
    "pool": {"policy": "lookahead", "bytes": "2KiB", "victim": {"mode": "pool", "bytes": "1KiB"}},
}


def plain_graph():
    draw = torch.Generator().manual_seed(4)
    data = Data(x=torch.randn(300, 24, generator=draw), y=torch.arange(300) % 4)
    data.edge_index = torch.randint(300, (2, 900), generator=draw)
    data.edge_attr = torch.randn(900, 2, generator=draw)
    for number, name in enumerate(MASKS):
        data[name] = torch.arange(300) % 3 == number
    return data


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pyg")
    typed = typed_graph(papers=200, authors=90)
    del typed["author"].names
    graphs = {"plain": plain_graph(), "typed": typed}
    return {kind: lsm.GraphStore.from_pyg(each, folder / kind) for kind, each in graphs.items()}


def without_masks(store, data):
    """``data`` without the masks, which PyG's loaders deliver; they are checked."""
    for name in store.node_types:
        own = data[name] if isinstance(data, HeteroData) else data
        for mask in MASKS:
            if mask in own:
                expected = torch.zeros(store.nodes(name).num_nodes, dtype=torch.bool)
                expected[store.nodes(name).split(mask.removesuffix("_mask"))] = True
                assert torch.equal(own[mask], expected[own.n_id])
                del own[mask]
    return data


def assert_same_epochs(store, ours, theirs, epochs=2):
    count = 0
    for _ in range(epochs):
        for one, other in zip(ours, theirs, strict=True):
            assert_same_data(without_masks(store, one), other)
            count += 1
    assert count >= 2 * epochs


INPUTS = {
    "plain": ["train", torch.arange(100).flip(0), torch.arange(300) % 7 == 0, None],
    "typed": [("paper", "train"), "author", ("paper", torch.arange(50))],
}


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize(
    ("kind", "number"), [(kind, n) for kind, each in INPUTS.items() for n in range(len(each))]
)
def test_batches_are_those_of_the_own_loader(stores, kind, number, cache):
    store, nodes = stores[kind], INPUTS[kind][number]
    options = {"shuffle": True, "seed": 3, "cache": CACHES[cache], "storage": {"engine": "posix"}}
    with (
        lsm.NeighborLoader(store, [4, 3], nodes, 16, as_pyg=True, **options) as theirs,
        lsm.pyg.parts(store, [4, 3], nodes, 16, **options) as parts,
    ):
        loader = NodeLoader(**parts)
        assert len(loader) == len(theirs)
        assert_same_epochs(store, loader, theirs)
        ours, expected = parts.loader.stats(), theirs.stats()
        for name in expected:
            if name.startswith("cache_") and not name.endswith(("_secs", "_prefetched")):
                assert ours[name] == expected[name], name
        assert ours["bytes_requested"] == expected["bytes_requested"]
        if cache != "none":
            assert 0 < ours["cache_hits"] < ours["cache_requests"]
        assert parts["data"][0].opened is None  # all rows came from the cache ahead


@pytest.mark.parametrize("kind", ["plain", "typed"])
def test_options_reach_the_sampler(stores, kind, caplog):
    """Batches of other seeds than those ahead are sampled by the same rules."""
    store = stores["typed"] if kind == "typed" else stores["plain"]
    nodes = "paper" if kind == "typed" else "train"
    options = {"disjoint": True}
    if kind == "typed":
        options = {"time_attr": "time", "temporal_strategy": "last"}
    with lsm.pyg.parts(store, [-1, -1], nodes, 8, **options) as parts:
        loader = NodeLoader(**parts)
        ahead = next(iter(loader))
        own = ahead["paper"] if kind == "typed" else ahead
        assert_same_data(loader(own.input_id.tolist()), ahead)
    assert caplog.text == ""


LINKS = {
    "plain": [None, torch.arange(80).view(2, 40)],
    "typed": [CITES, (WRITES, torch.arange(40).view(2, 20))],
}
NEGATIVES = [None, "binary", {"mode": "triplet", "amount": 3}, {"mode": "binary", "amount": 0.5}]


@pytest.mark.parametrize("negatives", NEGATIVES, ids=str)
@pytest.mark.parametrize(
    ("kind", "number"), [(kind, n) for kind, each in LINKS.items() for n in range(len(each))]
)
def test_links_are_those_of_the_own_loader(stores, kind, number, negatives):
    store, links = stores[kind], LINKS[kind][number]
    options = {"shuffle": True, "batch_size": 8, "neg_sampling": negatives}
    options |= {"cache": CACHES["pool"], "storage": {"engine": "posix"}}
    if number == 1 and negatives in (None, "binary"):
        pairs = links[1] if kind == "typed" else links
        options["edge_label"] = torch.arange(pairs.size(1)) % 3
    with (
        lsm.LinkNeighborLoader(store, [3, 2], links, as_pyg=True, **options) as theirs,
        lsm.pyg.link_parts(store, [3, 2], links, **options) as parts,
    ):
        assert_same_epochs(store, LinkLoader(**parts), theirs)
        assert parts["data"][0].opened is None


def test_links_of_splits_keep_to_the_message_graph(stores, tmp_path):
    store = stores["plain"]
    splits = lsm.LinkSplits.make(store, tmp_path / "links", valid=0.2, test=0.2, seed=1)
    held = {*map(tuple, splits.edges("test").t().tolist())}
    held -= {*map(tuple, torch.cat([splits.edges(s) for s in ("train", "valid")], 1).t().tolist())}
    for split in ("train", "test"):
        with lsm.pyg.link_parts(store, [-1, -1], split, links=splits, batch_size=64) as parts:
            loader = LinkLoader(**parts)
            batches = [*loader, loader([0, 1, 2])]  # the last one is sampled at once
            for batch in batches:
                pairs = {*map(tuple, batch.n_id[batch.edge_index].t().tolist())}
                assert not pairs & held
                stored = store.to_pyg().edge_index[:, batch.e_id]
                assert torch.equal(stored, batch.n_id[batch.edge_index])


@pytest.mark.slow
def test_workers_of_a_loader_sample_by_themselves(stores, caplog):
    store = stores["plain"]
    whole = store.to_pyg()
    with lsm.pyg.parts(store, [4, 3], "train", 16, cache=CACHES["lookahead"]) as parts:
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                seen = []
                for batch in NodeLoader(**parts, num_workers=2):
                    assert torch.equal(batch.x, whole.x[batch.n_id])
                    seen.append(batch.n_id[: batch.batch_size])
                assert torch.equal(torch.cat(seen), store.split("train"))
        assert caplog.text.count("leave num_workers at 0") == 1
        with pytest.raises(TypeError, match="stay in the process that prepares them"):
            iter(NodeLoader(**parts, num_workers=1, multiprocessing_context="spawn"))


def test_batches_of_other_seeds_are_sampled_and_read_at_once(stores, caplog):
    """Two loaders share what is ahead: the second one takes no batch of the first."""
    store = stores["plain"]
    whole = store.to_pyg()
    with lsm.pyg.parts(store, [4, 3], "train", 16, cache=CACHES["lookahead"]) as parts:
        others = {**parts, "input_nodes": store.split("test")}
        del others["batch_sampler"]
        one, other = NodeLoader(**parts), NodeLoader(**others, batch_size=10)
        steps = iter(parts["batch_sampler"])
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                next(steps)
                batch = other([30, 31])
                assert torch.equal(batch.n_id[:2], store.split("test")[30:32])
                assert torch.equal(batch.x, whole.x[batch.n_id])
        steps.close()
        assert caplog.text.count("was prepared ahead for other seeds") == 1
        seen = torch.cat([batch.n_id[: batch.batch_size] for batch in one])
        assert torch.equal(seen, store.split("train"))


def test_nodes_that_a_transform_changes_are_read(stores):
    store = stores["plain"]
    whole = store.to_pyg()

    def first_nodes(output):
        output.node = output.node[: len(output.node) // 2]
        inside = (output.row < len(output.node)) & (output.col < len(output.node))
        output.row, output.col = output.row[inside], output.col[inside]
        output.edge = output.edge[inside]
        return output

    with lsm.pyg.parts(store, [4, 3], "train", 16, cache=CACHES["pool"]) as parts:
        for batch in NodeLoader(**parts, transform_sampler_output=first_nodes):
            assert torch.equal(batch.x, whole.x[batch.n_id])
            assert torch.equal(batch.edge_attr, whole.edge_attr[batch.e_id])


def test_nodes_that_a_transform_changes_in_place_are_read(stores):
    for kind, nodes in (("plain", "train"), ("typed", "paper")):
        store = stores[kind]
        whole = store.to_pyg()

        def reverse(output, kind=kind):
            for node in (output.node,) if kind == "plain" else output.node.values():
                node.copy_(node.flip(0))
            return output

        with lsm.pyg.parts(store, [3], nodes, 16, cache=CACHES["lookahead"]) as parts:
            for batch in NodeLoader(**parts, transform_sampler_output=reverse):
                own = batch if kind == "plain" else batch["paper"]
                expected = whole if kind == "plain" else whole["paper"]
                assert torch.equal(own.x, expected.x[own.n_id])


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_batches_can_be_made_without_gradients(stores, mode):
    store = stores["typed"]
    with mode(), lsm.pyg.parts(store, [3, 2], "paper", 16) as parts:
        for batch in NodeLoader(**parts):
            x = store.to_pyg()["author"].x
            assert torch.equal(batch["author"].x, x[batch["author"].n_id])
        assert parts["data"][0].opened is None


def test_seeds_that_replace_those_of_parts_are_sampled(stores, caplog):
    store = stores["plain"]
    with lsm.pyg.parts(store, [3], torch.arange(20), 5) as parts:
        batch = next(iter(NodeLoader(**{**parts, "input_nodes": torch.arange(40, 60)})))
        assert batch.n_id[:5].tolist() == [*range(40, 45)]
        assert torch.equal(batch.x, store.to_pyg().x[batch.n_id])
    assert "was prepared ahead for other seeds" in caplog.text
    assert "covers its own 20 seeds alone: call lsm.pyg.parts anew" in caplog.text
    with lsm.pyg.parts(stores["typed"], [3], "paper", 5, time_attr="time") as parts:
        given = {**parts, "input_time": torch.full((200,), 4)}
        assert next(iter(NodeLoader(**given)))["paper"].seed_time.tolist() == [4] * 5
        given["input_nodes"] = ("author", torch.arange(200) % 90)
        authors = next(iter(NodeLoader(**given)))["author"]
        assert authors.n_id[: authors.batch_size].tolist() == [*range(5)]


OTHER_LINKS = {
    "links": {"edge_label_index": (None, torch.arange(40, 80).view(2, 20))},
    "labels": {"edge_label": torch.arange(20)},
    "negatives": {"neg_sampling": "binary"},
    "triplets": {"neg_sampling": "triplet"},
    "no negatives": {"neg_sampling": None},
    "amount": {"neg_sampling": ("binary", 3)},
    "weights": {"neg_sampling": NegativeSampling("binary", 2, torch.ones(300))},
}


@pytest.mark.parametrize("kind", OTHER_LINKS)
def test_links_that_replace_those_of_parts_are_sampled(stores, caplog, kind):
    store, pairs = stores["plain"], torch.arange(40).view(2, 20)
    has_none = kind in ("negatives", "triplets", "labels")
    given = {} if has_none else {"neg_sampling": ("binary", 2)}
    with lsm.pyg.link_parts(store, [3], pairs, batch_size=5, **given) as parts:
        arguments = {**parts, **OTHER_LINKS[kind]}
        batch = next(iter(LinkLoader(**arguments)))
    data = lsm.pyg.FeatureStore(store), lsm.pyg.GraphStore(store)
    names = ("edge_label_index", "edge_label", "neg_sampling")
    plain = {name: arguments[name] for name in names} | {"transform": lsm.pyg.EdgeValues(store)}
    theirs = LinkLoader(data, lsm.pyg.Sampler(store, [3]), **plain)([*range(5)])
    assert set(batch.keys()) == set(theirs.keys())
    for name in {"edge_label_index", "edge_label", "src_index", "dst_neg_index"} & set(
        batch.keys()
    ):
        assert batch[name].shape == theirs[name].shape, name
    if kind == "labels":
        assert torch.equal(batch.edge_label, theirs.edge_label)
    if "edge_label_index" in batch:
        links = arguments["edge_label_index"][1][:, :5]
        assert torch.equal(batch.n_id[batch.edge_label_index[:, :5]], links)
    assert "was prepared ahead for other seeds" in caplog.text


def test_negatives_that_are_alike_are_those_ahead(stores, caplog):
    pairs, weight = torch.arange(40).view(2, 20), torch.ones(300)
    given = NegativeSampling("binary", 2, weight, weight)
    with lsm.pyg.link_parts(stores["plain"], [3], pairs, neg_sampling=given) as parts:
        alike = NegativeSampling("binary", 2, weight.clone(), weight)
        next(iter(LinkLoader(**{**parts, "neg_sampling": alike})))
    assert caplog.text == ""


def test_a_pass_that_is_counted_ends_with_its_last_batch(stores):
    """Lightning takes as many batches as there are, and does not ask for one more."""
    store = stores["plain"]
    with (
        lsm.pyg.parts(store, [3], "train", 16, cache=CACHES["pool"]) as parts,
        lsm.pyg.parts(store, [3], "valid", 16, features=parts.loader.features) as valid,
    ):
        loader, validation, passes = NodeLoader(**parts), NodeLoader(**valid), []
        for _ in range(2):
            passes.append(iter(loader))
            for _ in range(len(loader)):
                next(passes[-1])
            seen = torch.cat([batch.n_id[: batch.batch_size] for batch in validation])
            assert torch.equal(seen, store.split("valid"))


def test_an_older_pass_leaves_the_batch_of_a_newer_one(stores):
    with lsm.pyg.parts(stores["plain"], [3], "train", 16, shuffle=True) as parts:
        ahead = parts["batch_sampler"]
        older, newer = iter(ahead), iter(ahead)
        next(older)
        assert ahead.take().epoch == 0
        next(newer)
        older.close()
        assert ahead.take().epoch == 1
        next(newer)
        newer.close()
        assert ahead.take() is None


@pytest.mark.parametrize("form", [torch.Tensor.tolist, torch.Tensor.numpy])
def test_times_of_seeds_may_be_lists_and_arrays(stores, form):
    times = torch.arange(4) + 2
    nodes, options = ("paper", torch.arange(4)), {"time_attr": "time"}
    with lsm.pyg.parts(stores["typed"], [2], nodes, input_time=form(times), **options) as parts:
        batch = next(iter(NodeLoader(**parts)))
    assert torch.equal(batch["paper"].seed_time, times)


def test_an_epoch_that_is_left_ends_its_work(stores):
    """The next one starts anew, over the same cache."""
    store = stores["plain"]
    with lsm.pyg.parts(store, [4, 3], "train", 8, shuffle=True, cache=CACHES["pool"]) as parts:
        loader = NodeLoader(**parts)
        for number, _ in enumerate(loader):
            if number == 2:
                break
        second = [batch.input_id.tolist() for batch in loader]
        parts.set_epoch(1)
        assert [batch.input_id.tolist() for batch in loader] == second
        assert sorted(itertools.chain(*second)) == [*range(len(store.split("train")))]


def test_ranks_divide_the_seeds(stores):
    store = stores["plain"]
    seen = []
    for rank in range(3):
        with lsm.pyg.parts(store, [2], "train", 8, shuffle=True, rank=rank, world_size=3) as parts:
            seen += [batch.n_id[: batch.batch_size] for batch in NodeLoader(**parts)]
    assert torch.equal(torch.cat(seen).sort().values, store.split("train"))


def test_without_ids_of_edges_nothing_is_sampled_twice(stores):
    store = stores["plain"]
    told = []
    arguments = {"edge_ids": False, "transform": lambda data: told.append(data) or data}
    with lsm.pyg.parts(store, [2], "train", 50, **arguments) as parts:
        for batch in NodeLoader(**parts):
            assert "e_id" not in batch
            assert "edge_attr" not in batch
            assert told[-1] is batch


def test_a_failed_read_reaches_the_loop(stores, tmp_path):
    store = lsm.GraphStore.from_pyg(plain_graph(), tmp_path / "store")
    with lsm.pyg.parts(store, [2], "train", 10, storage={"engine": "posix"}) as parts:
        os.truncate(store.feature_paths[0], 4096)
        with pytest.raises(OSError, match="features"):
            for _ in NodeLoader(**parts):
                pass


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"as_pyg": True}, TypeError, "parts: as_pyg: PyG's loader makes the batches"),
        ({"sampler": None}, TypeError, "parts: sampler"),
        ({"shufle": True}, TypeError, "unknown argument shufle; did you mean shuffle"),
        ({"num_workers": 2}, TypeError, "num_workers of PyG's loader is not supported"),
        ({"custom_cls": Data}, TypeError, r"NodeLoader\(\*\*parts, custom_cls=\.\.\.\)"),
        (
            {"pin_memory": True},
            TypeError,
            "pin_memory is for PyG's loader, next to the result of parts",
        ),
        ({"sampling": "ladies"}, ValueError, "expected neighbor or labor, got ladies"),
    ],
)
def test_bad_options_are_errors(stores, options, error, told, monkeypatch):
    opened = []
    closes = lsm.NeighborLoader.close
    monkeypatch.setattr(lsm.NeighborLoader, "close", lambda loader: opened.append(closes(loader)))
    with pytest.raises(error, match=told):
        lsm.pyg.parts(stores["plain"], [2], "train", **options)
    assert len(opened) == ("sampling" in options)  # the others fail before a loader is open


@pytest.mark.parametrize("kind", ["joint", "inbatch"])
def test_negatives_that_pyg_lacks_are_an_error(stores, kind):
    negatives = {"mode": "triplet", "kind": kind}
    with pytest.raises(ValueError, match="neg_sampling: expected kind uniform without nodes"):
        lsm.pyg.link_parts(stores["plain"], [2], neg_sampling=negatives)


@pytest.mark.parametrize("none", [[], torch.arange(0)])
def test_no_seeds_are_no_batches(stores, none):
    with lsm.pyg.parts(stores["plain"], [2], none) as parts:
        assert list(NodeLoader(**parts)) == []


def test_arguments_of_pyg_alone_go_to_its_loader(stores):
    class Own(Data):
        pass

    def of_all(output):
        output.metadata = (output.metadata[0] + 1, None)
        return output

    arguments = {"custom_cls": Own, "transform_sampler_output": of_all}
    with lsm.pyg.parts(stores["plain"], [2], "train", 10) as parts:
        batch = next(iter(NodeLoader(**parts, **arguments)))
    assert isinstance(batch, Own)
    assert batch.input_id.tolist() == [*range(1, 11)]


class Trimmed(torch.nn.Module):
    """Two layers that compute what the seeds need."""

    def __init__(self, width, classes):
        super().__init__()
        self.convs = torch.nn.ModuleList([SAGEConv(width, 16), SAGEConv(16, classes)])

    def forward(self, batch):
        x, edge_index = batch.x, batch.edge_index
        for number, conv in enumerate(self.convs):
            counts = batch.num_sampled_nodes, batch.num_sampled_edges
            x, edge_index, _ = trim_to_layer(number, *counts, x, edge_index)
            x = conv(x, edge_index)
        return x


@pytest.mark.parametrize("model", ["plain", "trimmed"])
def test_models_of_pyg_train(stores, model):
    store = stores["plain"]
    torch.manual_seed(0)
    network = Trimmed(24, 4) if model == "trimmed" else GraphSAGE(24, 16, 2, 4)
    optimizer = torch.optim.Adam(network.parameters(), 0.02)
    losses = []
    with lsm.pyg.parts(store, [4, 4], "train", 32, shuffle=True, cache=CACHES["pool"]) as parts:
        loader = NodeLoader(**parts)
        for _ in range(8):
            for batch in loader:
                given = (batch,) if model == "trimmed" else (batch.x, batch.edge_index)
                out = network(*given)[: batch.batch_size]
                loss = F.cross_entropy(out, batch.y[: batch.batch_size])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(float(loss))
    assert sum(losses[-4:]) < 0.8 * sum(losses[:4])


def test_a_model_by_type_takes_batches(stores):
    store = stores["typed"]
    with lsm.pyg.parts(store, [3, 3], ("paper", "train"), 16) as parts:
        for batch in NodeLoader(**parts, num_workers=0):
            x = {name: each.float() for name, each in batch.x_dict.items()}
            x["topic"] = torch.zeros(batch["topic"].num_nodes, 3)
            types = [*batch.node_types], [each for each in batch.edge_types if each[2] != "author"]
            model = to_hetero(GraphSAGE((-1, -1), 8, 1, 4), types)
            out = model(x, {each: batch.edge_index_dict[each] for each in types[1]})
            assert out["paper"].shape == (batch["paper"].num_nodes, 4)
            break
