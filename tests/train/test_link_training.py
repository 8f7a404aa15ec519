"""Link prediction trains from a configuration, ranks as NumPy does, and learns no leak."""

import json
import shutil
import signal

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

import lsm
from lsm.data.info import describe
from lsm.links.losses import link_loss_sum
from lsm.loader.batch import Batch
from lsm.loader.seed_links import SeedLinks
from lsm.nn.link_scorers import build_scorer
from lsm.train.tasks.link_prediction import LinkPrediction
from lsm.train.trainer import train
from support.training import CRASH_AT, config, losses, overrides, run_forked, run_job, run_ranks

WRITES, REV_WRITES = ("author", "writes", "paper"), ("paper", "rev_writes", "author")
LINKS = (
    "train.task=link",
    "sampler.num_neighbors=[5, 5]",
    "links.num_negatives=32",
    "links.eval_candidates=100",
)


def make_graph(path, *, is_random, num_nodes=400, seed=0):
    """Both directions of each edge. Random: edges and features tell nothing of each other; else
    edges lie inside communities, which features tell."""
    draw = np.random.default_rng(seed)
    community = draw.integers(8, size=num_nodes)
    pairs = draw.integers(num_nodes, size=(2, 6 * num_nodes))
    if not is_random:
        pairs = draw.integers(num_nodes, size=(2, 40 * num_nodes))
        pairs = pairs[:, community[pairs[0]] == community[pairs[1]]][:, : 6 * num_nodes]
    features = draw.standard_normal((num_nodes, 16)).astype(np.float32)
    if not is_random:
        features[np.arange(num_nodes), community] += 4
    ends = torch.from_numpy(np.concatenate((pairs, pairs[::-1]), 1))
    store = lsm.GraphStore.from_pyg(Data(x=torch.from_numpy(features), edge_index=ends), path)
    lsm.LinkSplits.make(store, valid=0.1, test=0.2)
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_graph(tmp_path_factory.mktemp("links") / "g", is_random=False)


@pytest.fixture(scope="module")
def random_store(tmp_path_factory):
    return make_graph(tmp_path_factory.mktemp("random") / "g", is_random=True)


def chance(num_candidates):
    """The mean reciprocal rank of a random order of a target and ``num_candidates``."""
    return (1 / np.arange(1, num_candidates + 2)).mean()


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("links.negatives=inbatch", "links.scorer=mlp"),
        ("links.negatives=resident", "links.resident_iterations=3"),
        ("links.negatives=uniform", "links.num_negatives=4", "links.loss=bpr"),
        (
            "links.negatives=degree",
            "links.num_negatives=4",
            "links.loss=bce",
            "links.scorer=distmult",
        ),
    ],
    ids=str,
)
def test_links_of_communities_are_learnt(store, tmp_path, options):
    summary = train(config(store, tmp_path, *LINKS, "train.epochs=4", *options))
    assert summary["test_mrr"] > 2 * chance(100)
    assert summary["test_hits_at_1"] <= summary["test_hits_at_3"] <= summary["test_hits_at_10"]
    found = [loss for *_, loss in losses(tmp_path)]
    assert np.mean(found[-10:]) < np.mean(found[:10])


@pytest.mark.slow
def test_nothing_leaks(random_store, tmp_path):
    """Links between random nodes cannot be told: MRR is that of chance."""
    summary = train(config(random_store, tmp_path, *LINKS, "train.epochs=6", "train.select=last"))
    # 480 links of two directions: the deviation of a mean of reciprocal ranks is about 0.006.
    assert summary["test_mrr"] == pytest.approx(chance(100), abs=0.025)


def test_scores_that_are_not_finite_name_the_place_and_a_remedy(store, tmp_path):
    settings = config(store, tmp_path, *LINKS, "train.batch_size=8000", "train.lr=1e10")
    with pytest.raises(RuntimeError, match=r"epoch 1, split valid: .* not finite.*lower train\.lr"):
        train(settings)


@pytest.mark.slow
def test_a_leak_would_be_seen(random_store, tmp_path):
    """With the links in the graph that is sampled, the same network tells them."""
    graph = lsm.GraphStore.open(random_store)
    splits = lsm.LinkSplits.make(graph, tmp_path / "all", valid=0.1, test=0.2, message_edges="all")
    summary = train(
        config(
            random_store,
            tmp_path / "run",
            *LINKS,
            f"data.links={splits.path}",
            "links.exclude_seed_edges=false",
            "train.epochs=6",
            "train.select=last",
            "sampler.num_neighbors=[20, 20]",
        )
    )
    assert summary["test_mrr"] > 2 * chance(100)


def given_scores(task, scores, sources, destinations):
    """What an evaluation counts of a model with these scores."""
    links = SeedLinks(
        task.edge_type,
        src_index=torch.arange(len(sources)),
        dst_pos_index=torch.arange(len(sources), 2 * len(sources)),
        is_shared=True,
    )
    nothing = torch.zeros(1, dtype=torch.int64)
    batch = Batch(
        x=None,
        y=None,
        n_id=torch.cat((sources, destinations)),
        edge_index=nothing.view(1, 1),
        indptr=nothing,
        batch_size=len(sources),
        num_sampled_nodes=[0],
        num_sampled_edges=[],
        links=links,
    )
    return {name: float(each) for name, each in task.counts(lambda _: scores, batch).items()}


def given_splits(graph, folder):
    """Splits whose links are no edges of ``graph``, with destinations that are candidates often."""
    draw = np.random.default_rng(0)
    for split in ("train", "valid", "test"):
        np.save(folder / f"{split}.npy", draw.integers([20, graph.num_nodes], size=(5000, 2)))
    return lsm.LinkSplits.make(graph, folder / "given", given=folder).path


@pytest.mark.parametrize("is_given", [False, True])
@pytest.mark.parametrize("filtered", [True, False])
def test_ranks_are_those_of_numpy(store, tmp_path, filtered, is_given):
    graph, changes = lsm.GraphStore.open(store), [f"links.filtered={str(filtered).lower()}"]
    if is_given:
        changes.append(f"data.links={given_splits(graph, tmp_path)}")
    settings = config(store, tmp_path, *LINKS, *changes)
    task = LinkPrediction(settings)
    task.check(settings, graph, 1)
    candidates = task.negatives("test", is_disjoint=False).candidates
    sources, destinations = task.splits.edges("test")[:, :60]
    draw = torch.Generator().manual_seed(0)
    scores = torch.randint(12, (60, 101), generator=draw).float()  # with ties
    topology = graph.topology()
    edges = set(
        zip(
            topology.indices.tolist(),
            torch.repeat_interleave(topology.indptr.diff()).tolist(),
            strict=True,
        )
    )
    for split in ("train", "valid", "test"):
        edges.update(map(tuple, task.splits.edges(split).t().tolist()))
    ranks = []
    for row, source, destination in zip(
        scores.numpy(), sources.tolist(), destinations.tolist(), strict=True
    ):
        counted = [
            score
            for score, node in zip(row[1:], candidates.tolist(), strict=True)
            if node != destination and not (filtered and (source, node) in edges)
        ]
        above, ties = np.sum(counted > row[0]), np.sum(counted == row[0])
        ranks.append(1 + above + ties / 2)
    found = given_scores(task, scores, sources, destinations)
    assert found["reciprocal_ranks"] == pytest.approx(np.sum(1 / np.array(ranks)))
    for k in (1, 3, 10):
        assert found[f"hits_at_{k}"] == np.sum(np.array(ranks) <= k)


def test_constant_scores_have_the_middle_rank(store, tmp_path):
    settings = config(store, tmp_path, *LINKS, "links.filtered=false")
    task, graph = LinkPrediction(settings), lsm.GraphStore.open(store)
    task.check(settings, graph, 1)
    ends = task.splits.edges("test")[:, :50]
    found = given_scores(task, torch.full((50, 101), 3.0), *ends)
    assert 1 / 51 <= found["reciprocal_ranks"] / 50 <= 1 / 50.4
    assert found["hits_at_10"] == 0


def test_given_candidates_are_ranked(store, tmp_path):
    """In the form of ogbl-citation2; the ranks are those of a model of the run itself."""
    graph = lsm.GraphStore.open(store)
    own = lsm.LinkSplits.open(f"{store}.links")
    given = tmp_path / "given"
    given.mkdir()
    draw = np.random.default_rng(0)
    for split in ("valid", "test"):
        pairs = own.edges(split).t().numpy()
        np.save(given / f"{split}.npy", pairs)
        np.save(given / f"{split}_candidates.npy", draw.integers(400, size=(len(pairs), 30)))
    splits = lsm.LinkSplits.make(graph, tmp_path / "s", given=given)
    assert describe(splits.path)["candidates"] == {"valid": 30, "test": 30}
    summary = train(
        config(store, tmp_path / "run", *LINKS, f"data.links={splits.path}", "train.epochs=3")
    )
    assert summary["test_mrr"] > 1.5 * chance(30)
    assert "destination among 30 given" in (tmp_path / "run" / "run.log").read_text()


@pytest.mark.slow
def test_typed_links_are_learnt(tmp_path):
    """Authors write the papers of their field; sources and destinations are of two types."""
    draw = np.random.default_rng(0)
    fields = {"author": draw.integers(4, size=150), "paper": draw.integers(4, size=200)}
    ends = np.stack((draw.integers(150, size=9000), draw.integers(200, size=9000)))
    ends = torch.from_numpy(ends[:, fields["author"][ends[0]] == fields["paper"][ends[1]]])
    data = HeteroData()
    for name, of in fields.items():
        noise = draw.standard_normal((len(of), 8)).astype(np.float32)
        data[name].x = torch.from_numpy(noise + 3 * np.eye(8, dtype=np.float32)[of])
    data[WRITES].edge_index, data[REV_WRITES].edge_index = ends, ends.flip(0)
    graph = lsm.GraphStore.from_pyg(data, tmp_path / "g")
    lsm.LinkSplits.make(graph, edge_type=WRITES)
    settings = (*LINKS, "model.name=rsage", "train.epochs=5")
    summary = train(config(graph.path, tmp_path / "run", *settings))
    assert summary["test_mrr"] > 1.5 * chance(100)
    cached = train(
        config(
            graph.path,
            tmp_path / "cached",
            *settings,
            "storage.engine=posix",
            "cache.policy=lookahead",
            "cache.bytes=4KiB",
        )
    )
    assert losses(tmp_path / "run") == losses(tmp_path / "cached")
    assert cached["test_mrr"] == summary["test_mrr"]
    with pytest.raises(ValueError, match="need the rows of both"):
        train(
            config(graph.path, tmp_path / "own", *LINKS, "model.name=torch_geometric.nn:GraphSAGE")
        )


@pytest.mark.parametrize("kind", ["inbatch", "resident"])
def test_the_loss_is_corrected_for_the_chances_of_destinations(store, tmp_path, kind):
    """As NumPy has it, from the edges that training samples."""
    options = (f"links.negatives={kind}", "links.num_negatives=6")
    settings = config(store, tmp_path / "run", *LINKS, *options)
    graph, task = lsm.GraphStore.open(store), LinkPrediction(settings)
    task.check(settings, graph, 1)
    _, destinations = lsm.LinkSplits.open(f"{store}.links").edges("train").numpy()
    with lsm.LinkNeighborLoader(
        graph,
        [3],
        "train",
        links=f"{store}.links",
        neg_sampling={"mode": "triplet", "kind": kind, "amount": 6},
        batch_size=20,
        shuffle=True,
    ) as loader:
        batch = next(iter(loader))
    ids, links = batch.n_id.numpy(), batch.links
    own = ids[links.dst_pos_index]
    drawn = own if kind == "inbatch" else ids[links.dst_neg_index]
    scores = np.random.default_rng(0).standard_normal((20, 1 + len(drawn)))
    scores[:, 1:][own[:, None] == drawn] = -np.inf
    shares = np.bincount(destinations, minlength=graph.num_nodes) / len(destinations)
    corrected = scores - np.log(
        np.concatenate((shares[own][:, None], shares[drawn][None].repeat(20, 0)), 1)
    )
    expected = (np.log(np.exp(corrected).sum(1)) - corrected[:, 0]).sum()
    loss, _ = task.loss_sum(lambda _: torch.from_numpy(scores), task.on_host(batch))
    assert float(loss) == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["joint", "resident"])
def test_a_killed_run_continues_with_the_same_losses(store, tmp_path, kind):
    settings = (*LINKS, "checkpoint.every_steps=2", "train.batch_size=256")
    settings = (*settings, f"links.negatives={kind}")
    train(config(store, tmp_path / "whole", *settings))
    command = overrides(store, tmp_path / "killed", *settings)
    killed = run_forked(CRASH_AT, "kill", 0, 1, 3, "base", *command)
    assert killed.returncode == -signal.SIGKILL
    train(config(store, tmp_path / "killed", *settings))
    whole = losses(tmp_path / "whole")
    assert len(whole) > 20
    assert losses(tmp_path / "killed") == whole
    with pytest.raises(ValueError, match=r"links\.num_negatives"):
        train(
            config(store, tmp_path / "killed", *settings, "links.num_negatives=8", "train.epochs=3")
        )


@pytest.mark.slow
def test_ranks_train_on_their_shares_of_the_links(store, tmp_path):
    """The cache that ranks share changes no loss, and every link is ranked once."""
    found = {}
    for name, options in {
        "plain": ("cache.policy=none",),
        "shared": ("storage.engine=posix", "cache.policy=lookahead", "cache.bytes=8KiB"),
        "exact": ("train.eval.exact=true",),
    }.items():
        run_dir = tmp_path / name
        done = run_job(
            2, "-m", "lsm", "train", "base", *overrides(store, run_dir, *LINKS, *options)
        )
        assert done.returncode == 0, done.stderr
        summary = json.loads((run_dir / "result.json").read_text())
        found[name] = (losses(run_dir), summary["test_mrr"], summary["valid_mrr"])
    assert found["plain"] == found["shared"]
    alone = train(config(store, tmp_path / "alone", *LINKS, "train.eval.exact=true"))
    assert found["exact"][0] == found["plain"][0]
    assert found["exact"][1] == pytest.approx(alone["test_mrr"], abs=0.05)
    assert found["plain"][1] > chance(100)


@pytest.mark.slow
def test_splits_of_a_rank_may_lie_elsewhere_and_are_the_same(store, tmp_path):
    """The same path names other files on another machine."""
    copy, links = tmp_path / "copy", tmp_path / "links"
    shutil.copytree(store, copy)
    shutil.copytree(f"{store}.links", links)
    own = [(store, f"data.links={store}.links"), (copy, f"data.links={links}")]

    def run(run_dir):
        jobs = [
            ["-m", "lsm", "train", "base", *overrides(path, run_dir, *LINKS, given)]
            for path, given in own
        ]
        return run_ranks(2, jobs)

    assert run(tmp_path / "same") == ([0, 0], {0: [], 1: []})
    shutil.rmtree(links)
    lsm.LinkSplits.make(lsm.GraphStore.open(copy), links, valid=0.1, test=0.2, seed=1)
    codes, errors = run(tmp_path / "other")
    assert codes == [1, 1]
    for (line,) in errors.values():
        assert "ranks have different tasks: data.links (" in line
        assert "on rank 1" in line


@pytest.mark.parametrize("scorer", ["dot", "distmult", "mlp"])
def test_a_matrix_has_the_scores_of_pairs(scorer):
    torch.manual_seed(0)
    score = build_scorer(scorer, 6)
    source, destination = torch.randn(5, 6), torch.randn(7, 6)
    pairs = torch.stack([score(source, each.expand(5, 6)) for each in destination], 1)
    assert torch.allclose(score.matrix(source, destination), pairs, atol=1e-6)


def test_losses_are_their_formulas():
    scores = torch.randn(6, 5, dtype=torch.float64)
    own, others = scores[:, 0].numpy(), scores[:, 1:].numpy()
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    expected = {
        "bce": -np.log(sigmoid(own)) - np.log(1 - sigmoid(others)).mean(1),
        "bpr": -np.log(sigmoid(own[:, None] - others)).mean(1),
        "infonce": -np.log(np.exp(own) / np.exp(scores.numpy()).sum(1)),
    }
    for name, each in expected.items():
        assert float(link_loss_sum(name, scores)) == pytest.approx(each.sum())
        masked = torch.cat((scores, torch.full((6, 2), -torch.inf, dtype=torch.float64)), 1)
        masked.requires_grad_()
        loss = link_loss_sum(name, masked)
        loss.backward()
        assert float(loss.detach()) == pytest.approx(each.sum())
        assert torch.isfinite(masked.grad).all()


@pytest.mark.parametrize("is_complete", [True, False])
def test_a_complete_bipartite_graph_has_no_negatives(tmp_path, is_complete):
    """Unless one of its links is missing."""
    users, items = torch.meshgrid(torch.arange(12), torch.arange(9), indexing="ij")
    pairs = torch.stack((users.reshape(-1), items.reshape(-1)))
    pairs = pairs if is_complete else pairs[:, torch.arange(108) % 5 != 0]
    data = HeteroData()
    data["author"].x, data["paper"].x = torch.randn(12, 4), torch.randn(9, 4)
    data[WRITES].edge_index, data[REV_WRITES].edge_index = pairs, pairs.flip(0)
    graph = lsm.GraphStore.from_pyg(data, tmp_path / "g")
    lsm.LinkSplits.make(graph, valid=0.2, test=0.2, edge_type=WRITES)
    settings = config(graph.path, tmp_path / "run", *LINKS, "model.name=rsage")
    if not is_complete:
        assert train(settings)["test_mrr"] < 1
        return
    with pytest.raises(
        ValueError, match=r"no negatives are possible: .* set links\.filtered=false"
    ):
        train(settings)
    assert not (tmp_path / "run" / "model.pt").exists()
    train(config(graph.path, tmp_path / "raw", *LINKS, "model.name=rsage", "links.filtered=false"))


BAD = {
    "no splits": (("data.links=/nothing",), "data.links: /nothing: no such store directory"),
    "metric of nodes": (("train.metrics=[accuracy]",), "train.metrics: expected null with"),
    "loss of nodes": (("train.loss=mse",), "train.loss: expected cross_entropy with"),
    "class weights": (("train.class_weights=balanced",), "train.class_weights: expected none"),
    "ladies": (("sampler.kind=ladies",), "sampler.kind: ladies does not sample links"),
    "disjoint": (("sampler.disjoint=true",), "links.negatives: joint shares nodes"),
    "gpu": (("topology.placement=uva",), "topology.placement: uva"),
    "loss": (("links.negatives=inbatch", "links.loss=bce"), "links.loss: expected infonce"),
    "loss of resident": (
        ("links.negatives=resident", "links.loss=bpr"),
        "links.loss: expected infonce with links.negatives=resident, got bpr",
    ),
    "resident, disjoint": (
        ("links.negatives=resident", "sampler.disjoint=true"),
        "links.negatives: resident shares nodes",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_settings_are_named(store, tmp_path, case):
    options, message = BAD[case]
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        train(config(store, tmp_path / "run", *LINKS, *options))
    assert not (tmp_path / "run" / "model.pt").exists()


@pytest.mark.parametrize(
    ("name", "value"), [("indptr", 10**6), ("indptr", -1), ("indices", -1), ("indices", 10**6)]
)
def test_damaged_edges_of_the_store_are_no_known_links(tmp_path, name, value):
    """The sampler takes the edges of the splits; those of the store are known links only."""
    store = make_graph(tmp_path / "g", is_random=True)
    path = store / "topology" / f"{name}.npy"
    values = np.load(path)
    values[len(values) // 2] = value
    np.save(path, values)
    every = (*LINKS, "links.eval_candidates=1000")
    with pytest.raises(ValueError, match=r"g/topology: the topology is damaged: .* `lsm data ver"):
        train(config(store, tmp_path / "run", *every))


def test_a_run_opens_as_a_network_of_links(store, tmp_path):
    train(config(store, tmp_path, *LINKS))
    model = lsm.load_model(tmp_path)
    graph = lsm.GraphStore.open(store)
    sampling = {"mode": "triplet", "amount": 3}
    with lsm.LinkNeighborLoader(graph, [5, 5], neg_sampling=sampling, batch_size=16) as loader:
        assert model(next(iter(loader))).shape == (16, 4)


def test_splits_of_other_edges_do_not_continue_a_run(tmp_path):
    """Also where the numbers are the same: validation and test change places."""
    store = lsm.GraphStore.open(make_graph(tmp_path / "g", is_random=True))
    splits = lsm.LinkSplits.make(store, tmp_path / "random", valid=0.1, test=0.1)
    links, sizes = tmp_path / "links", []
    settings = (*LINKS, f"data.links={links}", "model.hidden_dim=8")
    for number, (valid, test) in enumerate((("valid", "test"), ("test", "valid"))):
        given = tmp_path / str(number)
        given.mkdir()
        for name, pairs in (("valid", splits.edges(valid)), ("test", splits.edges(test))):
            np.save(given / f"{name}.npy", pairs.unique(dim=1)[:, :300].t())
        made = lsm.LinkSplits.make(store, links, given=given, force=True)
        sizes.append(made.num_edges)
        if number == 0:
            train(config(store.path, tmp_path / "run", *settings, "train.epochs=1"))
    assert sizes[0] == sizes[1]
    with pytest.raises(ValueError, match=r"other settings: data\.links \(contents\) \("):
        train(config(store.path, tmp_path / "run", *settings, "train.epochs=2"))
