"""Worlds that several processes start: a coordinator and its participants.

A *node* is one process that an engine or a user started, with the ranks that it starts. Node 0 has
rank 0 and is the coordinator: it starts each world, receives the values and outcomes of the other
nodes' ranks, judges the world, and ends it. The other nodes are participants::

    participant               coordinator
                          <-  StartWorld: does its digest match this node's work?
    Hello                 ->
    Sent ..., RankEnded   ->  judges when all have ended, or a node is lost
                          <-  StopWorld: the ranks must end
                          <-  StartWorld (the next world), or Exit (the exit code)

All nodes run the same command, so they know the target and arguments of the first world. A later
world has the same target: the coordinator sends the arguments that differ, and a participant
decodes them into the types in the target's annotations.
"""

from __future__ import annotations

import hashlib
import json
import select
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import fields, is_dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_type_hints

from distdemo.encoding import encode
from distdemo.errors import DistdemoError
from distdemo.joined import interfaces, messages
from distdemo.joined.control import Control
from distdemo.joined.engines import Placement
from distdemo.joined.messages import Gone, Hello, Message
from distdemo.joined.mpi import MpiAddress, MpiRendezvous, own_listener
from distdemo.launcher.local import World
from distdemo.launcher.rendezvous import LocalRanks, Rendezvous, StoreRendezvous
from distdemo.launcher.torch_import import load_torch
from distdemo.launcher.workers import StopReason
from distdemo.signals import Interrupts

if TYPE_CHECKING:
    from distdemo.launcher.records import WorldSpec

JOIN_TIMEOUT_S = 1800.0  # for all nodes to join, at most; torch's own limit
RANKS_EXIT_TIMEOUT_S = 5.0  # for ranks to exit, on several hosts and over MPI
POLL_S = 0.05  # between checks of a condition that no message announces


class JoinedWorld(World):
    """This process's part of a joined world; base class of both kinds of nodes."""

    def __init__(self, placement: Placement, command: str) -> None:
        super().__init__(self)  # it listens to the control process
        self.engine = placement.engine
        self._placement = placement
        self._command = command
        self._number = -1  # of the current or last world
        self._first_args: tuple[Any, ...] | None = None
        self._digest = ""
        self._timeout_s = 0.0
        self._control: Control | None = None
        self._selector = selectors.DefaultSelector()  # the control process may start later

    @property
    def stop_reason(self) -> StopReason | None:
        """Reason for which another node stops the world, or None."""
        return None

    def _join(self, spec: WorldSpec, target: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Connect to the other nodes before the first world.

        Raises:
            UsageError: The address of the store is not this machine's, or the port is taken.
        """
        if self._first_args is not None:
            return
        load_torch()
        self._first_args = args
        name = f"{target.__module__}.{target.__qualname__}"
        work = [name, *map(_canonical, args), spec.world_size, spec.backend, spec.device]
        self._digest = hashlib.sha256(json.dumps(work).encode()).hexdigest()[:16]
        self._timeout_s = min(spec.deadline, spec.stall or spec.deadline, JOIN_TIMEOUT_S)
        place = self._placement
        host = place.master
        listening = None
        if not host:  # mpiexec: node 0 chooses the address, and the ranks learn it over MPI
            if place.node != 0:
                return
            listening = own_listener(place)
            host, port = listening.getsockname()[:2]
            self._open(host, port, listening)
            return
        if not place.one_host:
            host = interfaces.name_for_others(host)
        elif place.hosted:
            host = "127.0.0.1"
        if place.node == 0 and not place.hosted:
            listening = interfaces.listening_socket(host, place.port)
            host = listening.getsockname()[0]
        self._open(host, place.port, listening)

    def refuse(self, error: DistdemoError) -> None:
        """Report to the coordinator that this node can't join the world."""

    def end(self, code: int) -> None:
        """End the command on this node, and on all nodes if this is the coordinator."""
        if self._control is not None:
            self._control.close()
        self._selector.close()

    def _begin(self, spec: WorldSpec, stack: ExitStack) -> tuple[LocalRanks, Sequence[int]]:
        """Begin a world; return the ranks that this node starts."""
        place = self._placement
        control = self._control
        rendezvous: Rendezvous
        interface = None
        if place.master and control is not None:
            interface = interfaces.interface_towards(control.host, control.port)
            prefix = f"{control.prefix}/world/{self._number}"
            rendezvous = StoreRendezvous(control.host, control.port, prefix)
        else:
            address = None if control is None else MpiAddress(control.host, control.port)
            rendezvous = MpiRendezvous(address)
        local_ranks = LocalRanks(
            place.ranks_of(place.node),
            rendezvous,
            place.local_rank,
            place.ranks_here,
            interface,
            RANKS_EXIT_TIMEOUT_S,
        )
        return local_ranks, [self.fileno(), *(() if control is None else [control.fileno()])]

    # ------------------------------------------------------------------------------- messages

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when a message has arrived."""
        return self._selector.fileno()  # epoll and kqueue have one

    def on_message(self) -> bool:
        """Handle the messages that have arrived, without waiting."""
        for node, report in () if self._control is None else self._control.receive():
            message: Message
            try:
                message = report if isinstance(report, Gone) else self._read(node, report)
            except ValueError as error:
                why = f"a message of node {node} can't be read: {error!s:.200}"
                message = Gone(why, "Check who else can reach the address and port of node 0.")
            self._on_message(node, message)
        return True

    def _open(self, host: str, port: int, listening: socket.socket | None) -> None:
        """Connect to the store at this address, or serve it."""
        place = self._placement
        self._control = Control(
            host=host, port=port, place=place, timeout_s=self._timeout_s, listening=listening
        )
        self._selector.register(self._control, selectors.EVENT_READ)
        if place.node:
            self._send(Hello(socket.gethostname()))

    def _read(self, node: int, data: bytes) -> Message:
        """Decode a message that a node sent.

        Raises:
            ValueError: It is no message, or one that the node can't have sent.
        """
        return messages.read(node, data)

    def _on_message(self, node: int, message: Message) -> None:
        """Handle a message. One that can't be read is `Gone`: its node is ignored from then on."""
        raise NotImplementedError

    def _send(self, message: Message) -> None:
        if self._control is not None:
            try:
                self._control.send(message)
            except ValueError as error:
                self._control.send(Gone(f"its message {message.kind!r} is too large: {error}"))

    def _wait(
        self, interrupts: Interrupts | None, until: Callable[[], object], seconds: float
    ) -> None:
        """Handle messages until a condition holds, a signal arrives or the time is over.

        Args:
            interrupts: Signals that end the wait.
            until: Condition, checked after each message and at least every `POLL_S`.
            seconds: Maximum wait.
        """
        deadline = time.monotonic() + seconds
        ready = select.poll()
        ready.register(self.fileno(), select.POLLIN)
        if interrupts is not None:
            ready.register(interrupts.fileno(), select.POLLIN)
        self.on_message()
        while not until() and (left := deadline - time.monotonic()) > 0:
            if interrupts is not None and interrupts.received is not None:
                return
            ready.poll(1000 * min(left, POLL_S))
            self.on_message()


def _canonical(value: Any) -> Any:
    """Return JSON data that is equal in all processes for equal arguments.

    Fields of a record that its repr leaves out may differ.
    """
    if is_dataclass(value):
        shown = [field.name for field in fields(value) if field.repr]
        return {name: _canonical(getattr(value, name)) for name in shown}
    try:
        return encode(value, decodable=True)
    except TypeError:  # compared by type
        return type(value).__qualname__


def annotation_of(target: Any, name: str) -> Any:
    """Return the type in the annotation of a target's parameter, or of its return value."""
    only = SimpleNamespace(__annotations__={name: target.__annotations__[name]})
    return get_type_hints(only, target.__globals__)[name]
