#!/usr/bin/env bash
# The one command on a machine with a GPU that is lent for a while, without a network and without
# the repository's history:
#
#   bench/lent_gpu.sh FOLDER [CARRIED]
#
# FOLDER gets record.json (all results, and the state) and logs.tgz after every step. CARRIED
# (build/lent-gpu, which `make lent-gpu` fills) has wheels/, gpu_selftest and, from an earlier
# machine, state/ with the two files. One call takes at most LIMIT_SECS (500); the next goes on
# where it stopped. PYTHON: a Python with torch for CUDA (python3).
#
# Exit status: 0 all passed; 1 a step failed, or the GPU does not work; 75 not finished, call again;
# 77 no GPU; 78 something needed is missing.
set -euo pipefail
if [ $# -lt 1 ] || [ $# -gt 2 ]; then
  sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0" >&2
  exit 2
fi
start=$SECONDS
mkdir -p "$1"
saved=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
carried=${2:-build/lent-gpu}
python=${PYTHON:-python3}
command -v "$python" >/dev/null || { echo "missing: $python (name another: PYTHON=...)"; exit 78; }

# A wheel is an archive; without a network and with any pip, this is all that installing means.
site=$PWD/build/lent-gpu-site
for wheel in "$carried"/wheels/*.whl; do
  [ -e "$wheel" ] || continue
  "$python" -m zipfile -e "$wheel" "$site" || echo "$wheel could not be unpacked"
done
export PYTHONPATH="$PWD:$site${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1

exec "$python" bench/first_gpu_run.py --offline --python "$(command -v "$python")" \
  --saved "$saved" --carried "$carried" --limit-secs "$((${LIMIT_SECS:-500} - SECONDS + start))"
