"""PyG's own LinkLoader over a store, with our sampler under it in place of pyg-lib's."""

import torch
from torch_geometric.loader import LinkLoader
from torch_geometric.sampler import (
    BaseSampler,
    HeteroSamplerOutput,
    NegativeSampling,
    SamplerOutput,
)
from torch_geometric.sampler.neighbor_sampler import edge_sample

from lsm.loader.inputs import Drawing, open_typed_topology
from lsm.sampler.name import BatchName
from lsm.sampler.options import Sampling
from lsm.sampler.typed_neighbor import TypedNeighborSampler


class Replayed(NegativeSampling):
    """Negatives that were drawn before: a list for each side."""

    def __init__(self, mode, amount, src=(), dst=()):
        super().__init__(mode, amount)
        self.drawn = {"src": iter(src), "dst": iter(dst)}

    def sample(self, num_samples, endpoint, num_nodes=None):
        found = next(self.drawn[endpoint])
        assert len(found) == num_samples
        return found


class PygSampler(BaseSampler):
    """Everything of PyG's sampling of links but the neighbours themselves."""

    def __init__(self, store, num_neighbors, *, disjoint=False, time_attr=None):
        self.store, self.disjoint = store, disjoint or time_attr is not None
        drawing = Drawing(num_neighbors, Sampling(), disjoint, "uniform", time_attr, None)
        topology = open_typed_topology(store, drawing)
        first = store.node_types[0]
        self.sampler = TypedNeighborSampler(
            topology, num_neighbors, input_type=first, disjoint=self.disjoint
        )

    def sample_from_nodes(self, inputs, **_):
        raise NotImplementedError

    def sample_from_edges(self, inputs, neg_sampling=None):
        counts = self.store.node_space.counts
        num_nodes = dict(counts) if self.store.is_typed else self.store.num_nodes
        return edge_sample(inputs, self._sample, num_nodes, self.disjoint, None, neg_sampling)

    def _sample(self, seeds, times):
        arguments = (seeds, BatchName(), times)
        graph = self.sampler.sample(*arguments)
        ids = self.sampler.edge_ids(*arguments)
        types = graph.types
        if types is None:
            row, col = graph.edge_index
            return SamplerOutput(
                graph.n_id,
                row,
                col,
                ids,
                graph.batch,
                graph.num_sampled_nodes,
                graph.num_sampled_edges,
            )
        edges = types.edges(graph.edge_index)
        return HeteroSamplerOutput(
            dict(types.ids(graph.n_id)),
            {each: own[0] for each, own in edges.items()},
            {each: own[1] for each, own in edges.items()},
            dict(types.edges(ids)),
            None if graph.batch is None else dict(types.nodes(graph.batch)),
            dict(types.num_sampled_nodes),
            dict(types.num_sampled_edges),
        )


def pyg_batch(
    store,
    num_neighbors,
    edge_label_index,
    negatives,
    batch,
    *,
    disjoint=False,
    time_attr=None,
    **options,
):
    """PyG's batch of the links in ``batch`` with these ``negatives``."""
    loader = LinkLoader(
        store.to_pyg(),
        PygSampler(store, num_neighbors, disjoint=disjoint, time_attr=time_attr),
        edge_label_index,
        neg_sampling=negatives,
        **options,
    )
    return loader(batch)


def assert_same_links(ours, theirs, amount):
    """assert_same_data() of links with ``amount`` negatives for each. PyG gives destinations the
    numbers of other links in ``batch`` unless negatives are a multiple of the links."""
    if amount % 1:
        for one, other in zip(ours.stores, theirs.stores, strict=True):
            assert (one.pop("batch", None) is None) == (other.pop("batch", None) is None)
    assert_same_data(ours, theirs)


def assert_same_data(ours, theirs):
    """Equal stores, fields, dtypes and values."""
    assert ours.num_nodes == theirs.num_nodes
    stores, others = ({each._key: each for each in data.stores} for data in (ours, theirs))
    assert stores.keys() == others.keys()
    for key, one in stores.items():
        other = others[key]
        names = set(one.keys()) - {"num_nodes"}  # PyG's may derive it
        assert names == set(other.keys()) - {"num_nodes"}, one._key
        for name in names:
            if not isinstance(one[name], torch.Tensor):
                assert one[name] == other[name], name
                continue
            assert one[name].dtype == other[name].dtype, name
            assert torch.equal(one[name], other[name]), (one._key, name)
