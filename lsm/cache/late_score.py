"""Computes a static score during training, which uses it from then on."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch

from lsm import native
from lsm.cache import scores
from lsm.data.graph_store import GraphStore

logger = logging.getLogger(__name__)

_LOWEST_PRIORITY = 19
_POLL_SECS = 0.5
_CLOSE_SECS = 10.0


class LateScore:
    """Gets the score ``name`` of the store at ``path`` in a thread, and calls ``use`` with it.

    computes: True in the process that computes and stores the score; the others wait for it. If the
    store cannot be written, each process computes its own. A failure is logged, and training
    continues without the score.
    """

    def __init__(
        self, path: Path, name: str, use: Callable[[torch.Tensor], None], *, computes: bool
    ) -> None:
        self._path = path
        self._name = name
        self._use = use
        self._computes = computes or not os.access(path, os.W_OK)
        self._stop = native.StopFlag()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lsm-score", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread. Abandons a score that is not computed by then."""
        self._closed.set()
        self._stop.set()
        self._thread.join(_CLOSE_SECS)

    def __enter__(self) -> LateScore:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _run(self) -> None:
        try:
            score = self._computed() if self._computes else self._awaited()
            if score is not None and not self._closed.is_set():
                self._use(score)
        except scores.StoppedError:
            pass
        except Exception as error:
            logger.warning("score %s: the cache does without it: %s", self._name, error)

    def _computed(self) -> torch.Tensor:
        # On Linux this lowers the priority of this thread alone: sampling and training come first.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST_PRIORITY)
        start = time.perf_counter()
        score = scores.stored_score(GraphStore.open(self._path), self._name, stop=self._stop)
        secs = time.perf_counter() - start
        logger.debug("score %s: there after %.1f s of training", self._name, secs)
        return score

    def _awaited(self) -> torch.Tensor | None:
        """The score, once another process has stored it; None if close() comes first. Blocks."""
        while not self._closed.wait(_POLL_SECS):
            store = GraphStore.open(self._path)
            if self._name in store.scores:
                return store.score(self._name)
        return None
