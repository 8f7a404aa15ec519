"""Shared by the tests of stores: small graphs, and readers that do not use the code under test."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

SPLIT_FILES = {"train": "train_idx", "valid": "val_idx", "test": "test_idx"}
REPOSITORY = Path(__file__).resolve().parents[2]


def random_graph(
    seed: int = 0, num_nodes: int = 300, num_edges: int = 2000, dim: int = 37, num_classes: int = 5
) -> dict[str, np.ndarray]:
    """Arrays in the layout of ``lsm data convert npy``; duplicates and self-loops included."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(num_nodes)
    cuts = [num_nodes // 2, num_nodes * 3 // 4]
    train, valid, test = np.split(order, cuts)
    return {
        "edge_index": rng.integers(num_nodes, size=(2, num_edges)),
        "node_feat": rng.standard_normal((num_nodes, dim)).astype(np.float32),
        "node_label": rng.integers(num_classes, size=num_nodes),
        "train_idx": train,
        "val_idx": valid,
        "test_idx": test,
    }


def save_npy(directory: Path, arrays: dict[str, np.ndarray]) -> Path:
    """Saves ``arrays`` as .npy files in ``directory``."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        np.save(directory / f"{name}.npy", array)
    return directory


def feature_bytes(store: Path) -> bytes:
    """The logical feature bytes of the store, put together page by page from its files."""
    meta = json.loads((store / "meta.json").read_text())
    features = meta["features"]
    contents = [(store / name).read_bytes() for name in features["files"]]
    page_bytes = features["stripe_bytes"]
    total = meta["num_nodes"] * features["row_bytes"]
    pages = []
    for page in range(-(-total // page_bytes)):
        begin = page // len(contents) * page_bytes
        pages.append(contents[page % len(contents)][begin : begin + page_bytes])
    return b"".join(pages)[:total]


def in_lists(edge_index: np.ndarray, num_nodes: int) -> list[list[int]]:
    """In-neighbours of each node in the order of the edge list."""
    lists: list[list[int]] = [[] for _ in range(num_nodes)]
    for source, destination in edge_index.T.tolist():
        lists[destination].append(source)
    return lists


def python_command(code: str, *arguments: object) -> list[str]:
    """A command line that runs ``code`` with the repository's package."""
    start = f"import sys; sys.path.insert(0, {str(REPOSITORY)!r})\n"
    return [sys.executable, "-c", start + code, *map(str, arguments)]


PEAK_MIB = """
def peak_mib():
    # Not ru_maxrss: exec keeps the one of the process that started this one.
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024
"""
"""For code of ``python_command``: the most memory that the process has had."""


def list_again(store: Path, name: str) -> None:
    """Makes the file ``name`` of the store look as if a writer had meant it: its size and checksum
    are right."""
    content = (store / name).read_bytes()
    meta = json.loads((store / "meta.json").read_text())
    meta["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (store / "meta.json").write_text(json.dumps(meta))
