"""A process that was started from outside takes part in a world: as node 0, or as another node.

Node 0 (:class:`NodeZero`) listens for the others, hears how their ranks fare, judges the world and
says when it is over. Another node (:class:`OtherNode`) runs its ranks, reports, and does as node 0
says. Both hear each other in the same loop in which they watch their own ranks::

    other node                          node 0
    Hello (what it was asked to do) ->  the same as here?
                                    <-  StartWorld (where the ranks meet), or Refused
    RankTold, ... NodeEnded         ->  judges when all have ended, or one is lost
                                    <-  Leave: its ranks may go
                                    <-  StartWorld (the next world), or Exit (the exit code)
"""

from __future__ import annotations

import os
import select
import selectors
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from distdemo.errors import DistdemoError, LonelyError
from distdemo.launcher import verdict
from distdemo.launcher.interrupts import Interrupts
from distdemo.launcher.joined import interfaces
from distdemo.launcher.joined.meeting import (
    Agreed,
    MpiRendezvous,
    TcpRendezvous,
    check_mpi4py,
    mpi_offers,
    shared_segments,
)
from distdemo.launcher.joined.messages import (
    PAUSE,
    Connection,
    Exit,
    FromNodeZero,
    Hello,
    Leave,
    NodeEnded,
    RankTold,
    Refused,
    StartWorld,
    ToNodeZero,
    connect,
    pack,
    patience_within,
    unpack,
)
from distdemo.launcher.joined.nodes import Node, Nodes
from distdemo.launcher.joined.placement import Placement, Request
from distdemo.launcher.limits import open_files
from distdemo.launcher.records import Died, Lost, Outcome, Raised, WorldReport
from distdemo.launcher.rendezvous import LocalRanks, Rendezvous
from distdemo.launcher.start_method import choose
from distdemo.launcher.torch_import import load_torch
from distdemo.launcher.worker import Hear, Look
from distdemo.launcher.workers import LOOK, SETTLE, End, Workers

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

    from distdemo.launcher.records import WorldSpec

GRACE = 3.0  # seconds that other nodes get to say how their ranks ended, once they have to stop
LAST_WORDS = 0.7  # seconds that node 0, told to stop, waits for what the others know
VERDICT = 20.0  # seconds beyond a world's deadline that node 0 may take for its verdict
MET_NOBODY = 2.0  # seconds for node 0 to find a fault of all ranks, and to say so
FAREWELL = 2.0  # seconds for the others to hear node 0's last word
RANKS_FAREWELL = 5.0  # seconds for ranks to end together, on several hosts and over MPI

Resume = Callable[[Any], tuple[Callable[..., Any], tuple[Any, ...]]]
"""From the order for a world after the first to the function to run and its arguments."""
Relay = Callable[[], Iterable[tuple[int, Any]]]
"""On another node: values for node 0 to hear, each with the rank that it is of."""


class NodeZeroLostError(LonelyError):
    """Node 0 is gone or can't be reached: nobody will judge this world."""


class UnheardError(LonelyError):
    """A rank of this node failed before the other nodes could be told anything.

    The others have to be ended by other means: see ``meeting.abort_mpi``.
    """


class _Part:
    """What every node does: hear the others while it waits, and start its ranks."""

    def __init__(self, placement: Placement, request: Request) -> None:
        load_torch()
        self._placement = placement
        self._request = request
        self._selector = selectors.DefaultSelector()
        self._own_address = ""  # by which this node and the others reach each other
        self._offers: list[socket.socket] = []  # where the nodes could meet, listening nowhere yet
        self._leftovers: set[str] = set()  # shared memory that MPI leaves if ranks are killed

    def fileno(self) -> int:
        """Readable when something came from another node."""
        return self._selector.fileno()  # epoll and kqueue have it

    def hear(self) -> bool:
        """Take what came, without waiting; False when there will be no more."""
        raise NotImplementedError

    def _wait(
        self, interrupts: Interrupts | None, until: Callable[[], object], deadline: float
    ) -> None:
        """Hear the others until a condition holds, a signal comes or time runs out.

        Args:
            interrupts: signals that end the wait; None: none does.
            until: the condition, looked at after each message and now and then.
            deadline: on the monotonic clock.
        """
        ready = select.poll()
        ready.register(self.fileno(), select.POLLIN)
        if interrupts is not None:
            ready.register(interrupts.fileno(), select.POLLIN)
        self.hear()
        while not until() and (left := deadline - time.monotonic()) > 0:
            if interrupts is not None and interrupts.received is not None:
                return
            ready.poll(1000 * min(left, 0.05))
            self.hear()

    def _workers(
        self,
        world: WorldSpec,
        rendezvous: Rendezvous,
        interrupts: Interrupts,
    ) -> Workers:
        """The ranks of this node; their backends take the interface that leads to the others."""
        place = self._placement
        interface = "" if self._own_address else None
        if self._own_address and not interfaces.is_loopback(self._own_address):
            interface = interfaces.interface_of(self._own_address) or ""
        ranks = place.ranks_of(place.node)
        here = LocalRanks(
            ranks, rendezvous, place.local_rank, place.ranks_here, interface, RANKS_FAREWELL
        )
        private = [self.fileno(), *(key.fd for key in self._selector.get_map().values())]
        private += [offer.fileno() for offer in self._offers]
        return Workers(world, here, choose(world.start_method, world.device), interrupts, private)

    def _agents_store(self, patience: float) -> Store:
        """The store that the engine keeps, with keys that belong to this start of the program."""
        from torch._C._distributed_c10d import PrefixStore, TCPStore

        host, port = self._placement.master, self._placement.port
        wait = timedelta(seconds=patience)
        try:
            store = TCPStore(host, port, None, False, wait, wait_for_workers=False)
        except RuntimeError as error:
            raise _no_verdict(f"No store answered at {host}:{port}") from error
        return PrefixStore(f"distdemo/{self._placement.job}", store)

    def _close(self) -> None:
        for offer in self._offers:
            offer.close()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]  # sockets and connections
        self._selector.close()
        for path in self._leftovers:
            with suppress(OSError):  # the ranks have removed it themselves
                os.unlink(path)  # noqa: PTH108 - a path is all it is


def _no_verdict(why: str) -> NodeZeroLostError:
    return NodeZeroLostError(
        "Node 0 gave no verdict.",
        f"{why[:1].upper()}{why[1:]}.",
        "Look at what rank 0 printed, and whether its host can be reached.",
    )


# ------------------------------------------------------------------------------------------ node 0


class NodeZero(_Part):
    """The node of rank 0.

    Args:
        placement: its place in the world.
        request: what this program was asked to do; the other nodes must have been asked the same.
        patience: seconds that the other nodes may take to appear.

    Raises:
        UsageError: the address where the nodes should meet is not this machine's, or the port is
            taken.
    """

    def __init__(self, placement: Placement, request: Request, patience: float) -> None:
        super().__init__(placement, request)
        self._patience = patience_within(patience)
        self._others = Nodes(placement)
        self._start = StartWorld(-1, 0)
        self._hear: Hear | None = None
        self._looks: Look | None = None
        self._enough = False
        self._heard_at = 0.0
        if not placement.master:  # the ranks will find out where to listen
            self._offers = mpi_offers()
            return
        host, port = placement.master, placement.port
        if not placement.one_host:
            host = interfaces.name_for_others(host)
        if placement.hosted:  # the agent has that port, perhaps on another host
            here = "127.0.0.1" if placement.one_host else interfaces.address_towards(host, port)
            host, port = here, 0
        port = self._listen(interfaces.listening_socket(host, port))
        if placement.hosted:
            self._agents_store(patience).set("node 0", f"{host} {port}")

    def run(  # noqa: PLR0913 - the launcher's contract, and the order
        self,
        world: WorldSpec,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        *,
        meanwhile: Callable[[], object] | None = None,
        hear: Hear | None = None,
        look: Look | None = None,
        order: Any = None,  # noqa: ANN401 - plain data
    ) -> WorldReport:
        """Run ``target(rank, *args)`` on this node's ranks, and judge the whole world.

        Args:
            world: all of it.
            target: as for ``run_world``.
            args: as for ``run_world``.
            meanwhile: as for ``run_world``.
            hear: gets the values that ranks tell, those of other nodes too.
            look: as for ``run_world``.
            order: plain data that tells the other nodes what to run, unless this is the first
                world.

        Raises:
            KeyboardInterrupt: after Ctrl-C; other signals go to their own handlers. Unless it was
                the consequence of a failure that the others know: then that is reported.
        """
        self._hear, self._looks, self._enough = hear, look, False
        self._others.begin()
        number = self._start.world + 1
        interrupts = Interrupts()
        with interrupts, open_files(world):
            rendezvous: Rendezvous
            listening, port = None, 0
            if self._placement.master:
                listening = interfaces.listening_socket(self._own_address, 0)
                port = listening.getsockname()[1]
                rendezvous = TcpRendezvous(self._own_address, port, listening)
            else:
                offers = tuple(offer.getsockname()[:2] for offer in self._offers)
                rendezvous = MpiRendezvous(offers, self._placement.one_host)
            self._start = StartWorld(number, port, order=order if number else None)
            self._send_all(self._start)
            workers = self._workers(world, rendezvous, interrupts)
            try:
                workers.start(target, args)
                if listening is not None:
                    listening.close()  # rank 0 has it
                if meanwhile is not None:
                    meanwhile()
                workers.watch(partial(self._told, workers), [self], look=self._look)
                failed = self._gather(workers, world, interrupts)
            finally:
                self._send_all(Leave(number))
                workers.end()
            report = self._report(world, workers, interrupts.received, failed=failed)
        if report.interrupted_by is not None:
            interrupts.redeliver(report)
        return report

    def end(self, code: int) -> None:
        """Tell every node to leave, and with which exit code; return when they have heard it."""
        self._send_all(Exit(code))
        others = self._others.nodes.values()
        until = time.monotonic() + FAREWELL
        self._wait(None, lambda: not any(node.connection for node in others), until)
        self._close()

    # ------------------------------------------------------------------------------- the others

    @property
    def over(self) -> End | None:
        """Why this node's ranks need go on no longer; None while they do."""
        if self._others.interrupted:
            return End.INTERRUPTED
        failed_at = self._others.failed_at
        failed = failed_at is not None and time.monotonic() >= failed_at + SETTLE
        return End.ENDED_EARLY if self._enough or failed else None

    def hear(self) -> bool:
        """Take what came, without waiting; there may always be more."""
        for key, _ in self._selector.select(0):
            if isinstance(key.fileobj, Connection):
                self._receive(key.fileobj)
            else:
                with suppress(OSError):  # it has gone again
                    made = Connection(key.fileobj.accept()[0], self._patience)  # type: ignore[union-attr]  # a socket
                    self._selector.register(made, selectors.EVENT_READ)
        return True

    def _listen(self, listening: socket.socket) -> int:
        """Hear who connects here; the port."""
        self._own_address, port = listening.getsockname()[:2]
        listening.setblocking(False)
        self._selector.register(listening, selectors.EVENT_READ)
        return int(port)

    def _send_all(self, message: FromNodeZero) -> None:
        for node in self._others.nodes.values():
            if node.connection is not None:
                node.connection.send(message)

    def _receive(self, connection: Connection) -> None:
        nodes = self._others.nodes.values()
        for message in connection.receive(ToNodeZero):
            self._heard_at = time.monotonic()
            try:
                if isinstance(message, Hello):
                    self._welcome(connection, message)
                else:
                    for node in nodes:
                        if node.connection is connection:
                            self._note(node, message)
            except ValueError as error:
                connection.refuse(error)
        if connection.lost is not None:
            self._selector.unregister(connection)
            connection.close()
            for node in nodes:
                if node.connection is connection:
                    self._others.leave(node, *connection.lost)

    def _welcome(self, connection: Connection, hello: Hello) -> None:
        node = self._others.nodes.get(hello.node)
        if node is None or node.connection is not None or node.gone is not None:
            rank = self._placement.ranks_of(hello.node).start
            connection.send(Refused(f"Another process is rank {rank} of it already"))
            return
        node.host = hello.host
        if hello.digest == self._request.digest:
            node.connection = connection
            connection.host = hello.host
            elapsed = time.monotonic() - self._others.began[1]
            connection.send(replace(self._start, elapsed_s=elapsed))
        else:
            why = f"asked for something else than rank 0: distdemo {hello.command}"
            self._others.refuse(node, why, "Give every process the same command.")
            connection.send(Refused("Rank 0 was asked for something else"))

    def _note(self, node: Node, message: Refused | RankTold | NodeEnded) -> None:
        """Take a message of another node.

        Raises:
            ValueError: it is not what such a node could say.
        """
        if isinstance(message, Refused):
            why = f"can't take part on {node.host}: {message.what} {message.why}".rstrip(".")
            self._others.refuse(node, why, message.hint)
        elif message.world != self._start.world:
            pass  # of a world that is over
        elif isinstance(message, NodeEnded):
            self._others.ended(node, message)
        elif message.rank in node.ranks:
            self._take(message.rank, unpack(message.value))

    def _told(self, workers: Workers, rank: int, value: Any) -> bool:  # noqa: ANN401 - whatever a rank tells
        """Take a value of one of this node's own ranks: only these say where the nodes meet."""
        if isinstance(value, Agreed):
            self._leftovers |= shared_segments(workers.pid(rank))
            if not self._own_address:
                ports = [offer.getsockname()[1] for offer in self._offers]
                chosen = self._offers.pop(ports.index(value.port))
                chosen.listen()
                self._listen(chosen)
            return self._enough
        return self._take(rank, value)

    def _take(self, rank: int, value: Any) -> bool:  # noqa: ANN401 - whatever a rank tells
        if self._hear is not None and not self._enough:
            self._enough = self._hear(rank, value) is True
        return self._enough

    def _look(self, outcomes: Sequence[Outcome | None]) -> bool:
        if self._looks is not None and not self._enough:
            self._enough = self._looks([*outcomes, *self._others.outcomes_so_far])
        return self._enough

    # ---------------------------------------------------------------------------------- the end

    def _gather(self, workers: Workers, world: WorldSpec, interrupts: Interrupts) -> bool:
        """Wait until every node has ended; those that don't in time are lost.

        Returns:
            Whether a node had failed before it was told to leave.
        """
        others = self._others
        if workers.ended is End.DONE and workers.well:
            next_look = self._heard_at = time.monotonic()

            def over() -> bool:
                nonlocal next_look
                if time.monotonic() >= next_look:
                    self._look(workers.outcomes())
                    next_look = time.monotonic() + LOOK
                silence = time.monotonic() - self._heard_at
                stalled = world.stall is not None and silence > world.stall + GRACE
                return others.done or self.over is not None or stalled

            self._wait(interrupts, over, workers.began + world.deadline + GRACE)
        stop = not others.done
        # A node may be about to say its first word.
        self._wait(None, lambda: others.done, time.monotonic() + LAST_WORDS)
        failed = others.failed_at is not None
        if stop:
            interrupted = interrupts.received is not None or others.interrupted
            self._send_all(Leave(self._start.world, interrupted))
        patience = 2 * LAST_WORDS if interrupts.received else GRACE
        self._wait(None, lambda: others.answered, time.monotonic() + patience)
        others.give_up(early=time.monotonic() < workers.began + world.deadline)
        return failed

    def _report(
        self, world: WorldSpec, workers: Workers, received: int | None, *, failed: bool
    ) -> WorldReport:
        others = self._others
        outcomes = sorted((*workers.outcomes(), *others.outcomes), key=lambda each: each.rank)
        stalled = workers.ended is End.STALLED or others.stalled
        judged = verdict.judge(world, outcomes, stalled=stalled)
        # A rank that was only running when the signal came has caused nothing.
        caused = failed and any(
            isinstance(outcomes[rank], Died | Lost | Raised)
            for rank in (judged.ranks if judged is not None else ())
        )
        if not caused and (received is not None or others.interrupted):
            judged = verdict.interrupted(outcomes)
        method = choose(world.start_method, world.device)
        here = socket.gethostname()
        hosts = [here] * len(self._placement.ranks_of(0))
        for node in others.nodes.values():
            hosts += [node.host or "?"] * len(node.ranks)
        return WorldReport(
            world=world,
            outcomes=tuple(outcomes),
            verdict=judged,
            seconds=time.monotonic() - workers.began,
            start_method=method.name,
            start_reason=method.reason,
            interrupted_by=None if caused else received,
            engine=self._placement.engine,
            hosts=tuple(hosts) if set(hosts) - {here, "?"} else (),
        )


# -------------------------------------------------------------------------------------- other nodes


class OtherNode(_Part):
    """A node without rank 0; the arguments are node 0's."""

    def __init__(self, placement: Placement, request: Request, patience: float) -> None:
        super().__init__(placement, request)
        if not placement.master:
            check_mpi4py()
        self._patience = patience
        self._world = -1  # the one whose ranks run, or ran last
        self._relay: Relay | None = None
        self._left: Leave | None = None  # the last world whose ranks may go
        self._orders: list[StartWorld | Exit] = []
        self._lost = ""  # why nothing more can come from node 0
        self._refused = False
        self._connection: Connection | None = None

    def serve(
        self,
        world: WorldSpec,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        resume: Resume | None = None,
        relay: Relay | None = None,
    ) -> int:
        """Run this node's ranks of one world after the other, until node 0 says how it ends.

        No rank starts before it is clear that it belongs to the world that meets there; except
        under mpiexec, where the ranks have to begin before they can meet.

        Args:
            world: all of it.
            target: what its ranks run first, as for ``run_world``.
            args: as for ``run_world``.
            resume: what they run next, by node 0's order.
            relay: asked now and then what there is for node 0 to hear.

        Returns:
            The exit code that node 0 chose for all.

        Raises:
            NodeZeroLostError: nobody will judge, or this process has no part in the world.
            KeyboardInterrupt: after Ctrl-C; other signals go to their own handlers.
        """
        self._relay = relay
        order: StartWorld | Exit = StartWorld(0, 0)
        if self._placement.master:
            with Interrupts() as interrupts:
                self._find_node_zero(interrupts)
                until = time.monotonic() + self._patience
                self._wait(interrupts, lambda: self._orders or self._lost, until)
            interrupts.redeliver()
            order = self._next(0)
        while isinstance(order, StartWorld):
            if order.order is not None and resume is not None:
                target, args = resume(order.order)
            left = max(0.0, world.deadline - order.elapsed_s)
            self._run(replace(world, deadline=left), order, target, args)
            order = self._next(self._patience + world.deadline + VERDICT)
        return order.code

    def refuse(self, error: DistdemoError) -> None:
        """Tell node 0 that this node can't take part."""
        if self._connection is None and self._placement.master and not self._lost:
            with Interrupts() as interrupts:
                self._find_node_zero(interrupts)
            interrupts.redeliver()
        self._send(Refused(error.what, error.why, error.hint))

    def leave(self) -> None:
        """Let go of node 0."""
        self._close()

    # --------------------------------------------------------------------------------- one world

    def _run(
        self, world: WorldSpec, start: StartWorld, target: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        self._world = start.world
        interrupts = Interrupts()
        with interrupts, open_files(world):
            began = time.time()
            rendezvous: Rendezvous
            if self._placement.master and self._connection is not None:
                rendezvous = TcpRendezvous(self._connection.host, start.port)
            else:
                rendezvous = MpiRendezvous((), self._placement.one_host)
            workers = self._workers(world, rendezvous, interrupts)
            try:
                workers.start(target, args)
                workers.watch(partial(self._told, interrupts, workers), [self], look=self._look)
                outcomes = workers.outcomes()
                self._look(outcomes)
                values = tuple(pack(getattr(outcome, "value", None)) for outcome in outcomes)
                ended = NodeEnded(
                    start.world,
                    began,
                    outcomes,  # type: ignore[arg-type]  # every class of outcomes
                    values,
                    stalled=workers.ended is End.STALLED,
                    interrupted=workers.ended is End.INTERRUPTED
                    and interrupts.received is not None,
                )
                self._send(ended)
                if self._connection is None and not workers.well and self.over is None:
                    self._speak_up(world, workers, interrupts)
                deadline = workers.began + world.deadline + VERDICT
                self._wait(interrupts, lambda: self.over, deadline)
            finally:
                workers.end()
        interrupts.redeliver()

    def _told(
        self,
        interrupts: Interrupts,
        workers: Workers,
        rank: int,
        value: Any,  # noqa: ANN401 - whatever a rank tells
    ) -> None:
        if isinstance(value, Agreed):
            self._leftovers |= shared_segments(workers.pid(rank))
            self._connect(value.host, value.port, interrupts)
        else:
            self._send(RankTold(self._world, rank, pack(value)))

    def _look(self, _: Sequence[Outcome | None]) -> bool:
        if self._relay is not None and self._connection is not None:
            for rank, value in self._relay():
                self._send(RankTold(self._world, rank, pack(value)))
        return False

    def _speak_up(self, world: WorldSpec, workers: Workers, interrupts: Interrupts) -> None:
        """A rank failed before the ranks could agree where to meet: nobody can be told of it.

        Node 0 finds the same if all ranks failed, and ends them; else the engine ends those that
        wait once this process fails.

        Raises:
            UnheardError: about this node's ranks.
        """
        self._wait(interrupts, lambda: False, time.monotonic() + MET_NOBODY)
        failed = [each for each in workers.outcomes() if isinstance(each, Died | Raised)]
        judged = verdict.judge(world, failed)
        if failed and judged is not None and interrupts.received is None:
            raise UnheardError(judged.what, judged.why, judged.hint)

    # ----------------------------------------------------------------------------------- node 0

    @property
    def over(self) -> End | None:
        """Why the ranks of this world are to leave; None while they are not."""
        left = self._left if self._left and self._left.world >= self._world else None
        if left is not None and left.interrupted:
            return End.INTERRUPTED
        return End.ENDED_EARLY if left or self._lost or self._orders else None

    def hear(self) -> bool:
        """Take what came, without waiting; False when there will be no more."""
        if self._connection is None:
            return True
        for message in self._connection.receive(FromNodeZero):
            if isinstance(message, Refused):
                self._lost, self._refused = message.what, True
            elif isinstance(message, Leave):
                self._left = message
            elif isinstance(message, Exit) or message.world > self._world:
                self._orders.append(message)
        if self._connection.lost is not None:
            self._lost = self._lost or self._connection.lost[0]
        return not self._lost

    def _send(self, message: ToNodeZero) -> None:
        if self._connection is not None:
            self._connection.send(message)

    def _find_node_zero(self, interrupts: Interrupts) -> None:
        """Connect to node 0 once it is there; sets ``_lost`` if it doesn't come in time."""
        host, port = self._placement.master, self._placement.port
        if self._placement.hosted:
            until = time.monotonic() + self._patience
            store = self._agents_store(self._patience)
            while not store.check(["node 0"]):
                if time.monotonic() >= until or interrupts.wait(PAUSE):
                    self._lost = f"nothing was heard of it within {self._patience:g} s"
                    return
            host, _, said = store.get("node 0").decode().partition(" ")
            port = int(said)
        elif not self._placement.one_host:
            host = interfaces.name_for_others(host)
        self._connect(host, port, interrupts)

    def _connect(self, host: str, port: int, interrupts: Interrupts) -> None:
        made = connect(host, port, time.monotonic() + self._patience, interrupts)
        if made is None:
            self._lost = f"nothing answered at {host}:{port} within {self._patience:g} s"
            return
        if self._placement.master:  # else the ranks have found out themselves
            self._own_address = made.getsockname()[0]
        self._connection = Connection(made, patience_within(self._patience))
        self._connection.host = made.getpeername()[0]
        self._selector.register(self._connection, selectors.EVENT_READ)
        node, digest = self._placement.node, self._request.digest
        self._send(Hello(node, socket.gethostname(), digest, self._request.command))

    def _next(self, seconds: float) -> StartWorld | Exit:
        """The next order.

        Raises:
            NodeZeroLostError: there is none, and will be none.
        """
        until = time.monotonic() + seconds
        self._wait(None, lambda: self._orders or self._lost, until)
        if self._orders:
            return self._orders.pop(0)
        error = _no_verdict(self._lost or "it gave no order in time")
        if self._refused:
            error.what = "This process can't take part in the world that meets there."
            error.hint = "Give every process the same command, and each rank to one process."
        raise error
