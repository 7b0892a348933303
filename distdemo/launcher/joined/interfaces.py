"""This machine's addresses, and a socket that listens on one of them alone.

Nothing here sends a packet, but for the questions that the system's resolver asks about a name.
"""

from __future__ import annotations

import array
import fcntl
import ipaddress
import re
import socket
import struct
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from distdemo.errors import UsageError

PATIENCE = 5.0  # seconds that a name has to resolve within

BACKLOG = 4096  # connections that may wait; the kernel takes less if it allows less
_SIOCGIFCONF = 0x8912  # linux/sockios.h: the IPv4 addresses of all interfaces, also second ones
_IFREQ = 40 if struct.calcsize("P") == 8 else 32  # bytes of a struct ifreq: a name, and a union
_ROOM = 1024  # addresses that are asked for


# ----------------------------------------------------------------------------- names and addresses


def parse_address(text: str) -> tuple[str, int | None]:
    """Host and port of ``10.0.0.1:29500``, ``[fe80::1]:29500`` or ``host``.

    An IPv6 address without brackets has no port: its colons are its own.

    Returns:
        The host without brackets, and the port; None if none is given. 0 leaves the choice to the
        system, where the caller allows it.

    Raises:
        UsageError: the text is not such a thing.
    """
    text = text.strip()
    if numeric(text) is not None:
        return text, None
    found = re.fullmatch(r"(?:\[([^][]+)\]|([^][:]+))(?::([0-9]{1,5}))?", text)
    inner, host, port = found.groups() if found else (None, "", None)
    number = numeric(inner or host)
    named = re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", host or "")
    valid = (number is not None and number.version == 6) if inner else (number or named)
    if not valid or int(port or 0) > 65535:
        raise UsageError(
            f"{text[:80]!r} is not an address.",
            "An address is a host, or a host and a port up to 65535.",
            "Write 10.0.0.1:29500, a name such as node1:29500, or [fe80::1]:29500.",
        )
    return inner or host, int(port) if port else None


def numeric(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that is written here, without its zone; None if it is a name."""
    try:
        return ipaddress.ip_address(text.strip().partition("%")[0])
    except ValueError:
        return None


def resolved(host: str, port: int) -> list[tuple[socket.AddressFamily, Any]]:
    """The socket addresses of a name or address, the system's first choice first.

    Returns:
        Family, and the address as ``bind`` and ``connect`` take it.

    Raises:
        UsageError: the name does not resolve, or nothing answers in time.
    """
    found: list[tuple[socket.AddressFamily, Any]] = []
    reason = f"no answer within {PATIENCE:g} s"

    def ask() -> None:
        nonlocal reason
        try:
            answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.extend((each[0], each[4]) for each in answers)
        except (OSError, UnicodeError) as error:  # a label of more than 63 letters is the latter
            reason = str(error)

    if numeric(host) is not None:
        ask()  # at once, and without a thread: ranks could not be forked while one is there
    else:
        asking = threading.Thread(target=ask, daemon=True)  # the resolver can't be interrupted
        asking.start()
        asking.join(PATIENCE)
    if not found:
        raise UsageError(
            f"The host {host} can't be found.",
            f"Its name does not resolve on this machine: {reason}.",
            "Give its address instead, or add the name to /etc/hosts.",
        )
    return found


def is_loopback(host: str) -> bool:
    """Whether this name or address means this machine alone; a name is resolved for it.

    A name that does not resolve means no machine, so not this one.
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
    if numeric(host) or host.rstrip(".").lower() == "localhost" or not is_loopback(host):
        return host
    with suppress(UsageError):
        return address_towards("192.0.2.1", 0)  # of a network that is only for examples
    own = reachable_addresses()
    if len(own) > 1:
        raise UsageError(
            f"{host} is this machine, but which of its addresses the others reach is open.",
            f"Its name resolves to loopback here; it has {', '.join(own)}.",
            "Give the address instead of the name, on all hosts alike.",
        )
    return own[0] if own else host


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
        f"This machine has no route to {host}.",
        f"The system says: {reason}.",
        f"Look at `ip route get {host}`, and whether the network is up.",
    )


# -------------------------------------------------------------------------------------- listening


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
    own = ", ".join(reachable_addresses()) or "none but loopback"
    if number is not None and number.is_unspecified:
        raise UsageError(
            f"{address} stands for every address of this machine.",
            "A port on it could be reached from every network, and nothing guards it.",
            f"Name the one that the other hosts reach: {own}.",
        )
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(where)
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        raise UsageError(
            f"This program can't listen on {address}, port {port}.",
            f"{error.strerror or error}. This machine has {own}.",
            "Start node 0 on the machine with that address, and on a free port above 1023.",
        ) from error
    return made


# ------------------------------------------------------------------------------ asking the kernel


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


def reachable_addresses() -> list[str]:
    """The addresses of this machine that others could reach."""
    known = [(each, numeric(each)) for own in addresses().values() for each in own]
    return [text for text, n in known if n and not n.is_loopback and not n.is_link_local]


def _ipv4() -> list[tuple[str, str]]:
    """Interface and IPv4 address, from ``SIOCGIFCONF``, which also tells second addresses.

    Elsewhere what the standard library tells: the addresses of this machine's own name.
    """
    room = array.array("B", bytes(_ROOM * _IFREQ))
    question = struct.pack("iP", room.buffer_info()[1], room.buffer_info()[0])
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFCONF, question)
    except OSError:
        with suppress(OSError):
            return [("", each) for each in socket.gethostbyname_ex(socket.gethostname())[2]]
        return []
    told = struct.unpack("iP", answer)[0]
    entries = [room[start : start + _IFREQ].tobytes() for start in range(0, told, _IFREQ)]
    return [
        (entry[:16].partition(b"\0")[0].decode(), socket.inet_ntoa(entry[20:24]))
        for entry in entries
    ]


def _ipv6() -> list[tuple[str, str]]:
    """Interface and IPv6 address, from Linux's table of them."""
    try:
        lines = Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    words = [line.split() for line in lines]
    return [(w[5], socket.inet_ntop(socket.AF_INET6, bytes.fromhex(w[0]))) for w in words]
