"""Blocks of the route ``gather`` that are small, so that small graphs have many."""

from lsm.inference import gather


def small_blocks(monkeypatch, num_edges):
    """Groups of at most five blocks, of about ``num_edges`` edges each."""
    monkeypatch.setattr(gather, "BLOCK_EDGES", num_edges)
    monkeypatch.setattr(gather, "_MOST_BLOCKS", 5)
