#!/bin/sh
# Installs Debian packages where that is allowed, and says which are missing where it is not:
# install_packages.sh [PACKAGE...]. Without packages it renews the index alone; --can asks whether it
# is allowed.
# apt-get fails where another one runs, so each waits for the others, at most ten minutes.
set -eu
can() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }
if [ "${1:-}" = --can ]; then
  can
  exit
fi
if ! can; then
  echo "missing: $*; install with: sudo apt-get install $*" >&2
  exit 1
fi
[ $# = 0 ] || echo "installing: $*"
export DEBIAN_FRONTEND=noninteractive
errors=$(mktemp)
trap 'rm -f "$errors"' EXIT

# apt-get waits for dpkg's lock by itself, but not for those of its index and of its archives.
apt() {
  for _ in $(seq 120); do
    apt-get -o DPkg::Lock::Timeout=600 "$@" >/dev/null 2>"$errors" && return
    grep -q 'Could not get lock' "$errors" || break
    sleep 5
  done
  cat "$errors" >&2
  return 1
}

apt update
[ $# = 0 ] || apt install -y --no-install-recommends "$@"
