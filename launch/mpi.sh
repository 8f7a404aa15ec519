#!/usr/bin/env bash
# Trains with NPROC processes under Open MPI: launch/mpi.sh NPROC CONFIG [key=value ...]
#   HOSTFILE     machines and their slots, as mpirun reads them; without it, this machine
#   MASTER_ADDR  rank 0's machine as the others reach it, if its host name does not do
# Needs mpi4py: pip install mpi4py. To stop with a checkpoint, send mpirun SIGUSR1, which it
# passes on; after SIGTERM it leaves the ranks no time to write one.
# Environment only; everything else is in the configuration.
set -euo pipefail

if [ $# -lt 2 ] || ! [[ $1 =~ ^[1-9][0-9]*$ ]]; then
    echo "usage: [HOSTFILE=FILE] $0 NPROC CONFIG [key=value ...]" >&2
    exit 2
fi
num_processes=$1
shift

export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"

# Not bound to a core: a rank samples, reads and trains in threads of its own.
exec mpirun -n "$num_processes" ${HOSTFILE:+--hostfile "$HOSTFILE"} --bind-to none \
    -x OMP_WAIT_POLICY ${MASTER_ADDR:+-x MASTER_ADDR} ${MASTER_PORT:+-x MASTER_PORT} \
    "${PYTHON:-python}" -m lsm train "$@"
