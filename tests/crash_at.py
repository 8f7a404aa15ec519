"""Runs ``lsm train`` with one rank that fails at one iteration: how jobs end is a test's business.

crash_at.py kill|raise RANK EPOCH ITERATION CONFIG [key=value ...]
"""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    how, rank, epoch, iteration, *arguments = sys.argv[1:]
    from lsm import cli
    from lsm.train import Trainer

    whole_step = Trainer._train_step

    def step(self, batch, wait_secs):
        at = (self.job.world.rank, batch.epoch, batch.iteration)
        if at == (int(rank), int(epoch), int(iteration)):
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError(5, "injected failure of the disk", "features.bin")
        whole_step(self, batch, wait_secs)

    Trainer._train_step = step
    sys.argv = ["lsm", "train", *arguments]
    cli.main()


if __name__ == "__main__":
    main()
