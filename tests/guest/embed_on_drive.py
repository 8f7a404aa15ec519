"""Trains embeddings on a raw drive: `embed_on_drive.py TRANSPORT DRIVE FOLDER`.

DRIVE is empty, DRIVE@2 holds other data, and DRIVE@3 refuses flushes (not where they are emulated).
Every check prints a line as the checks of nvme_guest.cpp do, and `learnt` one more: the table in
slots, as JSON, for a look at the drive from outside.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import sys
import threading
from pathlib import Path

from lsm.embed.run import EmbeddingRun
from lsm.embed.table import drive as partition_drive
from lsm.embed.trainer import train
from lsm.embed.use.embeddings import open_run
from lsm.storage.transfers import Transfers
from support.triples import SIX_PARTITIONS, config, make_triples, tables


class Checks:
    """A store, and runs on the drive ``name`` in ``folder``."""

    def __init__(self, transport: str, name: str, folder: Path) -> None:
        self.transport, self.name, self.folder = transport, name, folder
        self.store = make_triples(folder / "store")

    def settings(self, run: str, *more: str, namespace: str = ""):
        """Of a run on the drive, or on another namespace of it."""
        drive = f"storage.devices=[{self.name}{namespace}]"
        keys = ("storage.engine=nvme", f"storage.transport={self.transport}", drive)
        return config(self.store, self.folder / run, *SIX_PARTITIONS, *keys, *more)

    def on_the_drive(self, run: str) -> list[bytes]:
        """What ``run`` has learnt."""
        opened, copy = EmbeddingRun.open(self.folder / run), self.folder / "copy"
        with Transfers(self.folder, opened.config.storage, read_only=True) as transfers:
            content = partition_drive.read(transfers, 0, opened.layout.file_bytes)
        copy.write_bytes(content)
        return tables(self.folder / run, copy)

    def other_data(self) -> None:
        """A namespace that holds data is refused."""
        expect_error(
            lambda: train(self.settings("refused", namespace="@2")),
            r"@2 holds data of another kind, and was left as it is; .*storage.erase=",
        )

    def refused_flush(self) -> None:
        """An error of the drive ends the run, and says what failed."""
        expect_error(lambda: train(self.settings("flush", namespace="@3")), "flush: write fault")

    def same_numbers(self) -> None:
        """A run on the drive learns what a run in a file does, to the bit."""
        train(config(self.store, self.folder / "file", *SIX_PARTITIONS, "storage.engine=posix"))
        train(self.settings("drive"))
        assert self.on_the_drive("drive") == tables(self.folder / "file")
        ids = [0, 239, 7]
        ours, theirs = (open_run(self.folder / run).entities(ids) for run in ("drive", "file"))
        assert ours.equal(theirs)

    def resumes(self) -> None:
        """A run that was killed while it moved a partition ends with the same numbers."""
        for number in (5, 16):
            child = os.fork()
            if child == 0:
                kill_at_swap(number)
                train(self.settings("drive", "checkpoint.resume=never"))
                os._exit(0)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, status
            train(self.settings("drive"))
            assert self.on_the_drive("drive") == tables(self.folder / "file")

    def learnt(self) -> None:
        """Prints where the table lies, and its digest."""
        run = EmbeddingRun.open(self.folder / "drive")
        rows = tables(self.folder / "file")[0]
        layout = run.layout
        parts = [
            [layout.slot_offset(p, slot), layout.num_rows(p) * layout.row_bytes]
            for p, slot in enumerate(run.state.table.slots)
        ]
        print("learnt", json.dumps({"parts": parts, "sha256": hashlib.sha256(rows).hexdigest()}))


def kill_at_swap(number: int) -> None:
    """Ends this process while it makes the ``number``th move of a partition."""
    whole, count = Transfers.swap, iter(range(10**6))

    def swap(*given, **options):
        if next(count) == number:
            threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGKILL)).start()
        return whole(*given, **options)

    Transfers.swap = swap


def expect_error(call, pattern: str) -> None:
    """Fails unless ``call`` raises an error with ``pattern`` in its message."""
    try:
        call()
    except (OSError, ValueError) as error:
        message = str(error)
    else:
        message = "no error"
    assert re.search(pattern, message), message


def main() -> None:
    transport, name, folder = sys.argv[1:]
    checks = Checks(transport, name, Path(folder))
    for check in ("other_data", "same_numbers", "resumes", "refused_flush", "learnt"):
        try:
            getattr(checks, check)()
            print(f"check {check} ok", flush=True)
        except Exception as error:
            print(f"check {check} failed: {type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main()
