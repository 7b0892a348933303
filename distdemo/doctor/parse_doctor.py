"""From the flags of ``doctor`` to a frozen request; needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

from distdemo.cli.parse import Flags, View, parse_seconds, parse_view, unknown
from distdemo.doctor.records import TOPICS
from distdemo.errors import UsageError
from distdemo.launcher.joined.interfaces import parse_address

LISTENS = 60.0  # seconds
LONGEST = 3600.0  # seconds: a port that is open without authentication is closed again
ALONE = {
    "peer": ("--peer", "One side asks and the other answers."),
    "only_topics": ("--only", "--listen looks at nothing here."),
    "no_world": ("--no-world", "--listen starts no world."),
}
LIKE = {
    "--peer": "Try --peer 10.0.0.2:29600, or --peer [fd00::2]:29600.",
    "--listen": "Try --listen 29600, which takes the address of the default route.",
}
"""What to try instead."""


@dataclass(frozen=True, slots=True)
class DoctorRequest:
    """What to do.

    Attributes:
        topics: of ``findings.TOPICS``, in their order.
        world: try a world.
        peer: the host and port to visit.
        listen: the address (empty: chosen) and port to listen on.
        seconds: for so long.
    """

    view: View
    topics: tuple[str, ...]
    world: bool
    peer: tuple[str, int] | None
    listen: tuple[str, int] | None
    seconds: float


def parse_doctor(flags: Flags) -> DoctorRequest:
    """The request.

    Raises:
        UsageError: the flags make none.
    """
    view = parse_view({**flags, "quiet": flags["problems"]}, 1)
    listen, peer = flags["listen"], flags["peer"]
    if listen is not None:
        _refuse_beside_listen(flags)
    elif flags["listen_seconds"] is not None:
        raise UsageError(
            "--for means nothing without --listen.",
            "It says how long the port is open.",
            "Add --listen 29600, or leave it out.",
        )
    topics = _topics(flags["only_topics"])
    if peer is None and topics == ("peer",):
        raise UsageError(
            "--only peer needs --peer.",
            "There is no other machine to test.",
            "Add --peer HOST:PORT.",
        )
    return DoctorRequest(
        view=view,
        topics=topics,
        world=not flags["no_world"],
        peer=None if peer is None else _peer(peer),
        listen=None if listen is None else _place(listen),
        seconds=_seconds(flags["listen_seconds"]),
    )


def _refuse_beside_listen(flags: Flags) -> None:
    for name, (flag, why) in ALONE.items():
        if flags[name]:
            raise UsageError(
                f"{flag} and --listen don't go together.", why, f"Leave out {flag}, or --listen."
            )


def _topics(given: list[str] | None) -> tuple[str, ...]:
    """Those that were named, in the order of ``TOPICS``; all if none was."""
    named = {name.lower() for name in given or ()}
    for name in sorted(named - set(TOPICS)):
        raise unknown("topic", list(TOPICS), name, "--only")
    return tuple(topic for topic in TOPICS if not named or topic in named)


def _peer(text: str) -> tuple[str, int]:
    host, port = _host_and_port("--peer", text)
    if port == 0:
        raise UsageError(
            f"--peer {text}: nobody listens on port 0.",
            "doctor --listen prints the port that it has.",
            "Try --peer 10.0.0.2:29600.",
        )
    return host, port


def _place(text: str) -> tuple[str, int]:
    """The address, empty where a port alone is given, and the port."""
    if not (text.isascii() and text.isdigit()):
        return _host_and_port("--listen", text)
    if len(text) > 5 or int(text) > 65535:
        raise UsageError(
            f"--listen {text[:40]}: there is no such port.",
            "Ports go up to 65535.",
            LIKE["--listen"],
        )
    return "", int(text)


def _host_and_port(flag: str, text: str) -> tuple[str, int]:
    """Those of ``10.0.0.2:29600`` or ``[fd00::2]:29600``.

    Raises:
        UsageError: the text is no such thing, or lacks the port.
    """
    try:
        host, port = parse_address(text)
    except UsageError as error:
        raise UsageError(f"{flag}: {error.what}", error.why, LIKE[flag]) from error
    if port is None:
        bare = f"[{host}]" if ":" in host else host
        raise UsageError(
            f"{flag} {text}: the port is missing.",
            "It is a number from 1 to 65535; before it IPv6 goes in brackets.",
            f"Try {flag} {bare}:29600.",
        )
    return host, port


def _seconds(text: str | None) -> float:
    """More than 0, at most an hour."""
    if text is None:
        return LISTENS
    refusal = UsageError(
        f"--for {text}: that is no time to listen.",
        f"The port is open for more than 0 s and at most {LONGEST:g} s.",
        "Try --for 60.",
    )
    return parse_seconds(text, LONGEST, refusal)
