"""The network interfaces of this machine, asked of the kernel."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from pathlib import Path

# ioctl numbers and flags of linux/sockios.h and linux/if.h.
_FLAGS, _ADDRESS, _MTU = 0x8913, 0x8915, 0x8921
_UP, _LOOPBACK, _RUNNING = 0x1, 0x8, 0x40
_LINK_LOCAL = 0x20  # the scope of such an address in /proc/net/if_inet6


@dataclass(frozen=True, slots=True)
class Interface:
    """One network interface.

    Attributes:
        addresses: IPv4 first, then IPv6 without those that hold on one link only.
        up: switched on, and with a cable.
        mtu: bytes of the largest packet; 0 if unknown.
    """

    name: str
    addresses: tuple[str, ...] = ()
    up: bool = True
    loopback: bool = False
    mtu: int = 1500


def interfaces() -> tuple[Interface, ...]:
    """All of them, in the kernel's order, which is the order in which gloo and NCCL look."""
    names = [name for _, name in socket.if_nameindex()]
    sixes = _ipv6()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        return tuple(_one(probe, name, sixes.get(name, ())) for name in names)


def _one(probe: socket.socket, name: str, sixes: tuple[str, ...]) -> Interface:
    flags = _ask(probe, name, _FLAGS)
    raw, mtu = _ask(probe, name, _ADDRESS), _ask(probe, name, _MTU)
    up = bool(flags) and struct.unpack_from("=H", flags)[0]
    own = (socket.inet_ntoa(raw[4:8]),) if raw else ()
    return Interface(
        name,
        own + sixes,
        up=bool(up & _UP and up & _RUNNING),
        loopback=bool(up & _LOOPBACK),
        mtu=struct.unpack_from("=i", mtu)[0] if mtu else 0,
    )


def _ask(probe: socket.socket, name: str, number: int) -> bytes:
    """What the kernel writes behind the name in ``struct ifreq``; empty if it refuses."""
    try:
        import fcntl

        answer = fcntl.ioctl(probe.fileno(), number, struct.pack("16s24x", name.encode()[:15]))
    except (ImportError, OSError):
        return b""
    return bytes(answer[16:])


def _ipv6() -> dict[str, tuple[str, ...]]:
    """The IPv6 addresses by interface."""
    found: dict[str, tuple[str, ...]] = {}
    try:
        lines = Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines()
    except OSError:
        return found
    for line in lines:
        address, _, _, scope, _, name = line.split()
        if int(scope, 16) != _LINK_LOCAL:
            text = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(address))
            found[name] = (*found.get(name, ()), text)
    return found
