"""Runs ``lsm train`` with one rank that fails at one iteration: how jobs end is a test's business.

crash_at.py kill|stop|hang|raise|term|usr1|int RANK EPOCH ITERATION CONFIG [key=value ...]

kill: dies without a word; stop: is suspended; hang: lives, but never comes to the next collective;
raise: a read fails; term, usr1: is asked to stop; int: Ctrl-C. Only before the first restart of the
job.
"""

from __future__ import annotations

import os
import signal
import sys
import time

SIGNALS = {
    "kill": signal.SIGKILL,
    "stop": signal.SIGSTOP,
    "term": signal.SIGTERM,
    "usr1": signal.SIGUSR1,
    "int": signal.SIGINT,
}
RESTARTS = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")


def main() -> None:
    how, rank, epoch, iteration, *arguments = sys.argv[1:]
    from lsm import cli
    from lsm.train.trainer import Trainer

    whole_step = Trainer.train
    restarted = any(os.environ.get(name, "0") != "0" for name in RESTARTS)

    def step(self, batch):
        at = (self.job.world.rank, batch.epoch, batch.iteration)
        if at == (int(rank), int(epoch), int(iteration)) and not restarted:
            if how == "int":  # which a test run in the background has been told to ignore
                signal.signal(signal.SIGINT, signal.default_int_handler)
            if how in SIGNALS:
                os.kill(os.getpid(), SIGNALS[how])
            if how == "hang":
                time.sleep(3600)
            if how == "raise":
                raise OSError(5, "injected failure of the disk", "features.bin")
        return whole_step(self, batch)

    Trainer.train = step
    sys.argv = ["lsm", "train", *arguments]
    cli.main()


if __name__ == "__main__":
    main()
