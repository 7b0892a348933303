"""Names of hosts into addresses, within a few seconds."""

from __future__ import annotations

import ipaddress
import socket
import threading
from typing import Any

from distdemo.errors import UsageError

PATIENCE = 5.0  # seconds that a name has to resolve within

Found = tuple[socket.AddressFamily, Any]  # the second as ``bind`` and ``connect`` take it


def resolved(host: str, port: int) -> list[Found]:
    """The socket addresses that a name or address stands for, the system's first choice first.

    Raises:
        UsageError: it stands for nothing, or nobody answers.
    """
    if numeric(host) is not None:
        return _looked_up(host, port)
    answers: list[list[Found] | UsageError] = []

    def ask() -> None:
        try:
            answers.append(_looked_up(host, port))
        except UsageError as error:
            answers.append(error)

    asking = threading.Thread(target=ask, daemon=True)  # the resolver can't be interrupted
    asking.start()
    asking.join(PATIENCE)  # whoever forks next must not find a second thread
    if not answers:
        raise _unresolved(host, f"nobody answered within {PATIENCE:g} s")
    if isinstance(answers[0], UsageError):
        raise answers[0]
    return answers[0]


def numeric(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that is written here, without its zone; None if it is a name."""
    try:
        return ipaddress.ip_address(text.strip().partition("%")[0])
    except ValueError:
        return None


def _looked_up(host: str, port: int) -> list[Found]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # a label of more than 63 letters is the latter
        raise _unresolved(host, getattr(error, "strerror", None) or str(error)) from error
    return [(each[0], each[4]) for each in found]


def _unresolved(host: str, reason: str) -> UsageError:
    return UsageError(
        f"The host {host} can't be found.",
        f"Its name does not resolve on this machine: {reason}.",
        "Give its address instead, or add the name to /etc/hosts.",
    )
