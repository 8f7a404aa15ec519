#!/usr/bin/env bash
# Trains with NPROC processes on this machine: launch/torchrun.sh NPROC CONFIG [key=value ...]
# Environment only; everything else is in the configuration.
set -euo pipefail

if [ $# -lt 2 ]; then
    echo "usage: $0 NPROC CONFIG [key=value ...]" >&2
    exit 2
fi
num_processes=$1
shift

# Waiting OpenMP threads sleep instead of spinning: sampling and reading need the cores.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"
# torchrun would set 1 and say so; train.num_threads decides.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"

exec "${PYTHON:-python}" -m torch.distributed.run --standalone --nproc-per-node "$num_processes" \
    -m lsm train "$@"
