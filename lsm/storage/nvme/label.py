"""The label of a namespace: its last block names the contents, the features of a store or the
partitions of an embedding run.

A namespace has no file names. Without a label, a drive with other features, or drives of a striped
set in the wrong order, would go unnoticed until a model has been trained on them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from lsm.data.feature_files import FeatureFiles

LABEL_BYTES = 4096
FEATURES, PARTITIONS = "lsm-gnn features", "lsm-gnn partitions"
"""Kinds of labels."""


def write_label(kind: str, fields: dict[str, Any]) -> bytes:
    """A label of ``kind`` with ``fields``, LABEL_BYTES long."""
    text = json.dumps({"kind": kind, **fields}).encode()
    if len(text) > LABEL_BYTES:
        raise ValueError(f"a label takes {LABEL_BYTES} bytes, and {kind} need {len(text)}")
    return text.ljust(LABEL_BYTES, b"\0")


def label_offset(num_bytes: int) -> int:
    """Offset of the label of a namespace of ``num_bytes``."""
    return num_bytes // LABEL_BYTES * LABEL_BYTES - LABEL_BYTES


def make_label(files: FeatureFiles, index: int, count: int) -> bytes:
    """The label of namespace ``index`` of ``count`` that hold copies of ``files``."""
    return write_label(FEATURES, _expected(files, index, count))


def check_label(label: bytes, files: FeatureFiles, drives: Sequence[str], index: int) -> None:
    """Raises ValueError unless ``label``, the last LABEL_BYTES of ``drives[index]``, names its
    share of ``files``."""
    load = (
        f"write them with `lsm data load-nvme {files.folder} ...` while the kernel's driver has it"
    )
    found = read_label(label, FEATURES)
    if found is None:
        raise ValueError(f"{drives[index]}: holds no features (no label in its last block); {load}")
    for key, expected in _expected(files, index, len(drives)).items():
        if key != "store" and found.get(key) != expected:
            raise ValueError(
                f"{drives[index]}: holds other features than {files.folder}: expected {key} "
                f"{expected}, got {found.get(key)} (store {found.get('store')!r}); {load}, or name "
                "the drives in the order in which they were loaded"
            )


def read_label(label: bytes, kind: str) -> dict[str, Any] | None:
    """The fields of ``label``, or None if it is none of ``kind``."""
    try:
        fields = json.loads(label.rstrip(b"\0"))
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) and fields.get("kind") == kind else None


def describe_label(label: bytes) -> str | None:
    """Describes the content before ``label`` in words; None if it is no label."""
    features, partitions = (read_label(label, kind) for kind in (FEATURES, PARTITIONS))
    if features is not None:
        return f"features of store {features.get('store')!r}"
    if partitions is not None:
        return f"the partitions of the run in {partitions.get('run_dir')}"
    return None


def _expected(files: FeatureFiles, index: int, count: int) -> dict[str, Any]:
    return {
        "store": files.store,
        "index": index,
        "count": count,
        "num_rows": files.num_rows,
        "row_bytes": files.row_bytes,
        "stripe_bytes": files.stripe_bytes,
        # A digest of the store's files: the same for any number of namespaces.
        "features": files.digest,
    }
