"""Facts of a run in its directory: ``config.yaml``, ``run.json`` and ``run.log``.

``config.yaml`` holds every key as the last start had it, and ``lsm train`` takes it. ``run.json``
has an entry for each start of the run: versions, commit, host, command, time, and how it ended.
``run.log`` is the log (``run_log``).
"""

from __future__ import annotations

import importlib.metadata
import json
import logging
import os
import shlex
import socket
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from lsm.core import record
from lsm.core.atomic_file import write_bytes_atomic
from lsm.core.section import dump_config
from lsm.run.kernel_kills import count_kills, explain_end
from lsm.run.log import RunLog

logger = logging.getLogger(__name__)

CONFIG_NAME = "config.yaml"
STARTS_NAME = "run.json"

_SCHEMA_VERSION = 1


class RunRecord:
    """Context manager for the facts of a run; rank 0 enters it once it has locked the directory.

    At the end it records whether the run finished, or the error. A start that finds no such end of
    the one before says so, with the reason as far as the kernel tells.
    """

    def __init__(
        self,
        directory: Path,
        config: BaseModel,
        log: RunLog,
        *,
        store: Path,
        store_digest: str | None,
        world_size: int,
        anew: bool,
    ) -> None:
        """Reads the facts of earlier starts.

        Args:
            directory: The run's. The process holds its lock.
            config: The configuration, with a section ``run``.
            log: The run's log, which is opened here.
            store: The store, for the user.
            store_digest: Of its contents; None: not known.
            world_size: Number of ranks.
            anew: Replace the records of earlier starts (checkpoint.resume=never).
        """
        self._directory, self._log, self._store = directory, log, store
        self._config = _continuing(config, directory)
        self._earlier = _read_starts(directory / STARTS_NAME)
        self._anew = anew
        self._start: dict[str, Any] = _facts() | {
            "store": str(store),
            "store_digest": store_digest,
            "world_size": world_size,
        }

    def __enter__(self) -> RunRecord:
        last = self._earlier[-1] if self._earlier else None
        if self._anew:
            self._earlier = []
        self.write(anew=self._anew)
        logger.info(
            "run: %s; store %s; configuration %s",
            self._directory,
            self._store,
            self._directory / CONFIG_NAME,
        )
        if last is not None and last.get("ended") is None:
            _say_killed(self._directory, last, self._start)
        return self

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        ended = "finished" if error is None else _in_words(error)
        self._start |= {"ended": ended, "ended_at": _now()}
        if error is None:
            logger.debug("run: finished")
        else:
            self._log.note(f"run: {ended}", "ERROR")
        try:
            self._write_starts()
        except RuntimeError as problem:
            logger.warning("%s", problem)

    def write(self, *, anew: bool) -> None:
        """Writes the files; ``anew`` where there are none of an earlier start. Raises RuntimeError
        if a file cannot be written."""
        content = dump_config(self._config).encode()
        write_bytes_atomic(self._directory / CONFIG_NAME, content)
        self._write_starts()
        self._log.open(self._directory, anew=anew)

    def _write_starts(self) -> None:
        content = {"schema_version": _SCHEMA_VERSION, "starts": [*self._earlier, self._start]}
        text = json.dumps(content, indent=1) + "\n"
        write_bytes_atomic(self._directory / STARTS_NAME, text.encode())


def places(directory: Path, store: Path) -> dict[str, str]:
    """The directory, the store and the configuration of a run, for its summary."""
    return {
        "run_dir": str(directory),
        "store": str(store),
        "config": str(directory / CONFIG_NAME),
    }


def last_store(directory: Path) -> str | None:
    """The digest of the store of the last start of a run; None if it is not recorded."""
    starts = _read_starts(directory / STARTS_NAME)
    return starts[-1].get("store_digest") if starts else None


def has_finished(directory: Path) -> bool:
    """True if the last start of a run ended without an error."""
    starts = _read_starts(directory / STARTS_NAME)
    return bool(starts) and starts[-1].get("ended") == "finished"


def _continuing(config: Any, directory: Path) -> BaseModel:
    """``config`` with the directory that its run has, and checkpoint.resume=auto for never, so that
    its file leads there again and continues the run in place of starting it afresh."""
    run, checkpoint = config.run.model_copy(update={"dir": str(directory)}), config.checkpoint
    if checkpoint.resume == "never":
        checkpoint = checkpoint.model_copy(update={"resume": "auto"})
    return config.model_copy(update={"run": run, "checkpoint": checkpoint})


def _facts() -> dict[str, Any]:
    """The facts of a start that is going on."""
    return {
        "started_at": _now(),
        "ended": None,
        "command": shlex.join(sys.argv),
        "working_directory": os.getcwd(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "commit": record.commit(),
        "machine": record.machine() | {"pyg": _pyg_version()},
        "kernel_kills": count_kills(),
    }


def _pyg_version() -> str | None:
    try:
        return importlib.metadata.version("torch_geometric")
    except importlib.metadata.PackageNotFoundError:
        return None


def _read_starts(path: Path) -> list[dict[str, Any]]:
    """The starts that ``path`` records; none if there is no such file, or it is damaged."""
    try:
        starts = json.loads(path.read_bytes())["starts"]
        return [start for start in starts if isinstance(start, dict)]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        logger.warning("run.dir: %s cannot be read (%s); it is replaced", path, error)
        return []


def _say_killed(directory: Path, last: dict[str, Any], start: dict[str, Any]) -> None:
    """Logs that the last start ended without a word, with the likely reason."""
    host, kills, now = last.get("host"), last.get("kernel_kills"), start["kernel_kills"]
    before = kills if isinstance(kills, dict) else {}
    # Containers of one machine have host names of their own.
    if host == start["host"] or before.get("boot") == now["boot"]:
        why, is_memory = explain_end(before, now)
    else:
        why, is_memory = f"see the log of the kernel there (dmesg) on {host}", False
    logger.log(
        logging.WARNING if is_memory else logging.INFO,
        "run.dir: the last start of %s (%s, pid %s on %s) ended without a word: %s",
        directory,
        last.get("started_at"),
        last.get("pid"),
        host,
        why,
    )


def _in_words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
