"""Access traces: the node ids that every rank requests at every iteration."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lsm import native
from lsm.comm.owners import OwnerHash, owners
from lsm.core.atomic_file import writing

_REQUIRED = ("ids", "offsets", "num_nodes", "num_ranks")


@dataclass(frozen=True)
class Trace:
    """Request lists of T iterations and R ranks, as in a ``.npz`` file of the same keys.

    ids: [total] int64. offsets: [T * R + 1] int64; the request list of iteration t, rank r is
    ``ids[offsets[t * R + r] : offsets[t * R + r + 1]]``, without repeats. static_score:
    [num_nodes] float32, finite and >= 0, or None. Raises ValueError with the first list, position
    and value that are wrong; ``name``: the trace's origin in these messages.
    """

    ids: np.ndarray
    offsets: np.ndarray
    num_nodes: int
    num_ranks: int
    static_score: np.ndarray | None = None
    name: str = "trace"

    def __post_init__(self) -> None:
        try:
            _check_layout(self)
            _check_lists(self)
            _check_score(self)
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None

    @property
    def num_iterations(self) -> int:
        return (len(self.offsets) - 1) // self.num_ranks

    @property
    def mean_list(self) -> float:
        """Mean length of one rank's request list."""
        return len(self.ids) / (len(self.offsets) - 1)

    def request_list(self, iteration: int, rank: int) -> np.ndarray:
        """The ids that ``rank`` needs at ``iteration``: a view, [n] int64."""
        at = iteration * self.num_ranks + rank
        return self.ids[self.offsets[at] : self.offsets[at + 1]]

    def owner_batches(
        self, rank: int, hash: OwnerHash = "stride", shared: bool = True
    ) -> list[torch.Tensor]:
        """The requests to the cache of ``rank`` at each iteration: T tensors, [n] int64.

        shared: the ids that ``rank`` owns, over all ranks' lists in request order (rank 0's list,
        then the additions of rank 1, ...), each once. Otherwise the rank's own list, whatever the
        owners.
        """
        if not 0 <= rank < self.num_ranks:
            raise ValueError(f"rank: expected 0 to {self.num_ranks - 1}, got {rank}")
        if not shared or self.num_ranks == 1:
            lists = (self.request_list(t, rank) for t in range(self.num_iterations))
            return [torch.from_numpy(ids) for ids in lists]
        is_owned = owners(self.ids, self.num_ranks, hash) == rank
        before = np.concatenate([[0], np.cumsum(is_owned)])
        bounds = before[self.offsets[:: self.num_ranks]]
        owned = torch.from_numpy(self.ids[is_owned])
        return [
            native.unique_relabel(owned[begin:end])[0].clone() for begin, end in pairwise(bounds)
        ]

    def save(self, path: str | Path) -> None:
        """Writes the trace to ``path`` atomically. Raises OSError, which names it, if it cannot be
        written."""
        arrays: dict[str, Any] = {
            "ids": self.ids,
            "offsets": self.offsets,
            "num_nodes": np.int64(self.num_nodes),
            "num_ranks": np.int64(self.num_ranks),
        }
        if self.static_score is not None:
            arrays["static_score"] = self.static_score
        with writing(Path(path)) as partial, open(partial, "wb") as file:
            np.savez(file, **arrays)

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """The trace in ``path``. Raises FileNotFoundError, or ValueError with the fault."""
        path = Path(path)
        try:
            loaded = np.load(path, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                raise ValueError("a .npy file")
            with loaded as file:
                arrays: dict[str, Any] = {key: file[key] for key in file.files}
        except Exception as error:
            # NumPy and zipfile raise next to anything over files that can hold anything.
            of_content = not isinstance(error, OSError) or error.errno == errno.EINVAL
            if not of_content or isinstance(error, MemoryError):
                raise
            raise ValueError(
                f"{path}: expected a trace (.npz) written by `lsm trace`, got {_kind(path)}"
            ) from None
        missing = [key for key in _REQUIRED if key not in arrays]
        if missing:
            raise ValueError(f"{path}: {', '.join(missing)}: missing from the trace")
        for key in ("num_nodes", "num_ranks"):
            if arrays[key].size != 1 or arrays[key].dtype.kind not in "iu":
                raise ValueError(
                    f"{path}: {key}: expected one integer, "
                    f"got {arrays[key].dtype} {list(arrays[key].shape)}"
                )
        return cls(
            ids=arrays["ids"],
            offsets=arrays["offsets"],
            num_nodes=int(arrays["num_nodes"].item()),
            num_ranks=int(arrays["num_ranks"].item()),
            static_score=arrays.get("static_score"),
            name=str(path),
        )


def _kind(path: Path) -> str:
    """The kind of a file that is no trace, from its first bytes."""
    with open(path, "rb") as file:
        start = file.read(6)
    if not start:
        return "an empty file"
    if start == b"\x93NUMPY":
        return "one array (.npy)"
    return "one that is damaged or cut short" if start[:2] == b"PK" else "a file of another kind"


def _check_layout(trace: Trace) -> None:
    for key, array in (("ids", trace.ids), ("offsets", trace.offsets)):
        if array.dtype != np.int64 or array.ndim != 1:
            raise ValueError(f"{key}: expected int64 [n], got {array.dtype} {list(array.shape)}")
    if trace.num_nodes < 1:
        raise ValueError(f"num_nodes: expected at least 1, got {trace.num_nodes}")
    if trace.num_ranks < 1:
        raise ValueError(f"num_ranks: expected at least 1, got {trace.num_ranks}")
    num_lists = len(trace.offsets) - 1
    if num_lists < 1 or num_lists % trace.num_ranks:
        raise ValueError(
            f"offsets: expected T * {trace.num_ranks} + 1 of them, one list for each of T >= 1 "
            f"iterations and {trace.num_ranks} ranks, got {len(trace.offsets)}"
        )
    if not len(trace.ids):
        raise ValueError("ids: expected at least one request, got none")
    if trace.offsets[0] != 0 or trace.offsets[-1] != len(trace.ids):
        raise ValueError(
            f"offsets: expected to go from 0 to the number of ids ({len(trace.ids)}), "
            f"got {trace.offsets[0]} to {trace.offsets[-1]}"
        )
    falling = np.flatnonzero(trace.offsets[1:] < trace.offsets[:-1])
    if len(falling):
        at = int(falling[0])
        raise ValueError(
            f"offsets: expected not to fall, got {trace.offsets[at]} then "
            f"{trace.offsets[at + 1]} at position {at + 1}"
        )


def _check_lists(trace: Trace) -> None:
    wrong = np.flatnonzero((trace.ids < 0) | (trace.ids >= trace.num_nodes))
    if len(wrong):
        at = int(wrong[0])
        index = int(np.searchsorted(trace.offsets, at, side="right")) - 1
        raise ValueError(
            f"{_place(trace, index, at - int(trace.offsets[index]))}: "
            f"expected an id of 0 to {trace.num_nodes - 1}, got {trace.ids[at]}"
        )
    for index in range(len(trace.offsets) - 1):
        ids = trace.ids[trace.offsets[index] : trace.offsets[index + 1]]
        ascending = np.sort(ids)
        if (ascending[1:] == ascending[:-1]).any():
            _, first_seen = np.unique(ids, return_index=True)
            again = int(np.setdiff1d(np.arange(len(ids)), first_seen)[0])
            first = int(np.flatnonzero(ids == ids[again])[0])
            raise ValueError(
                f"{_place(trace, index, again)}: expected no id twice in a list, "
                f"got {ids[again]}, which is at position {first} too"
            )


def _place(trace: Trace, index: int, position: int) -> str:
    iteration, rank = divmod(index, trace.num_ranks)
    return f"list {index} (iteration {iteration}, rank {rank}), position {position}"


def _check_score(trace: Trace) -> None:
    score = trace.static_score
    if score is None:
        return
    if score.dtype != np.float32 or score.shape != (trace.num_nodes,):
        raise ValueError(
            f"static_score: expected float32 [{trace.num_nodes}], "
            f"got {score.dtype} {list(score.shape)}"
        )
    wrong = np.flatnonzero(~(np.isfinite(score) & (score >= 0)))
    if len(wrong):
        at = int(wrong[0])
        raise ValueError(
            f"static_score: expected finite values of at least 0, got {score[at]} at node {at}"
        )
