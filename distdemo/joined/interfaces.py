"""Addresses of this machine, and sockets that listen on one of them only.

Only the system's resolver sends packets, to look up names.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from contextlib import suppress
from typing import Any

from distdemo.errors import UsageError
from distdemo.platform import system

BACKLOG = 4096  # pending connections; the kernel may lower it


# ----------------------------------------------------------------------------- names and addresses


def parse_address(text: str) -> tuple[str, int | None]:
    """Parse ``10.0.0.1:29500``, ``[fe80::1]:29500`` or ``host``.

    An IPv6 address without brackets has no port.

    Returns:
        The host without brackets, and the port or None.

    Raises:
        UsageError: The text is not an address.
    """
    text = text.strip()
    if numeric(text) is not None:
        return text, None
    match = re.fullmatch(r"(?:\[([^][]+)\]|([^][:]+))(?::([0-9]{1,5}))?", text)
    inner, host, port = match.groups() if match else (None, "", None)
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
    """Parse a numeric address and drop its zone; return None if the text is a name."""
    try:
        return ipaddress.ip_address(text.strip().partition("%")[0])
    except ValueError:
        return None


def resolved(host: str, port: int) -> list[tuple[socket.AddressFamily, Any]]:
    """Resolve a name or address, the system's first choice first.

    Returns:
        Families and addresses, in the form for ``bind`` and ``connect``.

    Raises:
        UsageError: The name doesn't resolve.
    """
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # UnicodeError: a label is longer than 63 letters
        raise UsageError(
            f"The host {host} can't be found.",
            f"Its name does not resolve on this machine: {error}.",
            "Give its address instead, or add the name to /etc/hosts.",
        ) from error
    return [(family, address) for family, _, _, _, address in answers]


def is_loopback(host: str) -> bool:
    """Return True if this name or address is a loopback address; False if it doesn't resolve."""
    if host.rstrip(".").lower() == "localhost":
        return True
    try:
        places = resolved(host, 0)
    except UsageError:
        return False
    numbers = [numeric(str(address[0])) for _, address in places]
    return all(number is not None and number.is_loopback for number in numbers)


def name_for_others(host: str) -> str:
    """Return the name or address by which other hosts reach this host.

    Debian's installer maps a machine's own name to 127.0.1.1 in /etc/hosts, which no other host can
    reach. In that case return the address that this machine uses towards other networks, or else
    its first one. ``localhost`` and numeric addresses are returned as they are.
    """
    if numeric(host) or host.rstrip(".").lower() == "localhost" or not is_loopback(host):
        return host
    with suppress(UsageError):
        return address_towards("192.0.2.1", 0)  # reserved for documentation
    return next(iter(reachable_addresses()), host)


def address_towards(host: str, port: int) -> str:
    """Return the local address of this system's route to the host; send nothing.

    Raises:
        UsageError: The name doesn't resolve, or there is no route.
    """
    reason = ""
    for family, address in resolved(host, port or 9):  # any port except 0
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(address)
                return str(probe.getsockname()[0])
        except OSError as error:
            reason = error.strerror or str(error)
    raise UsageError(
        f"This machine has no route to {host}.",
        f"The system says: {reason}.",
        f"Check `ip route get {host}`, and that the network is up.",
    )


# -------------------------------------------------------------------------------------- listening


def listening_socket(address: str, port: int) -> socket.socket:
    """Return a TCP socket that listens on one address of this machine.

    Args:
        address: Numeric address or host name.
        port: Port; 0 for a free one.

    Raises:
        UsageError: The address isn't this machine's or means all of them, or the port is
            taken.
    """
    family, where = resolved(address, port)[0]
    number = numeric(str(where[0]))
    own = ", ".join(reachable_addresses()) or "none but loopback"
    if number is not None and number.is_unspecified:
        raise UsageError(
            f"{address} means every address of this machine.",
            "A port on it could be reached from every network, without a password.",
            f"Use the one that the other hosts reach: {own}.",
        )
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise UsageError(
            f"Can't listen on {address}, port {port}.",
            f"{error.strerror or error}. This machine has {own}.",
            "Only one process is node 0. Start it on the machine with that address, and on a free "
            "port above 1023.",
        ) from error
    return listener


# -------------------------------------------------------------------------------------- interfaces


def addresses() -> dict[str, tuple[str, ...]]:
    """Return the addresses of each interface, IPv4 first; empty if the system can't list them."""
    known: dict[str, tuple[str, ...]] = {}
    for name, address in system.ip_addresses():
        known[name] = (*known.get(name, ()), address)
    return known


def interface_towards(host: str, port: int) -> str:
    """Return the interface of the route to this host; empty for loopback or if unknown."""
    own = numeric(address_towards(host, port))
    if own is None or own.is_loopback:
        return ""
    names = (name for name, texts in addresses().items() if own in map(numeric, texts))
    return next(names, "")


def reachable_addresses() -> list[str]:
    """Return the addresses of this machine that other hosts could reach."""
    known = [(text, numeric(text)) for texts in addresses().values() for text in texts]
    return [text for text, n in known if n and not n.is_loopback and not n.is_link_local]
