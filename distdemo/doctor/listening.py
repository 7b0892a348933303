"""``doctor --listen``: answers another machine's ``doctor --peer``, one visitor at a time.

It measures and says versions, and does nothing else: no name that it is sent is looked up, no
file touched, nothing executed. There is no authentication: whoever reaches the port may ask.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from distdemo.doctor.network import is_loopback
from distdemo.doctor.records import ListenReport, Visit
from distdemo.doctor.system import interfaces, resolve
from distdemo.doctor.wire import (
    HOSTS_PATIENCE,
    PROTOCOL,
    Line,
    Message,
    ProtocolError,
    counted,
    reason,
)
from distdemo.errors import UsageError
from distdemo.launcher.joined.interfaces import address_towards
from distdemo.versions import versions

VISIT = 30.0  # seconds that a visitor may stay
BACK = 2.0  # seconds that the way back to a visitor gets
MOST_VISITS = 1000  # remembered; later ones are served all the same
OUTSIDE = ("203.0.113.1", "2001:db8::1")
"""Addresses that nobody has (RFC 5737, RFC 3849): a route to them is the default route."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where to listen, and why there."""

    address: str
    port: int
    reason: str


def default_place(port: int, host: str) -> Place:
    """The address that the way out has; else the hostname's, an interface's, or loopback.

    Never every address: who wants that names it.
    """
    for outside in OUTSIDE:
        with suppress(UsageError):  # no route leads there
            address = address_towards(outside, 0)
            if not is_loopback(address):
                return Place(address, port, "the address of the default route")
    for address in resolve(host).found:
        if not is_loopback(address):
            return Place(address, port, f"the address of {host}")
    for interface in interfaces():
        if interface.up and interface.addresses and not interface.loopback:
            return Place(interface.addresses[0], port, f"the address of {interface.name}")
    return Place("127.0.0.1", port, "loopback, because there is no other; nobody else reaches it")


def open_server(place: Place) -> socket.socket:
    """A socket that listens there.

    Raises:
        UsageError: that can't be done.
    """
    family = socket.AF_INET6 if ":" in place.address else socket.AF_INET
    try:
        return socket.create_server((place.address, place.port), family=family, backlog=4)
    except OSError as error:
        raise UsageError(
            f"--listen can't open port {place.port} of {place.address}.",
            f"{error.strerror or error}.",
            "Name an address of this machine and a free port, or port 0 for any.",
        ) from error


@dataclass(slots=True)
class Host:
    """Serves visitors until its time is over; what it has served stays readable meanwhile.

    Attributes:
        visits: those that have left, in order.
    """

    server: socket.socket
    place: Place
    name: str
    visits: list[Visit] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)

    def serve(self, seconds: float) -> None:
        """One visitor after the other, for so many seconds."""
        until = self._began + seconds
        while (left := until - time.monotonic()) > 0:
            self.server.settimeout(left)
            try:
                connection, address = self.server.accept()
            except TimeoutError:
                return
            except ConnectionError:  # it left before it was let in
                continue
            with connection:
                visit = self._receive(connection, str(address[0]), min(VISIT, left))
            if len(self.visits) < MOST_VISITS:
                self.visits.append(visit)

    def report(self, *, interrupted: bool = False) -> ListenReport:
        """What was served so far."""
        return ListenReport(
            self.place.address,
            self.place.port,
            self.place.reason,
            time.monotonic() - self._began,
            tuple(self.visits),
            versions(),
            interrupted,
        )

    def _receive(self, connection: socket.socket, address: str, seconds: float) -> Visit:
        began = time.monotonic()
        session = Session(Line(connection, seconds, HOSTS_PATIENCE), connection, address, self.name)
        try:
            session.run()
            end = "done"
        except (OSError, ProtocolError) as error:
            end = reason(error)
        took = time.monotonic() - began
        return Visit(address, session.visitor, took, session.received, session.sent, end)


@dataclass(slots=True)
class Session:
    """One visit."""

    line: Line
    connection: socket.socket
    address: str
    name: str
    visitor: str = ""
    received: int = 0
    sent: int = 0

    def run(self) -> None:
        """Answer until the visitor says goodbye.

        Raises:
            ProtocolError: it asks for what there is not.
            OSError: it is gone.
        """
        hello = self.line.hear()
        if hello.get("doctor") != PROTOCOL:
            raise ProtocolError("no doctor of this protocol")
        self.visitor = str(hello.get("host", ""))[:64]
        self.line.say(
            {
                "doctor": PROTOCOL,
                "versions": versions(),
                "host": self.name,
                "pid": os.getpid(),
                "you": self.address,
                "me": str(self.connection.getsockname()[0]),
            }
        )
        answers: Mapping[str, Callable[[Message], None]] = {
            "echo": lambda _: self.line.say({"time": time.time()}),
            "take": self._take,
            "give": self._give,
            "call": self._call,
        }
        while (message := self.line.hear()).get("do") != "bye":
            answers.get(str(message.get("do")), partial(_refuse))(message)
        self.line.say({})

    def _take(self, message: Message) -> None:
        count = counted(message)
        self.line.take(count)
        self.received += count
        self.line.say({"took": count})

    def _give(self, message: Message) -> None:
        count = counted(message)
        self.line.give(count)
        self.sent += count

    def _call(self, message: Message) -> None:
        """Connect to the visitor's own address, no other, and say whether that went well."""
        port = message.get("port")
        if type(port) is not int or not 0 < port < 65536:
            raise ProtocolError("no port to call")
        try:
            with socket.create_connection((self.address, port), BACK):
                self.line.say({"error": ""})
        except TimeoutError:
            self.line.say({"error": f"no answer within {BACK:g} s"})
        except OSError as error:
            self.line.say({"error": error.strerror or str(error)})


def _refuse(message: Message) -> None:
    raise ProtocolError(f"an unknown question, {str(message.get('do'))[:40]!r}")
