"""The directory of a study's results: one study at a time, and no other study replaced."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lsm.ablation.config import AblationConfig
from lsm.core.figures import SUFFIXES
from lsm.run.directory import RunDirectory

logger = logging.getLogger(__name__)

# Sections that identify a study, without the paths in them.
_SECTIONS = ("graph", "trace", "cache", "accumulator", "reads")
_PATHS = ("path", "directory")

_STUDY = "study.json"
# Files of the results of all studies.
_RESULTS = (
    *("records.json", "records.csv", "table.md", "overlap.csv", "batches.csv"),
    *(f"{plot}{suffix}" for plot in ("plot", "overlap", "batches") for suffix in SUFFIXES),
)


@contextmanager
def held(config: AblationConfig) -> Iterator[None]:
    """A context that holds ``config.output``. Raises RuntimeError if another process holds it,
    ValueError if it has the results of another study or files that no study wrote; those of the
    same study are replaced, as a line of the log says."""
    folder = Path(config.output)
    with RunDirectory(folder, key="output"):
        stored, now = _stored(folder), _sections(config.model_dump(mode="json"))
        before = _sections(stored)
        other = [name for name in before if before[name] != now[name]]
        if other or "trace_file" in stored:
            of = f"a study with other {', '.join(other)}" if other else "a trace"
            raise ValueError(
                f"output: {folder} holds the results of {of}; choose another output, or remove it"
            )
        _tell_of_files(folder, "output")
        yield


@contextmanager
def held_for_trace(folder: Path, trace: Path) -> Iterator[None]:
    """A context that holds ``folder`` for the results of ``trace``. Raises RuntimeError if another
    process holds it, ValueError if it has those of a configuration's study or of another trace, or
    files that no study wrote; those of the same trace are replaced, as a line of the log says."""
    with RunDirectory(folder, key="--out"):
        if stored := _stored(folder):
            before = stored.get("trace_file")
            if before is None or not _is_same_file(Path(before), trace):
                of = "a study of a config" if before is None else f"the trace {before}"
                raise ValueError(
                    f"--out: {folder} holds the results of {of}; choose another folder, or remove "
                    "it"
                )
        _tell_of_files(folder, "--out")
        yield


def _tell_of_files(folder: Path, key: str) -> None:
    """Logs that the results in ``folder`` are replaced. Raises ValueError for files with the names
    of results that no study wrote."""
    found = [name for name in _RESULTS if (folder / name).exists()]
    if found and not (folder / _STUDY).exists():
        raise ValueError(
            f"{key}: {folder} holds {', '.join(found)}, which no study wrote; choose another "
            "folder, or remove them"
        )
    if found:
        logger.info("%s: the results of before in %s are replaced", key, folder)


def _is_same_file(before: Path, now: Path) -> bool:
    """True also for a file that was moved together with the working directory."""
    try:
        return before.samefile(now)
    except OSError:
        return before.name == now.name


def _stored(folder: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        return dict(json.loads((folder / _STUDY).read_text())["config"])
    return {}


def _sections(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        name: {key: value for key, value in values[name].items() if key not in _PATHS}
        for name in _SECTIONS
        if isinstance(values.get(name), dict)
    }
