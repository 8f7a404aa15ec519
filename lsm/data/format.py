"""Layout of the store: names of its files, ``meta.json``, and the stripes of feature bytes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from lsm.core.atomic_file import replacing, sync_directory

SCHEMA_VERSION = 1
PAGE_BYTES = 4096

META = "meta.json"
CONVERT_AGAIN = "convert the data again"
REMEDY = f"{CONVERT_AGAIN} with `lsm data convert`"
_KINDS = ("graph", "typed", "triples", "links")
_MOST_META_BYTES = 16 << 20
TOPOLOGY = "topology/"
_SCORES = "scores/"
INDPTR = "topology/indptr.npy"
INDICES = "topology/indices.npy"
LABELS = "labels.npy"
NODE_TIMES = "times.npy"
NAMES = "names.tsv"
# Values of edges, next to indptr.npy and indices.npy.
WEIGHTS = "weights.npy"
EDGE_TIMES = "times.npy"
EDGE_ATTR = "attr.npy"
ORDER = "order.npy"
SPLITS = ("train", "valid", "test")

# Feature dtypes by their torch names, with bytes per element.
FEATURE_DTYPES = {
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
}


class MetaPart(BaseModel):
    """A part of ``meta.json``, which has no unknown keys."""

    model_config = ConfigDict(extra="forbid")


class FileMeta(MetaPart):
    """Size and checksum of one file of the store."""

    bytes: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


def files_digest(files: Mapping[str, FileMeta]) -> str:
    """SHA-256 of the names and contents of ``files``."""
    sums = {name: file.sha256 for name, file in files.items()}
    return hashlib.sha256(json.dumps(sums, sort_keys=True).encode()).hexdigest()


class FeatureMeta(MetaPart):
    """Shape, type and striping of the features; ``row_bytes = dim * itemsize``."""

    dim: int = Field(ge=1)
    dtype: str
    row_bytes: int = Field(ge=1)
    files: list[str] = Field(min_length=1)
    stripe_bytes: int = Field(default=PAGE_BYTES, ge=PAGE_BYTES, multiple_of=PAGE_BYTES)


class LabelMeta(MetaPart):
    """Labels that are numbers: ``width`` of each node."""

    width: int = Field(ge=1)
    dtype: Literal["float32", "int64"]

    @property
    def row_bytes(self) -> int:
        """Bytes of the labels of a node."""
        return self.width * FEATURE_DTYPES[self.dtype]

    def shape(self, num_nodes: int) -> tuple[int, ...]:
        """Shape of the labels of ``num_nodes`` nodes: [N], or [N, width] for several."""
        return (num_nodes,) if self.width == 1 else (num_nodes, self.width)


class _LabelledMeta(MetaPart):
    """A description with ``labels``, which a file leaves out where they are None, as earlier
    versions wrote it."""

    @model_serializer(mode="wrap")
    def _without_absent_labels(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        found: dict[str, Any] = serialize(self)
        return {name: value for name, value in found.items() if (name, value) != ("labels", None)}


class NodeMeta(_LabelledMeta):
    """The nodes of one type. ``num_classes`` 0: they have no labels, or ``labels`` that are
    numbers."""

    num_nodes: int = Field(ge=0)
    num_classes: int = Field(default=0, ge=0)
    labels: LabelMeta | None = None
    features: FeatureMeta | None = None

    @property
    def label_bytes(self) -> int:
        """Bytes of the labels of a node that has them."""
        return 8 if self.labels is None else self.labels.row_bytes


class StoreMeta(_LabelledMeta):
    """Contents of ``meta.json``. ``files`` lists every file of the store but ``meta.json``
    itself."""

    schema_version: int = SCHEMA_VERSION
    name: str
    num_nodes: int = Field(ge=0)
    num_edges: int = Field(ge=0)
    num_classes: int = Field(ge=0)
    labels: LabelMeta | None = None
    features: FeatureMeta
    files: dict[str, FileMeta] = Field(default_factory=dict)
    source: str | dict[str, Any] = ""


def split_name(name: str, known: Sequence[str] = SPLITS) -> str:
    """The split that a user calls ``name``: ``val`` is valid. Raises ValueError for one that is not
    among ``known``."""
    split = "valid" if name == "val" else name
    if split not in known:
        raise ValueError(f"split: expected one of {', '.join(known)}, got {name!r}")
    return split


def split_file(name: str) -> str:
    """Path in the store of the node ids of split ``name``."""
    return f"split/{name}.npy"


def score_file(name: str) -> str:
    """Path in the store of static score ``name``."""
    return f"{_SCORES}{name}.npy"


def without_scores(files: Mapping[str, FileMeta]) -> dict[str, FileMeta]:
    """Those of ``files`` that no command can compute again."""
    return {name: file for name, file in files.items() if not is_score(name)}


def is_score(name: str) -> bool:
    """True for the path in a store of a static score."""
    return name.startswith(_SCORES)


def feature_files(stripes: int, folder: str = "") -> list[str]:
    """Names of the feature files in ``folder`` ("" or "NAME/"): ``features.bin``, or
    ``features.K.bin`` for each stripe."""
    if stripes == 1:
        return [f"{folder}features.bin"]
    return [f"{folder}features.{k}.bin" for k in range(stripes)]


def feature_file_bytes(total_bytes: int, stripes: int, stripe_bytes: int) -> list[int]:
    """Size of each feature file that together hold ``total_bytes``.

    Page p of ``stripe_bytes`` lies in file ``p % stripes``; each file is zero-padded to a multiple
    of 4096 bytes.
    """
    full_pages, rest = divmod(total_bytes, stripe_bytes)
    sizes = [(full_pages - k + stripes - 1) // stripes * stripe_bytes for k in range(stripes)]
    sizes[full_pages % stripes] += -(-rest // PAGE_BYTES) * PAGE_BYTES
    return sizes


def most_classes(num_nodes: int) -> int:
    """Most classes of a graph. A model has a row of weights per class; more classes mean damage, or
    labels that are no classes."""
    return max(num_nodes, 1 << 20)


def index_dtype(num_nodes: int) -> str:
    """NumPy name of the dtype of ``topology/indices.npy`` for ``num_nodes`` nodes."""
    return "int32" if num_nodes < 2**31 else "int64"


def temporary_path(path: Path) -> Path:
    """The sibling of ``path`` in which this process builds it."""
    return path.with_name(f".{path.name}.tmp-{os.getpid()}")


def replaced_path(path: Path) -> Path:
    """The sibling of ``path`` to which this process moves the store that it replaces."""
    return path.with_name(f".{path.name}.old-{os.getpid()}")


def replaced_paths(path: Path) -> Iterator[Path]:
    """The siblings of ``path`` with stores that writers were replacing when they ended."""
    return path.parent.glob(f".{path.name}.old-*")


def is_temporary(path: Path, kind: str = "tmp") -> bool:
    """True if ``path`` has the name of a writer's temporary directory or, with ``kind`` "old", of a
    store that a writer replaces."""
    head, separator, pid = path.name.rpartition(f".{kind}-")
    return bool(separator) and head.startswith(".") and pid.isdigit()


def write_meta(path: Path, meta: BaseModel) -> None:
    """Replaces ``path`` (a ``meta.json``) atomically and durably."""
    with replacing(path) as partial, open(partial, "w", encoding="utf-8") as file:
        file.write(json.dumps(meta.model_dump(), indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())
    sync_directory(path.parent)


def kind_of(store: Path, command: str, remedy: str = REMEDY) -> str:
    """The kind of the directory ``store``, made by one of the commands ``command``. Raises
    FileNotFoundError without ``meta.json``, ValueError for an incomplete store or a kind that this
    version does not know."""
    if not store.is_dir():
        raise FileNotFoundError(f"{store}: {_absent(store, f'make one with `{command}`')}")
    if is_temporary(store.resolve()):
        raise ValueError(f"{store}: left by an interrupted conversion; delete it and {remedy}")
    if not (store / META).is_file():
        raise FileNotFoundError(f"{store}: not a store: it has no {META}; {remedy}")
    kind = store_kind(store)
    if kind not in _KINDS:
        raise ValueError(
            f"{store}: made by a newer LSM-GNN: expected a store of kind {', '.join(_KINDS)}, "
            f"got {kind!r}; update lsm-gnn"
        )
    return kind


def _absent(store: Path, remedy: str) -> str:
    """The fault and the remedy of a ``store`` directory that does not exist."""
    if store.is_symlink():
        return f"a link to {os.readlink(store)}, which is not there: is its disk not mounted?"
    for left in replaced_paths(store):
        return f"replacing it was interrupted, and the store before is {left}; rename it"
    return f"no such store directory; {remedy}"


def store_kind(store: Path) -> str:
    """The kind of store that ``meta.json`` names; ``graph`` without one, or if the file cannot be
    read."""
    return str(unchecked_meta(store).get("kind", "graph"))


def unchecked_meta(store: Path) -> dict[str, Any]:
    """The content of ``meta.json``; empty if it cannot be read, or is no JSON object."""
    try:
        with open(store / META, "rb") as file:
            content = json.loads(file.read(_MOST_META_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def check_features(
    path: Path, where: str, features: FeatureMeta, num_nodes: int, files: dict[str, FileMeta]
) -> None:
    """Raises ValueError unless ``features``, the entry ``where`` of the meta.json ``path``, agree
    with ``num_nodes`` and the listed ``files``."""
    if features.dtype not in FEATURE_DTYPES:
        raise ValueError(
            f"{path}: {where}.dtype: expected one of {', '.join(FEATURE_DTYPES)}, "
            f"got {features.dtype!r}; {REMEDY}"
        )
    row_bytes = features.dim * FEATURE_DTYPES[features.dtype]
    if features.row_bytes != row_bytes:
        raise ValueError(
            f"{path}: {where}.row_bytes: expected {row_bytes} (dim x itemsize), "
            f"got {features.row_bytes}; {REMEDY}"
        )
    require_listed(path, files, features.files)
    total = num_nodes * row_bytes
    sizes = feature_file_bytes(total, len(features.files), features.stripe_bytes)
    for name, size in zip(features.files, sizes, strict=True):
        if files[name].bytes != size:
            raise ValueError(
                f"{path}: files: {name}: expected {size} bytes for {num_nodes} rows of "
                f"{row_bytes} bytes, got {files[name].bytes}; {REMEDY}"
            )


def require_splits(path: Path, splits: Iterable[str], remedy: str) -> None:
    """Raises ValueError unless the meta.json ``path`` counts the edges of all ``splits``."""
    if set(splits) != set(SPLITS):
        raise ValueError(f"{path}: splits: expected {', '.join(SPLITS)}; {remedy}")


def require_listed(path: Path, files: dict[str, FileMeta], names: Iterable[str]) -> None:
    """Raises ValueError unless the meta.json ``path`` lists ``names``, and no file outside the
    store."""
    for name in names:
        if name not in files:
            raise ValueError(f"{path}: files: {name} is not listed; {REMEDY}")
    for name in files:
        if name.startswith("/") or ".." in Path(name).parts or "\0" in name:
            raise ValueError(f"{path}: files: {name!r} is outside the store; {REMEDY}")


def require_classes(path: Path, where: str, meta: NodeMeta) -> None:
    """Raises ValueError for more classes than the nodes can have, or none and labels that are
    numbers."""
    most = most_classes(meta.num_nodes) if meta.labels is None else 0
    if meta.num_classes > most:
        raise ValueError(
            f"{path}: {where}: expected at most {most} for {meta.num_nodes} nodes, got "
            f"{meta.num_classes}; {REMEDY}"
        )


def require_bytes(
    path: Path, files: dict[str, FileMeta], least: dict[str, int], counts: str
) -> None:
    """Raises ValueError if a listed file is smaller than ``least`` for these ``counts``. Files that
    are not listed do not count."""
    for name, num_bytes in least.items():
        if name in files and files[name].bytes < num_bytes:
            raise ValueError(
                f"{path}: files: {name}: expected at least {num_bytes} bytes for {counts}, got "
                f"{files[name].bytes}; {REMEDY}"
            )


def topology_bytes(folder: str, num_sources: int, num_nodes: int, num_edges: int) -> dict[str, int]:
    """Bytes of the elements of the two files of a CSC in ``folder`` ("NAME/"), whose destinations
    are ``num_nodes``."""
    index_bytes = 4 if index_dtype(num_sources) == "int32" else 8
    return {
        f"{folder}indptr.npy": 8 * (num_nodes + 1),
        f"{folder}indices.npy": index_bytes * num_edges,
    }
