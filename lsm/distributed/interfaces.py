"""The network interfaces of this machine: which leads to the other ranks of a job."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections.abc import Sequence

_SIOCGIFADDR = 0x8915  # linux/sockios.h: an interface's IPv4 address


def choose_interface(addresses: Sequence[str], rank: int, port: int) -> None:
    """Sets the network interface for Gloo, unless the user has: the one that leads to the store; on
    the machine of the store, the one that leads to the others.

    addresses: of each rank, from which its machine reaches the store, at ``port``.
    """
    if "GLOO_SOCKET_IFNAME" in os.environ:
        return
    address = addresses[rank]
    if _is_loopback(address):
        other = next((each for each in addresses if not _is_loopback(each)), None)
        address = source_address(other, port) if other else address
    interface = interface_of(address)
    if interface is not None:
        os.environ["GLOO_SOCKET_IFNAME"] = interface


def source_address(address: str, port: int) -> str:
    """This machine's source address of packets to ``address``; "" if unknown."""
    try:
        family, kind, _, _, target = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)  # sends nothing
            return probe.getsockname()[0]
    except OSError:
        return ""


def _is_loopback(address: str) -> bool:
    return address in ("", "::1") or address.startswith("127.")


def interface_of(address: str) -> str | None:
    """The interface that has ``address``: an IPv4 address that is its first, or any IPv6 one."""
    if ":" in address:
        packed = socket.inet_pton(socket.AF_INET6, address.partition("%")[0]).hex()
        with open("/proc/net/if_inet6") as file:
            return next((line.split()[5] for line in file if line.startswith(packed)), None)
    if address.startswith("127."):
        return "lo"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError:  # the interface has no IPv4 address
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return None
