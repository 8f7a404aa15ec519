"""The directory of a run, held by a lock that ends with the process."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import socket
import time
from pathlib import Path

from lsm.core.atomic_file import remove_left
from lsm.data.format import META
from lsm.run.position import Position

logger = logging.getLogger(__name__)

# Longest wait for a lock: a rank that a launcher has just killed may still exist.
_PATIENCE_SECS = 5.0
_POLL_SECS = 0.1
_LOCK = ".lock"
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)


class RunDirectory:
    """Holds ``path`` for this process until close(); rank 0 of a job does.

    The lock is flock() on a file inside. The kernel releases it when the process ends, even when it
    is killed. Files that a killed process left half written are removed. Raises RuntimeError, which
    names host and process of the holder, if the lock is held, and ValueError for the directory of a
    store.
    """

    def __init__(self, path: Path, key: str = "run.dir") -> None:
        """``key``: the setting with this path, for messages."""
        self.path = path
        self._key = key
        self._descriptor = self._take()

    def check(self) -> bool:
        """True if the directory is still the locked one. If it was removed, creates and locks it
        again and returns False. Raises RuntimeError if another run has taken its place."""
        try:
            ours = os.path.samestat(os.stat(self.path / _LOCK), os.fstat(self._descriptor))
        except FileNotFoundError:
            ours = False
        if ours:
            return True
        logger.warning(
            "%s: %s was removed while the run was writing to it; it is created again, and its "
            "contents are lost",
            self._key,
            self.path,
        )
        removed, self._descriptor = self._descriptor, self._take()
        os.close(removed)
        return False

    def close(self) -> None:
        """Releases the lock. The file stays: after its removal two other runs could both lock the
        directory."""
        os.close(self._descriptor)

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _take(self) -> int:
        if (self.path / META).exists():
            raise ValueError(
                f"{self._key}: {self.path} holds a store or splits ({META}); choose another "
                f"{self._key}"
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise OSError(
                error.errno,
                f"{self._key}: cannot write to {self.path} ({error.strerror}); choose another "
                f"{self._key}",
            ) from None
        try:
            if self._lock(descriptor):
                remove_left(self.path, "*")
            holder = {"host": socket.gethostname(), "pid": os.getpid()}
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(holder).encode(), 0)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _lock(self, descriptor: int) -> bool:
        """Returns False on a file system without locks."""
        deadline = time.monotonic() + _PATIENCE_SECS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise RuntimeError(
                        f"{self._key}: {self.path} is in use by another run "
                        f"({_holder(descriptor)}); choose another {self._key}, or end that run "
                        "first"
                    ) from None
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                logger.warning(
                    "%s: %s is on a file system without locks (%s); see to it that no other run "
                    "uses it",
                    self._key,
                    self.path,
                    error.strerror,
                )
                return False
            time.sleep(_POLL_SECS)


def _holder(descriptor: int) -> str:
    try:
        holder = json.loads(os.pread(descriptor, 4096, 0))
        return f"pid {holder['pid']} on host {holder['host']}"
    except (ValueError, KeyError, TypeError, OSError):
        return "of which nothing is known"


def finished_run(path: Path, position: Position | None) -> ValueError:
    """The error of a finished run in ``path`` that nothing continues. ``position``: that of its
    last checkpoint; None without one."""
    if position is None:
        reason = "there is no checkpoint of it to continue from"
    elif position.stopped_early:
        reason = "it stopped early (train.patience)"
    else:
        reason = f"train.epochs of more than {position.epoch} continues it"
    return ValueError(
        f"run.dir: {path} holds a finished run; choose another run.dir to keep it, or set "
        f"checkpoint.resume=never to replace it; {reason}"
    )
