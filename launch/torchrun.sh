#!/usr/bin/env bash
# Trains with NPROC processes on this machine: launch/torchrun.sh NPROC CONFIG [key=value ...]
#   NPROC        a number; gpu, cpu or auto: as many as there are
# On several machines, the same command on each of them, with
#   NNODES       how many machines
#   NODE_RANK    which of them this is, from 0
#   MASTER_ADDR  machine 0, as all of them reach it; MASTER_PORT if 29500 is taken
# MAX_RESTARTS: how often a failed job is started again, from its last checkpoint.
# SIGTERM or SIGUSR1 stops the job with a checkpoint, and the exit status is 75.
# Environment only; everything else is in the configuration.
set -euo pipefail

if [ $# -lt 2 ] || ! [[ $1 =~ ^([1-9][0-9]*|auto|cpu|gpu)$ ]]; then
    echo "usage: [NNODES=N NODE_RANK=K MASTER_ADDR=HOST] $0 NPROC CONFIG [key=value ...]" >&2
    exit 2
fi
num_processes=$1
shift

meeting=(--standalone)
if [ "${NNODES:-1}" != 1 ]; then
    meeting=(--nnodes "$NNODES" --node-rank "${NODE_RANK:?which machine this is, from 0}"
        --master-addr "${MASTER_ADDR:?the machine with NODE_RANK 0}"
        --master-port "${MASTER_PORT:-29500}")
fi

# Waiting OpenMP threads sleep instead of spinning: sampling and reading need the cores.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"
# torchrun would set 1 and say so; train.num_threads decides.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"

# As `python -m torch.distributed.run`, without tracebacks of the launcher: ranks report their
# errors.
launcher='
import os
import signal
import sys
import tempfile
from lsm.distributed.interrupt import watch

watch()  # until torchrun has handlers of its own
from lsm.distributed.environment import await_address
from lsm.distributed.signals import EXIT_STOPPED, STOP_FILE

if os.environ.get("NNODES", "1") != "1":
    try:
        await_address(os.environ["MASTER_ADDR"])
    except KeyboardInterrupt:
        print("lsm: interrupted", file=sys.stderr)
        sys.exit(130)
    except RuntimeError as error:
        sys.exit(f"error: {error}")

from torch.distributed import DistError
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import main


def stop(number, _frame):
    """As the handlers of torchrun, which has none of this signal."""
    raise SignalException("stopped", signal.Signals(number))


signal.signal(signal.SIGUSR1, stop)
status, is_failed = 0, False
with tempfile.TemporaryDirectory(prefix="lsm-launch-") as folder:
    os.environ[STOP_FILE] = os.path.join(folder, "stopped")
    try:
        main()
    except SignalException as received:
        # The handler of torchrun would raise in whatever runs at the exit.
        signal.signal(received.sigval, signal.SIG_IGN)
        status = 128 + received.sigval
    except ChildFailedError as error:
        status = str(error)
        is_failed = error.get_first_failure()[1].exitcode != EXIT_STOPPED
    except DistError as error:
        reason = str(error).partition("\n")[0]
        sys.exit(f"error: the machines of the job did not meet ({reason}); give all of them the "
                 "same MASTER_ADDR, and a MASTER_PORT that is free there")
    if os.path.exists(os.environ[STOP_FILE]) and not is_failed:
        status = EXIT_STOPPED
sys.exit(status)
'
exec "${PYTHON:-python}" -c "$launcher" "${meeting[@]}" \
    --nproc-per-node "$num_processes" --max-restarts "${MAX_RESTARTS:-0}" -m lsm train "$@"
