#!/bin/sh
# Gets what a test guest takes: QEMU, installed where that is allowed, and a distribution's kernel,
# copied to FOLDER/vmlinuz without being installed. GUEST_KERNEL names another one.
# Says what is missing, and fails, where one of them cannot be had.
set -eu
folder=${1:?usage: get_guest.sh FOLDER}
install=$(dirname "$0")/../../cmake/install_packages.sh
mkdir -p "$folder"

command -v qemu-system-x86_64 >/dev/null || "$install" qemu-system-x86

if [ -n "${GUEST_KERNEL:-}" ]; then
  cp "$GUEST_KERNEL" "$folder/vmlinuz"
fi
[ -e "$folder/vmlinuz" ] && exit 0

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Kernels for virtual machines: Debian's, Ubuntu's. The package named stands for the newest of them.
get_package() {
  for name in linux-image-cloud-amd64 linux-image-virtual; do
    package=$(apt-cache depends "$name" 2>/dev/null |
      sed -n 's/^ *Depends: \(linux-image-[0-9].*\)$/\1/p' | head -n 1)
    [ -n "$package" ] || continue
    echo "getting: $package"
    (cd "$scratch" && apt-get download "$package" >/dev/null 2>&1) && return
  done
  return 1
}

# Again with a new index, where the one there is may be empty or name what has been replaced.
get_package || { "$install" --can && "$install" && get_package; } || {
  echo 'apt has no kernel to download; name one: GUEST_KERNEL=/boot/vmlinuz-...' >&2
  exit 1
}
dpkg -x "$scratch"/*.deb "$scratch"
cp "$scratch"/boot/vmlinuz-* "$folder/vmlinuz"
