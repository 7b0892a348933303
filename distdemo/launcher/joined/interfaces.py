"""This machine's addresses, and a socket on one of them alone.

Nothing here sends a packet, but for the questions that the system's resolver asks about a name.
"""

from __future__ import annotations

import array
import errno
import re
import socket
import struct
from contextlib import suppress
from pathlib import Path

from distdemo.errors import UsageError
from distdemo.launcher.joined.resolving import numeric, resolved

_BACKLOG = 4096  # connections that may wait; the kernel takes less if it allows less
_SIOCGIFCONF = 0x8912  # linux/sockios.h: the IPv4 addresses of all interfaces, also second ones
_IFREQ = 40 if struct.calcsize("P") == 8 else 32  # bytes of a struct ifreq: a name, and a union
_ROOM = 1024  # addresses that are asked for


def addresses() -> dict[str, tuple[str, ...]]:
    """The addresses of each interface, IPv4 first; empty where the system does not tell."""
    found: dict[str, tuple[str, ...]] = {}
    for name, address in [*_ipv4(), *_ipv6()]:
        found[name] = (*found.get(name, ()), address)
    return found


def interface_of(address: str) -> str | None:
    """The interface that has this address; None: none has, or the system does not tell."""
    wanted = numeric(address)
    if wanted is None:
        return None
    known = {numeric(each): name for name, own in addresses().items() for each in own}
    if wanted.is_loopback and wanted not in known:  # all of 127.0.0.0/8 is on the one interface
        return known.get(numeric("127.0.0.1"))
    return known.get(wanted)


def address_towards(host: str, port: int) -> str:
    """The local address from which this system would reach the host. Nothing is sent.

    Raises:
        UsageError: the name does not resolve, or no route leads there.
    """
    reason = ""
    for family, address in resolved(host, port or 9):  # any port but 0 does for asking
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(address)
                return str(probe.getsockname()[0])
        except OSError as error:
            reason = error.strerror or str(error)
    raise UsageError(
        f"No way leads from this machine to {host}.",
        f"The system says: {reason}.",
        f"Look at `ip route get {host}`, and whether the network is up.",
    )


def is_loopback(host: str) -> bool:
    """Whether this name or address means this machine alone; a name is resolved for it.

    A name that does not resolve within a few seconds means no machine, so not this one.
    """
    if host.rstrip(".").lower() == "localhost":
        return True
    try:
        found = resolved(host, 0)
    except UsageError:
        return False
    numbers = [numeric(str(address[0])) for _, address in found]
    return all(number is not None and number.is_loopback for number in numbers)


def name_for_others(host: str) -> str:
    """The host as others reach it: itself, unless it is a name of this machine for loopback.

    Debian's installer writes the own name into /etc/hosts as 127.0.1.1, where no other host comes
    in. Then it is the address from which this machine would reach other networks; without such a
    route it is the only address that it has. ``localhost`` and written addresses stay as they are.

    Raises:
        UsageError: this machine has several addresses, and none is on the way out.
    """
    if numeric(host) is not None or host.rstrip(".").lower() == "localhost":
        return host
    if not is_loopback(host):
        return host
    with suppress(UsageError):
        return address_towards("192.0.2.1", 0)  # of a network that is only for examples
    own = _reachable()
    if len(own) > 1:
        raise UsageError(
            f"{host} is this machine, but which of its addresses the others reach is open.",
            f"Its name resolves to loopback here; it has {', '.join(own)}.",
            "Give the address instead of the name, on all hosts alike.",
        )
    return own[0] if own else host


def listening_socket(address: str, port: int) -> socket.socket:
    """A TCP socket that listens on this one address of this machine, and on no other.

    Args:
        address: numeric, or a name that resolves to an address of this machine.
        port: 0 takes a free one.

    Raises:
        UsageError: the address is not of this machine or means all of them, or the port is taken.
    """
    family, where = resolved(address, port)[0]
    number = numeric(str(where[0]))
    if number is not None and number.is_unspecified:
        raise UsageError(
            f"{address} stands for every address of this machine.",
            "A port on it could be reached from every network, and nothing guards it.",
            f"Name the one that the other hosts reach: {_own_addresses()}.",
        )
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(where)
        made.listen(_BACKLOG)
    except OSError as error:
        made.close()
        raise _refusal(address, port, error) from error
    return made


def parse_address(text: str) -> tuple[str, int | None]:
    """Host and port of ``10.0.0.1:29500``, ``[fe80::1]:29500`` or ``host``.

    An IPv6 address without brackets has no port: its colons are its own.

    Returns:
        The host without brackets, and the port; None if none is given. 0 leaves the choice to the
        system, where the caller allows it.

    Raises:
        UsageError: the text is no such thing.
    """
    found = re.fullmatch(r"(?:\[([^][]+)\]|([^][:]+))(?::([0-9]{1,5}))?", text.strip())
    if found is None and numeric(text) is not None:
        return text.strip(), None
    host = found and (found[1] or found[2])
    port = int(found[3]) if found and found[3] else None
    if found is None or not host or not _is_host(host, bracketed=bool(found[1])):
        raise UsageError(
            f"{text[:80]!r} is no address.",
            "An address is a host, or a host and a port of it.",
            "Write 10.0.0.1:29500, a name such as node1:29500, or [fe80::1]:29500.",
        )
    if port is not None and port > 65535:
        raise UsageError(f"There is no port {port}.", "Ports go up to 65535.", f"Try {host}:29500.")
    return host, port


# ------------------------------------------------------------------------------------- the parts


def _is_host(text: str, *, bracketed: bool) -> bool:
    number = numeric(text)
    if bracketed:
        return number is not None and number.version == 6
    return number is not None or re.fullmatch(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*)", text) is not None


def _refusal(address: str, port: int, error: OSError) -> UsageError:
    """Why a socket could not be bound, for people."""
    if error.errno == errno.EADDRNOTAVAIL:
        return UsageError(
            f"This machine does not have the address {address}.",
            "The host that the others meet at must listen on an address of its own.",
            f"It has {_own_addresses()}. Or start this one as another node.",
        )
    if error.errno == errno.EADDRINUSE:
        holder = _holder(port)
        return UsageError(
            f"Port {port} of {address} is taken.",
            f"{holder or 'Another program'} listens there.",
            "Name another port on all hosts alike, or end that program.",
        )
    return UsageError(
        f"This program can't listen on {address}, port {port}.",
        f"The system says: {error.strerror or error}.",
        "Try a port above 1023, such as 29500.",
    )


def _own_addresses() -> str:
    """Those of this machine that others could reach, for people."""
    return ", ".join(_reachable()) or "none but loopback"


def _reachable() -> list[str]:
    """The addresses of this machine that others could reach."""
    known = [(each, numeric(each)) for own in addresses().values() for each in own]
    return [text for text, n in known if n and not n.is_loopback and not n.is_link_local]


def _holder(port: int) -> str:
    """The program that listens on this port, if this user may know; empty if not."""
    inodes = {
        line[9] for line in _tcp_lines() if line[3] == "0A" and line[1].endswith(f":{port:04X}")
    }
    for entry in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # it has ended meanwhile, or is another user's
            target = str(entry.readlink())
            if target.startswith("socket:[") and target[8:-1] in inodes:
                process = entry.parents[1]
                name = (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
                return f"{name} (process {process.name})"
    return ""


def _tcp_lines() -> list[list[str]]:
    """The kernel's tables of TCP sockets: address and port, state and inode are words 1, 3, 9."""
    lines: list[str] = []
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            lines += Path(f"/proc/self/net/{table}").read_text(encoding="ascii").splitlines()[1:]
    return [line.split() for line in lines]


# ----------------------------------------------------------------------------- asking the kernel


def _ipv4() -> list[tuple[str, str]]:
    """Interface and IPv4 address, from ``SIOCGIFCONF``, which also tells second addresses."""
    room = array.array("B", bytes(_ROOM * _IFREQ))
    question = struct.pack("iP", room.buffer_info()[1], room.buffer_info()[0])
    try:
        import fcntl

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFCONF, question)
    except (ImportError, OSError):
        return _from_name()
    told = struct.unpack("iP", answer)[0]
    entries = [room[start : start + _IFREQ].tobytes() for start in range(0, told, _IFREQ)]
    return [
        (entry[:16].partition(b"\0")[0].decode(), socket.inet_ntoa(entry[20:24]))
        for entry in entries
    ]


def _from_name() -> list[tuple[str, str]]:
    """What the standard library tells elsewhere: the addresses of this machine's own name."""
    with suppress(OSError):
        return [("", address) for address in socket.gethostbyname_ex(socket.gethostname())[2]]
    return []


def _ipv6() -> list[tuple[str, str]]:
    """Interface and IPv6 address, from Linux's table of them."""
    try:
        lines = Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    words = [line.split() for line in lines]
    return [(w[5], socket.inet_ntop(socket.AF_INET6, bytes.fromhex(w[0]))) for w in words]
