"""Memory of ranks that share a cache."""

from __future__ import annotations

from lsm.core.memory import HEADROOM, Shape, Terms

_REQUEST_BYTES = 16  # of an id: its request, and its place at the owner


def terms(staged_bytes: int, staging_bytes: int) -> Terms:
    """Rows on their way between ranks: on the host as many as are read ahead (``staged_bytes``), on
    a GPU the whole staging memory."""
    uses = "rows on their way between ranks"
    return Terms({uses: int(HEADROOM * staged_bytes)}, {uses: staging_bytes})


def window_bytes(shape: Shape) -> int:
    """Memory of one iteration's request lists, of this rank and of others."""
    return _REQUEST_BYTES * shape.batch.nodes
