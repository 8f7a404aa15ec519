"""The models equal PyG's own on the seeds, in outputs and gradients, with the same weights."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch_geometric.nn import models as pyg

from lsm.loader.batch import Batch
from lsm.nn.models import SampledGNN, build_model, loss_sum
from lsm.nn.options import ModelOptions
from lsm.nn.typed_models import TypedInputs, build_typed_model
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import NeighborSampler
from support.batches import output_on_seeds
from support.graphs import random_graph

DIM, HIDDEN, CLASSES = 6, 8, 4
REFERENCES = {"graphsage": pyg.GraphSAGE, "gcn": pyg.GCN, "gat": pyg.GAT}


@pytest.fixture(scope="module")
def topology():
    return random_graph(200, 1500)


def make_batch(topology, fanouts, num_seeds=20):
    seeds = torch.randperm(200, generator=torch.Generator().manual_seed(1))[:num_seeds]
    graph = NeighborSampler(topology, fanouts).sample(seeds, BatchName(seed=3))
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(len(graph.n_id), DIM, generator=generator)
    y = torch.randint(CLASSES, (num_seeds,), generator=generator)
    return Batch.from_sampled(graph, x=x, y=y)


def build(name, num_layers, dropout=0.0):
    torch.manual_seed(0)
    config = ModelOptions(name=name, hidden_dim=HIDDEN, heads=2, dropout=dropout)
    return build_model(config, DIM, CLASSES, num_layers)


@pytest.mark.parametrize("fanouts", [[4], [5, 3], [3, -1, 2]], ids=str)
@pytest.mark.parametrize("name", REFERENCES)
def test_equals_the_model_of_pyg(topology, name, fanouts):
    batch = make_batch(topology, fanouts)
    model = build(name, len(fanouts))
    heads = {"heads": 2} if name == "gat" else {}
    reference = REFERENCES[name](DIM, HIDDEN, len(fanouts), CLASSES, **heads)
    reference.load_state_dict(model.state_dict())  # same names, same shapes

    ours = model(batch)
    theirs = output_on_seeds(reference, batch)
    # Sums of some ten float32 numbers in another order.
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    functional.cross_entropy(ours, batch.y).backward()
    functional.cross_entropy(theirs, batch.y).backward()
    gradients = dict(reference.named_parameters())
    for parameter_name, parameter in model.named_parameters():
        torch.testing.assert_close(
            parameter.grad, gradients[parameter_name].grad, rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("name", REFERENCES)
def test_a_batch_without_seeds_reaches_every_parameter_with_zero(topology, name):
    batch = make_batch(topology, [5, 3], num_seeds=0)
    model = build(name, 2)
    scores = model(batch)
    assert scores.shape == (0, CLASSES)
    loss_sum(scores, batch.y).backward()
    assert all(torch.count_nonzero(p.grad) == 0 for p in model.parameters())


@pytest.mark.parametrize("name", REFERENCES)
def test_seeds_without_neighbours_work(name):
    topology = random_graph(200, 0)
    scores = build(name, 2)(make_batch(topology, [5, 3]))
    assert scores.shape == (20, CLASSES)
    assert torch.isfinite(scores).all()


@pytest.mark.parametrize("name", REFERENCES)
def test_16_bit_features_and_autocast_give_nearly_the_same(topology, name):
    batch = make_batch(topology, [5, 3])
    model = build(name, 2)
    exact = model(batch)
    half = Batch(**{**batch.__dict__, "x": batch.x.half()})
    torch.testing.assert_close(model(half), exact, rtol=1e-2, atol=1e-2)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model(batch)
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded, exact, rtol=5e-2, atol=5e-2)  # bfloat16 has 8 bits
    assert not torch.equal(rounded, exact)


def test_another_number_of_hops_is_refused(topology):
    with pytest.raises(ValueError, match="expected batches of 3 hops, one per layer, got 2"):
        build("graphsage", 3)(make_batch(topology, [5, 3]))


def test_dropout_acts_in_training_only_and_follows_the_seed(topology):
    batch = make_batch(topology, [5, 3])
    model = build("graphsage", 2, dropout=0.5)

    def scores(seed):
        torch.manual_seed(seed)
        return model(batch)

    assert torch.equal(scores(1), scores(1))
    assert not torch.equal(scores(1), scores(2))
    model.eval()
    assert torch.equal(scores(1), scores(2))


def test_a_network_whose_width_of_embeddings_is_unknown_is_refused_at_once():
    """Not in a prediction, after training."""

    class Sums(SampledGNN):
        def convolve(self, conv, x, layer):
            return conv(layer.adj @ x)

    conv = nn.Linear(4, 4)
    conv.out_channels = 4
    with pytest.raises(AttributeError, match="in_channels"):
        Sums([conv], dropout=0.0)
    conv.in_channels = 4
    assert Sums([conv], dropout=0.0).embedding_dim == 4


def test_a_name_without_a_network_is_no_other_network():
    """As that of a network whose name is in the options before its code is here."""
    options = ModelOptions().model_copy(update={"name": "gin"})
    with pytest.raises(AssertionError, match="gin has no network"):
        build_model(options, 4, 3, 2)
    edge_type = ("paper", "cites", "paper")
    inputs = TypedInputs({"paper": 4}, {"paper": 9}, {edge_type: None}, "paper")
    with pytest.raises(AssertionError, match="gin has no network"):
        build_typed_model(options, inputs, 3, 2)
