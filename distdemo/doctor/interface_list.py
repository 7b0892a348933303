"""The network interfaces of this machine, asked of the kernel."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address

from distdemo.launcher.joined.interfaces import addresses

# ioctl numbers and flags of linux/sockios.h and linux/if.h.
_FLAGS, _MTU = 0x8913, 0x8921
_UP, _LOOPBACK, _RUNNING = 0x1, 0x8, 0x40


@dataclass(frozen=True, slots=True)
class Interface:
    """One network interface.

    Attributes:
        addresses: IPv4 first, second ones too; then IPv6 without those that hold on one link only.
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
    known = addresses()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        return tuple(_one(probe, name, _own(name, known)) for name in names)


def _own(name: str, known: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The addresses of an interface, also those under a label of it (``eth0:1``)."""
    found = [each for label in known if label.partition(":")[0] == name for each in known[label]]
    sixes = [each for each in found if ":" in each and not IPv6Address(each).is_link_local]
    return (*(each for each in found if ":" not in each), *sixes)


def _one(probe: socket.socket, name: str, own: tuple[str, ...]) -> Interface:
    flags, mtu = _ask(probe, name, _FLAGS), _ask(probe, name, _MTU)
    up = bool(flags) and struct.unpack_from("=H", flags)[0]
    return Interface(
        name,
        own,
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
