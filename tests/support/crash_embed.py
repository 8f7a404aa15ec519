"""Runs ``lsm embed train`` and kills a rank of it at a random moment.

crash_embed.py RANK WHERE NUMBER DELAY_MS CONFIG [key=value ...]

Kills rank RANK with SIGKILL, DELAY_MS after the NUMBERth start, counted from 0, of WHERE: batch, a
step of the optimiser; swap, a move of a partition; state, the write of a checkpoint's state.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time


def main() -> None:
    rank, where, number, delay_ms, *arguments = sys.argv[1:]
    from lsm import cli
    from lsm.embed import trainer
    from lsm.embed.edge_trainer import EdgeTrainer
    from lsm.storage.transfers import Transfers

    owner, name = {
        "batch": (EdgeTrainer, "train"),
        "swap": (Transfers, "swap"),
        "state": (trainer, "save_state"),
    }[where]
    whole, count = getattr(owner, name), itertools.count()

    def die() -> None:
        time.sleep(float(delay_ms) / 1000)
        os.kill(os.getpid(), signal.SIGKILL)

    def fatal(*given, **options):
        if next(count) == int(number) and os.environ.get("RANK", "0") == rank:
            threading.Thread(target=die, daemon=True).start()
        return whole(*given, **options)

    setattr(owner, name, fatal)
    sys.argv = ["lsm", "embed", "train", *arguments]
    cli.main()


if __name__ == "__main__":
    main()
