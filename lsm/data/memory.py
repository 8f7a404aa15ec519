"""Host memory of a graph's structure and labels."""

from __future__ import annotations

from lsm.core.memory import Shape, Terms

_CLASS_BYTES = 8


def terms(in_memory: bool, shape: Shape) -> Terms:
    """The structure and the labels, unless both are mapped."""
    size = shape.topology_bytes + (shape.number_bytes or _CLASS_BYTES) * shape.num_nodes
    return Terms({"topology": size if in_memory else 0})
