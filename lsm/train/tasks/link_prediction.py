"""Link prediction: the score of each link against its negatives, by MRR and Hits."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lsm import native
from lsm.config.links import CORRECTED
from lsm.config.schema import Config
from lsm.data.format import files_digest
from lsm.data.graph_store import GraphStore
from lsm.data.links.splits import LinkSplits, MessageEdges
from lsm.distributed.collectives import World
from lsm.graph.topology import Topology
from lsm.graph.types import EdgeType
from lsm.inference.link_ranks import LinkRanks
from lsm.links.known_edges import KnownEdges, joined_pairs
from lsm.links.losses import link_loss_sum
from lsm.links.negative_sampling import NegativeSampling
from lsm.links.ranking import RankCounter, ranks_among, tie_tolerance
from lsm.loader.batch import Batch
from lsm.loader.inputs import Drawing, open_typed_topology
from lsm.loader.link_parts import open_link_parts
from lsm.loader.parts import LoaderParts
from lsm.loader.seed_links import SeedLinks
from lsm.nn.link_models import LinkNetwork
from lsm.nn.link_scorers import build_scorer
from lsm.run.fingerprint import contents_of
from lsm.run.store import open_at
from lsm.sampler.typed_neighbor import TypedTopology
from lsm.train.tasks.known_links import known_edges
from lsm.train.tasks.tally import CountTally
from lsm.train.tasks.task import Counts, Model, Task

logger = logging.getLogger(__name__)

_HITS = (1, 3, 10)
_TRIED_LINKS = 1000


class LinkPrediction(Task):
    """Scores links against drawn destinations. Links are those of the splits that ``data.links``
    names: call ``check`` first, or ``open`` for the network alone."""

    metric = "mrr"
    lower_is_better = False
    cache_score = "in_degree"
    """Ends of links are likelier the more edges they have, and reverse PageRank starts at nodes of
    training, which links do not have."""
    samples_on_host = True
    count_names: tuple[str, ...] = ("reciprocal_ranks", *(f"hits_at_{k}" for k in _HITS))

    def __init__(self, config: Config) -> None:
        self._options = config.links
        self._width = config.links.out_dim or config.model.hidden_dim
        self._path, self._seed = config.data.links, config.train.seed
        self._evaluation: _Candidates | None = None
        self._opened: LinkSplits | None = None
        self._indptr: Tensor | None = None
        self._num_edges = 0

    @property
    def splits(self) -> LinkSplits:
        """The links. Precondition: open() has opened them."""
        assert self._opened is not None, "open() opens the splits"
        return self._opened

    def open(self, store: GraphStore) -> None:
        """Opens the splits. Raises FileNotFoundError without them, ValueError if they are of
        another store."""
        path = self._path or str(store.path.with_name(f"{store.path.name}.links"))
        remedy = f"run `lsm data split-links {store.path}`"
        self._opened = open_at(path, LinkSplits.open, remedy, key="data.links")
        self.splits.check_store(store)

    def check(self, config: Config, store: GraphStore, world_size: int) -> None:
        """Opens the splits. Raises FileNotFoundError without them; ValueError if they are of
        another store, too small, or do not suit the configuration."""
        self.open(store)
        path = self.splits.path
        counts = self.splits.num_edges
        if counts["train"] < world_size:
            raise ValueError(
                f"world size: {world_size} ranks need at least as many links of training, and "
                f"{path} has {counts['train']}; start fewer processes"
            )
        if config.train.select == "best" and not counts["valid"]:
            raise ValueError(
                f"train.select: best needs links of validation, and {path} has none; "
                "set train.select=last"
            )
        if self.other_types() and not config.model.takes_types:
            raise ValueError(
                f"model.name: links from {self.edge_type[0]} to {self.edge_type[2]} need the rows "
                f"of both types: set rsage, rgcn, rgat or hgt, not {config.model.name}"
            )
        _check_sampling(config)
        self._evaluation = _Candidates.of(store, self.splits, config)
        edges = self.message_graph(store, "train").get(self.edge_type)
        topology = store.edges(self.edge_type).topology() if edges is None else edges.topology
        self._indptr, self._num_edges = topology.indptr, topology.num_edges

    @property
    def edge_type(self) -> EdgeType:
        """The type of the links."""
        return self.splits.edge_type

    @property
    def protocol(self) -> str:
        """The candidates of validation and test, in words."""
        return f"links are ranked so: {self._candidates.protocol}, mean rank on ties"

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that a resumed run must share, by name."""
        own = {f"links.{name}": value for name, value in self._options.model_dump().items()}
        if not self._options.scorer_args:  # which earlier versions did not have
            del own["links.scorer_args"]
        if self._options.negatives != "resident":  # which earlier versions did not have, too
            del own["links.resident_iterations"]
        meta = self.splits.meta
        named = ("edge_type", "reverse_type", "order", "seed", "message_edges", "splits")
        own["data.links"] = {name: getattr(meta, name) for name in named}
        return own | contents_of("data.links", files_digest(meta.files))

    def message_graph(
        self, store: GraphStore, split: str, in_memory: bool = False
    ) -> Mapping[EdgeType, MessageEdges]:
        """As Task.message_graph()."""
        return self.splits.message_graph(store, split, in_memory)

    def labels(self, store: GraphStore, in_memory: bool = False) -> None:
        """None: links have no labels of nodes."""

    def has_own_edges(self, split: str) -> bool:
        """True for the test if it samples the edges of validation, too."""
        return split == "test" and self.splits.message_edges == "earlier"

    def open_topology(
        self, store: GraphStore, split: str, drawing: Drawing, in_memory: bool = False
    ) -> TypedTopology:
        """The message graph of ``split``."""
        message = self.message_graph(store, split, in_memory)
        return open_typed_topology(store, drawing, in_memory, message)

    def open_parts(
        self,
        store: GraphStore,
        split: str,
        drawing: Drawing,
        topology: Topology | TypedTopology,
        *,
        sampler: Any = None,
        labels: Tensor | None = None,
        **schedule: Any,
    ) -> LoaderParts:
        """The parts of a loader of links, which the host samples."""
        assert isinstance(topology, TypedTopology), "open_topology() opens it by type"
        return open_link_parts(
            store,
            drawing,
            split,
            links=self.splits,
            negatives=self.negatives(split, is_disjoint=drawing.is_disjoint),
            exclude_seed_edges=self._options.exclude_seed_edges,
            topology=topology,
            **schedule,
        )

    def input_type(self, store: GraphStore) -> str:
        """The type of the destinations."""
        return self.edge_type[2]

    def other_types(self) -> tuple[str, ...]:
        """The type of the sources, if it is another."""
        return () if self.edge_type[0] == self.edge_type[2] else (self.edge_type[0],)

    def out_dim(self, store: GraphStore) -> int:
        """Width of the rows that are scored."""
        return self._width

    def network(self, model: nn.Module) -> nn.Module:
        """``model`` with a scorer."""
        options = self._options
        scorer = build_scorer(options.scorer, self._width, options.scorer_args)
        return LinkNetwork(model, scorer, self.edge_type)

    def seeds(self, store: GraphStore, split: str) -> Tensor:
        """The positions of the links of ``split``: [N] int64."""
        return torch.arange(self.splits.num_edges[split])

    def negatives(self, split: str, *, is_disjoint: bool) -> NegativeSampling:
        """The negatives of a split."""
        if split == "train":
            options = self._options
            return NegativeSampling(
                "triplet",
                options.num_negatives,
                kind=options.negatives,
                iterations=options.resident_iterations,
            )
        candidates = self._candidates.of_split(split, is_disjoint=is_disjoint)
        return NegativeSampling("triplet", kind="given", candidates=candidates)

    def on_host(self, batch: Batch) -> Batch:
        """``batch`` with the chances that destinations are drawn where links end: their shares of
        all links. The softmax is then over all nodes (Yi et al., 2019)."""
        links = batch.links
        if self._options.negatives not in CORRECTED or links is None:
            return batch
        ids = batch.n_id_dict[self.edge_type[2]]
        own, drawn = self._log_shares(ids[links.destinations]), None
        if links.dst_neg_index is not None:
            drawn = self._log_shares(ids[links.dst_neg_index])
        return replace(batch, links=replace(links, log_chances=own, neg_log_chances=drawn))

    def loss_sum(self, model: Model, batch: Batch) -> tuple[Tensor, Counts]:
        """Sum of the links' losses, and their counts among the negatives of training."""
        scores = model(batch)
        found = scores.detach()
        counts = _counts(ranks_among(found[:, 0], found[:, 1:]))
        if self._options.negatives in CORRECTED and len(scores):
            assert batch.links is not None, "the model has looked"
            scores = scores - _log_chances(batch.links)
        return link_loss_sum(self._options.loss, scores), counts

    def counts(self, model: Model, batch: Batch) -> Counts:
        """The links' ranks among the candidates of an evaluation, and the number of links whose
        candidates all have the link's score."""
        scores = model(batch)
        if not len(scores):
            return _counts(scores.new_empty(0)) | {"constant": scores.new_zeros(())}
        assert batch.links is not None, "the model has looked"
        ids, links = batch.n_id_dict, batch.links
        sources = ids[self.edge_type[0]][links.sources].cpu()
        destinations = ids[self.edge_type[2]][links.destinations].cpu()
        scores = scores.cpu()
        is_tie = (scores == scores[:, :1]) | scores.isneginf()  # -inf is no candidate
        constant = is_tie.all(1).sum()
        ranks = self._candidates.ranks(scores, sources, destinations)
        return _counts(ranks) | {"constant": constant}

    def exact_outputs(self, model: nn.Module, store: GraphStore, split: str) -> dict[str, Any]:
        """Ranks of the links."""
        assert isinstance(model, LinkNetwork), "network() makes it"
        ranks = self._candidates.outputs(model, split)
        return {"links": ranks, "edges": self.message_graph(store, split)}

    def exact_metrics(
        self, store: GraphStore, split: str, values: np.ndarray, world: World
    ) -> dict[str, float | None]:
        """The metrics of links by their ranks [n] float64."""
        counts = _counts(torch.from_numpy(np.array(values)))
        return self.metrics({name: float(value) for name, value in counts.items()}, len(values))

    def metrics(self, counts: Mapping[str, float], num_seeds: float) -> dict[str, float | None]:
        """MRR, and Hits at 1, 3 and 10. Tells if the scorer makes no difference."""
        if num_seeds and counts.get("constant", 0) == num_seeds:
            logger.info(  # which one rank shows
                "links.scorer=%s: each link has the score of all of its candidates, so that the "
                "MRR is that of chance",
                self._options.scorer,
            )
        names = ("mrr", *self.count_names[1:])
        return {
            name: counts[each] / num_seeds if num_seeds else None
            for name, each in zip(names, self.count_names, strict=True)
        }

    def tally(self) -> CountTally:
        """The counts of an evaluation."""
        return CountTally(self.counts, self.metrics)

    @property
    def _candidates(self) -> _Candidates:
        assert self._evaluation is not None, "check() draws the candidates"
        return self._evaluation

    def _log_shares(self, destinations: Tensor) -> Tensor:
        """Logarithms of the shares of all links that end at ``destinations`` [n]: [n] float32."""
        assert self._indptr is not None, "check() opens it"
        counts = self._indptr[destinations + 1] - self._indptr[destinations]
        native.check_mapped(self._indptr)
        return (counts.clamp(min=1) / self._num_edges).log().float()


def _log_chances(links: SeedLinks) -> Tensor:
    """[p, 1 + k]: those of each link's destination, and of its negatives'."""
    own, drawn = links.log_chances, links.neg_log_chances
    assert own is not None, "on_host() finds them"
    return torch.cat((own[:, None], (own if drawn is None else drawn).expand(len(own), -1)), 1)


class _Candidates:
    """The destinations that links of validation and test are ranked among."""

    def __init__(
        self, drawn: Tensor | None, known: KnownEdges | None, splits: LinkSplits, protocol: str
    ) -> None:
        """``drawn``: the same for all links, [k] int64; None: those that ``splits`` have.
        ``known``: edges whose destinations do not count; None: all count."""
        self._drawn, self._known, self._splits = drawn, known, splits
        self.protocol = protocol

    @classmethod
    def of(cls, store: GraphStore, splits: LinkSplits, config: Config) -> _Candidates:
        """Draws them, unless ``splits`` have them. Raises ValueError if only one split has, or if
        there is nothing to rank a link among."""
        given = {name: splits.candidates(name) for name in ("valid", "test")}
        missing = [name for name, own in given.items() if own is None and splits.num_edges[name]]
        widths = [own.size(1) for own in given.values() if own is not None]
        if widths:
            if missing:
                raise ValueError(
                    f"data.links: {splits.path} has candidates for one split, and none for "
                    f"{missing[0]}"
                )
            listed = " and ".join(f"{width:,}" for width in sorted(set(widths)))
            return cls(None, None, splits, f"raw, destination among {listed} given")
        edges = store.edges(splits.edge_type)
        if edges.num_destinations < 2:
            raise ValueError(
                f"data.links: no negatives are possible: {splits.edge_type[2]} has "
                f"{edges.num_destinations} node"
            )
        count = min(config.links.eval_candidates, edges.num_destinations)
        draw = np.random.default_rng(config.train.seed)
        drawn = torch.from_numpy(
            np.sort(draw.choice(edges.num_destinations, count, replace=False)).astype(np.int64)
        )
        known = None
        if config.links.filtered:
            known = known_edges(store, splits, drawn)
        words = f"{count:,} uniform nodes" if count < edges.num_destinations else "all nodes"
        rule = "filtered" if known is not None else "raw"
        found = cls(drawn, known, splits, f"{rule}, destination among {words}")
        for split in ("valid", "test"):
            found._check_some_are_left(split)
        return found

    def _check_some_are_left(self, split: str) -> None:
        """Raises ValueError if no link of ``split``, of the first ones, has a candidate that is no
        link: all would have rank 1, as in a complete graph."""
        assert self._drawn is not None, "given candidates are the user's"
        sources, destinations = self._splits.edges(split)[:, :_TRIED_LINKS]
        if not len(sources):
            return
        links, targets = self.left_out(sources, destinations)
        is_drawn = torch.isin(targets, self._drawn)
        pairs = torch.stack((links[is_drawn], targets[is_drawn])).unique(dim=1)
        if pairs.size(1) == len(sources) * len(self._drawn):
            raise ValueError(
                f"data.links: no negatives are possible: in {self._splits.path} each candidate of "
                f"the first {len(sources):,} links of {split} is a link, too; set "
                "links.filtered=false to rank among them"
            )

    def of_split(self, split: str, *, is_disjoint: bool) -> Tensor:
        """Candidates as a loader takes them. ``is_disjoint``: each link has its own."""
        if self._drawn is None:
            given = self._splits.candidates(split)
            return torch.zeros(1, dtype=torch.int64) if given is None else given
        if not is_disjoint:
            return self._drawn
        return self._drawn.expand(self._splits.num_edges[split], -1)

    def ranks(self, scores: Tensor, sources: Tensor, destinations: Tensor) -> Tensor:
        """[p] float64 ranks of links, from 1, means over the orders of ties. ``scores``: [p, 1 + k]
        of the link and of its candidates; ``sources``, ``destinations``: its ends, [p] int64."""
        own, others = scores[:, 0].contiguous(), scores[:, 1:].contiguous()
        if self._drawn is None:
            return ranks_among(own, others)
        counter = RankCounter(own, tie_tolerance(own), self.left_out(sources, destinations))
        for queries in counter.chunks(len(self._drawn)):
            counter.add(queries, self._drawn, others[queries])
        return counter.ranks()

    def outputs(self, model: LinkNetwork, split: str) -> LinkRanks:
        """The ranks of the links of a split, by the rows of all nodes."""
        candidates = self.of_split(split, is_disjoint=False)
        return LinkRanks(model, self._splits.edges(split), candidates, self.left_out)

    def left_out(self, sources: Tensor, destinations: Tensor) -> tuple[Tensor, Tensor]:
        """Numbers of links, ascending, and destinations that are none of their drawn candidates: a
        link's own, and those of known links."""
        own = (torch.arange(len(sources)), destinations)
        return own if self._known is None else joined_pairs(self._known.pairs(sources), own)


def _counts(ranks: Tensor) -> Counts:
    hits = {f"hits_at_{k}": (ranks <= k).sum() for k in _HITS}
    return {"reciprocal_ranks": ranks.reciprocal().sum(), **hits}


def _check_sampling(config: Config) -> None:
    kind = config.sampler.kind
    if not config.sampler.chosen.excludes_edges:
        raise ValueError(f"sampler.kind: {kind} does not sample links; set neighbor or labor")
    if config.topology.placement in ("uva", "device"):
        raise ValueError(
            f"topology.placement: {config.topology.placement} does not leave out the links of a "
            "batch, which the host does; set it to auto or host"
        )
    is_disjoint = config.sampler.disjoint or config.sampler.time_attr is not None
    if is_disjoint and config.links.negatives in ("joint", *CORRECTED):
        raise ValueError(
            f"links.negatives: {config.links.negatives} shares nodes between links, and with "
            "sampler.disjoint or sampler.time_attr each has a subgraph of its own; set uniform or "
            "degree"
        )
