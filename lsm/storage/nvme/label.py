"""The label of a namespace: its last block says which store's features lie before it.

A namespace carries no file names, so nothing else would tell a drive with other features, or one of
a striped set in the wrong place, before a model has been trained on them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

LABEL_BYTES = 4096
_KIND = "lsm-gnn features"


def make_label(store, index: int, count: int) -> bytes:
    """The label of namespace ``index`` of ``count`` that hold the features of ``store``."""
    text = json.dumps({"kind": _KIND, **_expected(store, index, count)})
    return text.encode().ljust(LABEL_BYTES, b"\0")


def check_label(label: bytes, store, devices: Sequence[str], index: int) -> None:
    """Raises ValueError unless ``label``, the last LABEL_BYTES of ``devices[index]``, says that the
    namespace holds its share of the features of ``store``."""
    load = f"write them with `lsm data load-nvme {store.path} ...` while the kernel's driver has it"
    found = read_label(label)
    if found is None:
        raise ValueError(
            f"{devices[index]}: holds no features (no label in its last block); {load}"
        )
    for key, expected in _expected(store, index, len(devices)).items():
        if key != "store" and found.get(key) != expected:
            raise ValueError(
                f"{devices[index]}: holds other features than {store.path}: expected {key} "
                f"{expected}, got {found.get(key)} (store {found.get('store')!r}); {load}, or name "
                "the devices in the order in which they were loaded"
            )


def read_label(label: bytes) -> dict[str, Any] | None:
    """The fields of ``label``, or None if it is none."""
    try:
        fields = json.loads(label.rstrip(b"\0"))
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) and fields.get("kind") == _KIND else None


def _expected(store, index: int, count: int) -> dict[str, Any]:
    features = store.meta.features
    checksums = [store.meta.files[name].sha256 for name in features.files]
    return {
        "store": store.name,
        "index": index,
        "count": count,
        "num_rows": store.num_nodes,
        "row_bytes": store.row_bytes,
        "stripe_bytes": store.stripe_bytes,
        # Of the files as they are striped in the store: the same store gives the same.
        "features": hashlib.sha256(" ".join(checksums).encode()).hexdigest(),
    }
