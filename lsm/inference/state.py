"""The progress of an inference on disk: which units of each stage are done.

A rank appends a record once the rows of some units are written. A process that is killed loses the
units that it was working on. After a restart of the machine only whole stages count, which were
made durable.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lsm.core.atomic_file import sync_directory, write_bytes_atomic
from lsm.distributed import collectives
from lsm.distributed.environment import World
from lsm.distributed.rendezvous import different_keys
from lsm.run.kernel_kills import count_kills

_NAME = "state.json"
_FIELDS = 4  # stage, first unit, end of units, rows with a value that is not finite
_RECORD_BYTES = 8 * _FIELDS
_SEALED = -1


@dataclass(frozen=True)
class Done:
    """The progress when a rank started."""

    records: np.ndarray
    """[n, 4] int64: stage, first unit, end of units, rows with a value that is not finite."""

    def todo(self, stage: int, num_units: int) -> np.ndarray:
        """The units of a stage that are not done: [n] int64, ascending."""
        open_units = np.ones(num_units, dtype=bool)
        for _, first, end, _ in self.records[self.records[:, 0] == stage]:
            open_units[max(first, 0) : max(end, 0)] = False
        return np.flatnonzero(open_units)

    def is_sealed(self, stage: int) -> bool:
        """True if all units of a stage are done and durable."""
        of_stage = self.records[self.records[:, 0] == stage]
        return bool((of_stage[:, 1] == _SEALED).any())

    @property
    def num_bad_rows(self) -> int:
        """Rows with a value that is not finite, of the stage with most of them."""
        stages = self.records[:, 0]
        return max((int(self.records[stages == n, 3].sum()) for n in np.unique(stages)), default=0)


class State:
    """The records of one job in a directory."""

    def __init__(self, work: Path, world: World) -> None:
        self._work, self._world = work, world
        self._path = work / f"done.{world.rank}"

    def start(self, job: dict[str, Any]) -> Done:
        """Continues ``job``, the facts that decide its results, or starts it. A collective. Raises
        ValueError if the directory holds another job."""
        problem, records = "", np.empty((0, _FIELDS), dtype=np.int64)
        if self._world.is_main:
            try:
                records = self._continued(job)
            except ValueError as error:
                problem = str(error)
        problem, records = collectives.broadcast_object((problem, records), self._world)
        if problem:
            raise ValueError(problem)
        return Done(records)

    def add(self, stage: int, first: int, end: int, num_bad_rows: int) -> None:
        """Records units ``first`` to ``end - 1`` of a stage as done."""
        self._append(self._path, np.array([[stage, first, end, num_bad_rows]], dtype=np.int64))

    def seal(self, stage: int) -> None:
        """Records that a stage is done and durable. Rank 0 calls it, once all ranks are done. The
        record is durable, too."""
        self.add(stage, _SEALED, _SEALED, 0)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_directory(self._work)

    def total(self) -> Done:
        """The progress of all ranks. A collective."""
        collectives.barrier(self._world)
        return Done(self._read())

    def _continued(self, job: dict[str, Any]) -> np.ndarray:
        self._work.mkdir(parents=True, exist_ok=True)
        boot = count_kills().get("boot")
        path, content = self._work / _NAME, json.loads(json.dumps(job))
        if not path.exists():
            write_bytes_atomic(path, json.dumps({"job": content, "boot": boot}).encode())
            return self._read()
        try:
            saved = json.loads(path.read_bytes())
            saved["job"].keys(), saved["boot"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(
                f"--out: {path} is damaged ({error}); remove {self._work} to start the inference "
                "afresh"
            ) from None
        if differing := different_keys(saved["job"], content):
            raise ValueError(
                f"--out: {self._work.parent} holds an unfinished inference with another "
                f"{', '.join(differing)}; remove it, or choose another --out"
            )
        records = self._read()
        if saved["boot"] != boot:
            sealed = records[records[:, 1] == _SEALED, 0]
            records = records[np.isin(records[:, 0], sealed)]
            for old in self._work.glob("done.*"):
                old.unlink()
            self._append(self._path, records)
            write_bytes_atomic(path, json.dumps({"job": content, "boot": boot}).encode())
        return records

    def _read(self) -> np.ndarray:
        found = [np.empty((0, _FIELDS), dtype=np.int64)]
        for path in sorted(self._work.glob("done.*")):
            content = path.read_bytes()
            whole = len(content) // _RECORD_BYTES * _RECORD_BYTES
            found.append(np.frombuffer(content[:whole], np.int64).reshape(-1, _FIELDS))
        return np.concatenate(found)

    @staticmethod
    def _append(path: Path, records: np.ndarray) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            whole = os.fstat(descriptor).st_size // _RECORD_BYTES * _RECORD_BYTES
            os.ftruncate(descriptor, whole)  # a killed process may have left a part
            os.write(descriptor, records.tobytes())
        finally:
            os.close(descriptor)
