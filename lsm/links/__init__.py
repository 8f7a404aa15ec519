"""Link prediction by ids and scores: negatives, known edges, ranks."""

from typing import TYPE_CHECKING

from lsm.core.lazy import lazily

if TYPE_CHECKING:
    from lsm.links.known_edges import KnownEdges
    from lsm.links.negatives import NegativeDraws
    from lsm.links.ranking import Protocol, RankCounter, Ranking

__all__ = ["KnownEdges", "NegativeDraws", "Protocol", "RankCounter", "Ranking"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "KnownEdges": "known_edges",
        "NegativeDraws": "negatives",
        "Protocol": "ranking",
        "RankCounter": "ranking",
        "Ranking": "ranking",
    },
)
