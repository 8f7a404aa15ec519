"""The rows of all nodes equal those of PyG on the whole graph, bit for bit at every memory."""

import copy
import itertools
import re
import shutil

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import (
    GCNConv,
    GraphConv,
    LayerNorm,
    SAGEConv,
    SGConv,
    TransformerConv,
)
from torch_geometric.nn.models import GAT, GCN, GIN, GraphSAGE

import lsm
from lsm import native
from lsm.core import host_memory
from lsm.inference import convs, driver, gather, intervals
from lsm.inference.arrays import ArrayFile
from lsm.inference.options import InferenceOptions
from support.gather_blocks import small_blocks

DIM, CLASSES = 12, 5
RELATIVE = 1e-5  # float32 sums in another order


@pytest.fixture(scope="module")
def data():
    """With parallel edges, self loops, nodes without edges, and a hub."""
    draw = torch.Generator().manual_seed(1)
    ends = torch.randint(500, (2, 4000), generator=draw)
    hub = torch.stack([torch.arange(400), torch.full((400,), 7)])
    x = torch.randn(520, DIM, generator=draw)
    return Data(x=x, edge_index=torch.cat([ends, ends[:, :50], hub], dim=1), num_nodes=520)


@pytest.fixture(scope="module")
def store(data, tmp_path_factory):
    return lsm.GraphStore.from_pyg(data, tmp_path_factory.mktemp("routes") / "store")


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    small_blocks(monkeypatch, 256)


def memory(num_bytes):
    """``num_bytes`` next to the process."""
    return host_memory.resident_bytes()["anonymous"] + num_bytes


MODELS = {
    "sage": lambda: GraphSAGE(DIM, 16, 3, CLASSES),
    "sage-max": lambda: GraphSAGE(DIM, 16, 2, CLASSES, aggr="max", act="elu"),
    "sage-sum": lambda: GraphSAGE(DIM, 16, 2, CLASSES, aggr="sum", normalize=True),
    "sage-project": lambda: GraphSAGE(DIM, 16, 2, CLASSES, project=True, root_weight=False),
    "gcn": lambda: GCN(DIM, 16, 3, CLASSES),
    "gcn-improved": lambda: GCN(DIM, 16, 2, CLASSES, improved=True, norm="batchnorm"),
    "gcn-no-loops": lambda: GCN(DIM, 16, 2, CLASSES, add_self_loops=False, act_first=True),
    "gcn-plain": lambda: GCN(DIM, 16, 2, CLASSES, normalize=False, bias=False),
    "gin": lambda: GIN(DIM, 16, 2, CLASSES, train_eps=True),
    "gat": lambda: GAT(DIM, 16, 2, CLASSES, heads=4),
    "gatv2": lambda: GAT(DIM, 16, 2, CLASSES, v2=True, heads=2, norm=LayerNorm(16, mode="node")),
    "gat-mean": lambda: GAT(DIM, 16, 3, CLASSES, heads=2, concat=False, residual=True, bias=False),
    "gat-no-loops": lambda: GAT(DIM, 16, 2, CLASSES, heads=2, add_self_loops=False),
    "gatv2-shared": lambda: GAT(
        DIM, 16, 2, CLASSES, v2=True, heads=2, share_weights=True, residual=True
    ),
    "sage-last": lambda: GraphSAGE(DIM, 16, 2, CLASSES, jk="last"),
}


def model(name):
    torch.manual_seed(0)
    made = MODELS[name]().eval()
    for norm in made.modules():
        if isinstance(norm, nn.BatchNorm1d):
            norm.running_mean.normal_()
    return made


@pytest.mark.parametrize("name", MODELS)
def test_intervals_give_the_rows_of_the_whole_graph(name, data, store, tmp_path, monkeypatch):
    monkeypatch.setattr(intervals, "CHUNK_ROWS", 32)
    made = model(name)
    summary, found = run(made, store, tmp_path / "a", num_threads=2)
    assert summary["route"] == "intervals"
    close(found["scores"], full(made, data))
    _, gathered = run(made, store, tmp_path / "b", route="gather")
    close(gathered["embeddings"], torch.from_numpy(found["embeddings"]))
    for number, num_bytes in enumerate((130_000, 160_000)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(driver, "_own_bytes", lambda: 0)
            out = tmp_path / f"small{number}"
            _, again = run(made, store, out, num_threads=1, memory_bytes=num_bytes)
        for key, rows in found.items():
            assert rows.tobytes() == again[key].tobytes(), key


@pytest.mark.parametrize("route", ["auto", "intervals", "gather"])
@pytest.mark.parametrize("bad", [-(10**12), 10**12])
def test_a_damaged_topology_is_told(data, store, tmp_path, route, bad):
    damaged = shutil.copytree(store.path, tmp_path / "store")
    indptr = np.load(damaged / "topology" / "indptr.npy", mmap_mode="r+")
    indptr[300] = bad
    indptr.flush()
    with pytest.raises(ValueError, match=r"indptr: expected .* `lsm data verify`"):
        run(model("sage"), lsm.GraphStore.open(damaged), tmp_path / "out", route=route)


@pytest.mark.parametrize("options", [{}, {"memory_bytes": 1000}])
def test_a_model_in_training_predicts_without_dropout_and_goes_on(data, store, tmp_path, options):
    """Also after an error. Parts that a user has frozen stay so."""
    torch.manual_seed(0)
    made = GraphSAGE(DIM, 16, 2, CLASSES, dropout=0.5, norm="batchnorm").train()
    made.norms[0].eval()
    before = [each.training for each in made.modules()]
    if options:
        with pytest.raises(ValueError, match="memory"):
            run(made, store, tmp_path / "out", **options)
    else:
        _, found = run(made, store, tmp_path / "out")
        expected = full(copy.deepcopy(made).eval(), data)
        close(found["scores"], expected)
    assert [each.training for each in made.modules()] == before


def test_memory_decides_how_often_rows_stream_by(data, store, tmp_path, monkeypatch):
    """Several intervals, each with several batches of sources, where memory is small."""
    monkeypatch.setattr(intervals, "CHUNK_ROWS", 32)
    monkeypatch.setattr(driver, "_own_bytes", lambda: 0)
    made, seen = GraphSAGE(DIM, 64, 2, CLASSES).eval(), []

    class Recorded(native.IntervalEdges):
        def __init__(self, *args):
            super().__init__(*args)
            seen.append((args[4] - args[3], self.num_batches))

    monkeypatch.setattr(native, "IntervalEdges", Recorded)
    for room, out in ((1 << 30, "a"), (240_000, "b")):
        run(made, store, tmp_path / out, num_threads=1, memory_bytes=room)
    assert seen[:2] == [(520, 1)] * 2
    of_first = [each for each in seen[2:] if each[1] > 1]
    assert len(of_first) > 1
    assert sum(size for size, _ in of_first) % 520 == 0


def run(made, store, out, **options):
    summary = lsm.predict(made, store, out, progress=False, **options)
    found = {name: np.load(each["file"]) for name, each in summary["outputs"].items()}
    return summary, found


def full(made, data):
    with torch.no_grad():
        return made(data.x, data.edge_index)


def close(found, expected):
    found = torch.from_numpy(found)
    assert (found - expected).abs().max() <= RELATIVE * expected.abs().max()


@pytest.mark.parametrize("name", MODELS)
def test_rows_are_those_of_the_whole_graph(name, data, store, tmp_path):
    made = model(name)
    summary, found = run(made, store, tmp_path / "a", route="gather", num_threads=2)
    expected = full(made, data)
    close(found["scores"], expected)
    assert np.array_equal(found["predictions"], found["scores"].argmax(1))
    assert found["embeddings"].shape == (520, 16)
    assert summary["rows_not_finite"] == 0
    room = memory((1 << 20) + 300_000)
    _, again = run(made, store, tmp_path / "b", route="gather", num_threads=1, memory_bytes=room)
    for key, rows in found.items():
        assert rows.tobytes() == again[key].tobytes(), key


def test_a_group_reads_each_row_once_without_a_look_at_all_nodes(store, tmp_path, monkeypatch):
    """In ascending order of ids, whatever the order of its blocks' nodes."""
    closed, read, groups = gather._closed, gather.GatherStage._read, []

    def watched(*arguments):
        with monkeypatch.context() as patched:
            patched.setattr(torch.Tensor, "nonzero", None)
            return closed(*arguments)

    def recorded(stage, group, storages):
        (ids,) = group.ids.values()
        wanted = torch.cat([own for block in group.blocks for own in block.ids.values()])
        assert torch.equal(ids, wanted.unique())
        groups.append(len(group.blocks))
        return read(stage, group, storages)

    monkeypatch.setattr(gather, "_closed", watched)
    monkeypatch.setattr(gather.GatherStage, "_read", recorded)
    monkeypatch.setattr(gather, "_MOST_BLOCKS", 3)
    run(model("sage"), store, tmp_path / "out", route="gather")
    assert len(groups) > 6
    assert max(groups) == 3


def test_embeddings_are_the_rows_before_the_last_layer(data, store, tmp_path):
    made = model("gcn")
    _, found = run(made, store, tmp_path / "out", outputs=["embeddings"])
    with torch.no_grad():
        x = made.convs[0](data.x, data.edge_index).relu()
        x = made.convs[1](x, data.edge_index).relu()
    assert [*found] == ["embeddings"]
    close(found["embeddings"], x)


def test_a_list_of_layers_is_a_model(data, store, tmp_path):
    first, last = GraphConv(DIM, 8), TransformerConv(8, CLASSES)

    def hidden(x, edge_index):
        return first(x, edge_index).tanh()

    _, found = run([hidden, last], store, tmp_path / "out", outputs=["scores"])
    with torch.no_grad():
        expected = last(hidden(data.x, data.edge_index), data.edge_index)
    close(found["scores"], expected)


def test_values_of_edges_that_layers_do_not_get_are_warned_of(data, tmp_path, caplog):
    weighted = Data(x=data.x, edge_index=data.edge_index, edge_weight=data.edge_index[0].float())
    store = lsm.GraphStore.from_pyg(weighted, tmp_path / "store")
    for made, is_told in (([GCNConv(DIM, CLASSES)], True), ([SAGEConv(DIM, CLASSES)], False)):
        caplog.clear()
        run(made, store, tmp_path / f"{is_told}", outputs=["scores"])
        assert ("edge_weight is not passed to the layers" in caplog.text) == is_told


class OwnModel(nn.Module):
    """With the hook of PyG, and a skip from the features of a node."""

    num_layers = 2

    def __init__(self):
        super().__init__()
        self.first, self.last = GraphConv(DIM, DIM), GraphConv(DIM, CLASSES)

    def inference_per_layer(self, layer, x, edge_index, batch_size):
        conv = (self.first, self.last)[layer]
        rows = conv(x, edge_index)[:batch_size]
        return rows if layer else rows.relu() + x[:batch_size]


def test_an_own_model_gives_its_layers_one_by_one(data, store, tmp_path):
    made = OwnModel()
    _, found = run(made, store, tmp_path / "out", outputs=["scores"])
    with torch.no_grad():
        x = data.x
        for layer in range(2):
            x = made.inference_per_layer(layer, x, data.edge_index, len(x))
    close(found["scores"], x)


@pytest.mark.parametrize("as_file", [True, False])
def test_some_nodes_have_rows_in_order_of_ids(as_file, data, store, tmp_path):
    ids = [500, 7, 3, 519, 8, 7]
    nodes = torch.tensor(ids)
    if as_file:
        nodes = tmp_path / "ids.txt"
        nodes.write_text("".join(f"{i}\n" for i in ids))
    made = model("gat")
    summary, found = run(made, store, tmp_path / "out", nodes=nodes)
    expected = sorted(set(ids))
    assert np.load(tmp_path / "out" / "nodes.npy").tolist() == expected
    assert summary["nodes"] == 5
    close(found["scores"], full(made, data)[expected])


def test_float16_is_the_rounded_row(store, tmp_path):
    made = model("sage")
    _, exact = run(made, store, tmp_path / "a")
    _, short = run(made, store, tmp_path / "b", dtype="float16")
    for key in ("scores", "embeddings"):
        assert np.array_equal(short[key], exact[key].astype(np.float16))
    assert np.array_equal(short["predictions"], exact["predictions"])


def test_a_file_takes_rows_of_its_shape_alone(tmp_path):
    array = ArrayFile(tmp_path / "rows.npy", 4, (3,), torch.float32, is_npy=True)
    array.create()
    array.write(1, torch.ones(2, 3))
    for rows in (torch.ones(1, 6), torch.ones(3)):
        with pytest.raises(ValueError, match=r"expected rows of shape \[3\], got"):
            array.write(0, rows)
    assert np.array_equal(np.load(array.path), [[0] * 3, [1] * 3, [1] * 3, [0] * 3])


def test_rows_that_overflow_float16_are_counted(store, tmp_path):
    made = model("gcn")
    with torch.no_grad():
        made.convs[-1].lin.weight *= 1e5
    summary, found = run(made, store, tmp_path / "out", outputs=["scores"], dtype="float16")
    overflown = int((~np.isfinite(found["scores"]).all(axis=1)).sum())
    assert summary["rows_not_finite"] == overflown > 0


def test_rows_that_are_not_finite_are_counted(data, tmp_path, caplog):
    x = data.x.clone()
    x[3, 2] = float("nan")
    bad = Data(x=x, edge_index=data.edge_index)
    store = lsm.GraphStore.from_pyg(bad, tmp_path / "store")
    made = GraphSAGE(DIM, 8, 1, CLASSES).eval()
    summary, found = run(made, store, tmp_path / "out", outputs=["scores"])
    reached = set(data.edge_index[1][data.edge_index[0] == 3].tolist()) | {3}
    assert summary["rows_not_finite"] == len(reached) == np.isnan(found["scores"]).any(1).sum()
    assert f"{len(reached)} of 520 rows have values that are not finite" in caplog.text
    two = GraphSAGE(DIM, 8, 2, CLASSES).eval()
    summary, found = run(two, store, tmp_path / "two")  # bad embeddings are bad scores, too
    assert summary["rows_not_finite"] == np.isnan(found["scores"]).any(1).sum()


def test_all_that_a_model_of_one_layer_has_is_written(store, tmp_path):
    lsm.predict([GCNConv(DIM, CLASSES)], store, tmp_path / "out", progress=False)
    found = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert found == ["inference.json", "predictions.npy", "scores.npy"]


def bad_input(store, tmp_path):
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "file").touch()
    sage = GraphSAGE(DIM, 8, 2, CLASSES)
    yield sage, {"out": taken}, FileExistsError, "exists; choose another directory"
    yield sage, {"dtype": "int8"}, ValueError, "--dtype: expected float32 or float16"
    yield sage, {"outputs": ["score"]}, ValueError, "--outputs: expected some of embeddings"
    yield sage, {"num_threads": -1}, ValueError, "--threads: expected from 0 to"
    yield sage, {"memory_bytes": "lots"}, ValueError, "--memory-bytes: expected a size such as"
    yield sage, {"route": "fast"}, ValueError, "--route: expected auto, intervals, gather"
    yield sage, {"nodes": "tset"}, FileNotFoundError, "which is no file"
    yield sage, {"nodes": torch.tensor([520])}, ValueError, "--nodes: expected ids from 0 to 519"
    mask, is_no_id = torch.arange(520) < 9, r"--nodes.*: expected \[N\] integers, got "
    np.save(tmp_path / "mask.npy", mask.numpy())
    (tmp_path / "text.npy").write_text("7")
    (tmp_path / "large.txt").write_text(f"7\n{10**20}")
    yield sage, {"nodes": mask}, ValueError, is_no_id + r"\[520\] torch.bool; mask.nonzero"
    yield sage, {"nodes": tmp_path / "mask.npy"}, ValueError, is_no_id + r"\[520\] torch.bool"
    yield sage, {"nodes": torch.tensor([1.5])}, ValueError, is_no_id + r"\[1\] torch.float32"
    yield sage, {"nodes": torch.tensor(3)}, ValueError, is_no_id + r"\[\] torch.int64"
    yield sage, {"nodes": torch.ones(2, 2).long()}, ValueError, is_no_id
    yield sage, {"nodes": tmp_path / "text.npy"}, ValueError, "--nodes: .*text.npy"
    yield sage, {"nodes": tmp_path / "large.txt"}, ValueError, "--nodes: expected ids from 0 to 519"
    yield sage, {"memory_bytes": 0}, ValueError, "--memory-bytes: expected at least"
    yield sage, {"memory_bytes": 1 << 20}, ValueError, "--memory-bytes: expected at least"
    yield GraphSAGE(DIM, 8, 2, 5, jk="cat"), {}, ValueError, "needs the rows of all layers at once"
    yield GraphSAGE(7, 8, 2, 5), {}, ValueError, "rows of 12 values .* model of another store"
    yield GraphSAGE(DIM, 8, 2, 5, norm="GraphNorm"), {}, ValueError, "more than the in-edges"
    yield [SGConv(DIM, CLASSES, K=2)], {}, ValueError, "layer 1 .* more than the in-edges"
    transformer = [TransformerConv(DIM, CLASSES)]
    yield transformer, {"route": "intervals"}, ValueError, "layer 1 .* use --route gather"
    yield nn.Linear(DIM, CLASSES), {}, ValueError, "Linear cannot .* give it num_layers"
    one, embeddings = [GCNConv(DIM, CLASSES)], {"outputs": ["embeddings"]}
    yield one, embeddings, ValueError, "one layer has no embeddings .* --outputs scores,predictions"


@pytest.mark.parametrize("number", range(24))
def test_bad_input_is_named_before_anything_is_written(number, store, tmp_path):
    cases = [*bad_input(store, tmp_path)]
    assert len(cases) == 24
    made, options, kind, message = cases[number]
    out = options.pop("out", tmp_path / "out")
    with pytest.raises(kind, match=message):
        run(made, store, out, **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("route", ["intervals", "gather"])
def test_too_little_memory_is_told_with_enough(route, store, tmp_path, monkeypatch):
    monkeypatch.setattr(intervals, "CHUNK_ROWS", 32)
    monkeypatch.setattr(driver, "_own_bytes", lambda: 5 << 20)
    made, options = model("sage"), {"route": route, "num_threads": 2, "outputs": ["scores"]}
    with pytest.raises(
        ValueError, match=r"\(5 MiB of it the process itself\), got 1000 B"
    ) as found:
        run(made, store, tmp_path / "out", memory_bytes=1000, **options)
    enough = re.search(r"expected at least (\S+) (\S)iB", str(found.value))
    told = float(enough[1]) * {"K": 1 << 10, "M": 1 << 20}[enough[2]]
    if route == "gather":  # the largest block is only known once it is made
        told += driver.enough_bytes(made, store, InferenceOptions(route="gather", num_threads=2))
    run(made, store, tmp_path / "out", memory_bytes=int(told), **options)


def test_a_full_disk_is_found_first(store, disk):
    made = GraphSAGE(DIM, 2048, 3, CLASSES)
    with pytest.raises(OSError, match=r"disk full: .* more needed"):
        run(made, store, disk / "out")
    assert not (disk / "out").exists()


def test_blocks_cover_all_nodes_once(store):
    topology = store.topology()
    bounds = gather.block_bounds([topology], 520, 256)
    assert bounds[0] == 0
    assert bounds[-1] == 520
    costs = [
        int(topology.indptr[b] - topology.indptr[a]) + int(b - a)
        for a, b in itertools.pairwise(bounds.tolist())
    ]
    assert min(costs) > 0
    degrees = topology.indptr.diff()
    assert max(costs) <= 256 + int(degrees.max())


def test_degrees_are_counted_by_parts_of_the_nodes(store, monkeypatch):
    conv = GCNConv(DIM, 4)
    whole = convs.gcn_scale(conv, store.topology(), 0, 520)
    monkeypatch.setattr(convs, "_NODES_AT_ONCE", 64)
    assert torch.equal(convs.gcn_scale(conv, store.topology(), 5, 520), whole[5:])


def test_blocks_of_wide_rows_take_no_more_memory(store, monkeypatch):
    monkeypatch.setattr(gather, "BLOCK_EDGES", 16_384)
    options = InferenceOptions(route="gather", num_threads=2)
    narrow, wide = (
        driver.enough_bytes(GraphSAGE(DIM, width, 2, CLASSES), store, options)
        for width in (128, 4096)
    )
    all_rows = 2 * 520 * 4 * 4096  # of both groups
    assert wide < 2 * narrow + all_rows
