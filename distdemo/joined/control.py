"""Send and receive control messages as keys of the store that all nodes share.

A node's launcher must not wait for the network: an unreachable peer would block its own ranks and
Ctrl-C. So each node has a *control process*, forked before its ranks. Only this process uses the
store, and it has two pipes to its launcher. On the coordinator's node it also serves the store,
unless an engine does.

Keys, below a prefix for this run of the program::

    node/1/0, node/1/1, ...   messages of node 1, some in each, one per line
    changes                   number of sends of all nodes
    alive/1                   a counter that node 1 increments every second
    claim/1                   number of processes that claim to be node 1

The control process exits after its launcher: if the launcher is killed, its last message reports
that at once. If the host fails, its counter stops.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING

from distdemo.files import limit_memory
from distdemo.joined import messages
from distdemo.joined.engines import Placement
from distdemo.joined.messages import Gone, Message
from distdemo.launcher import helper
from distdemo.launcher.helper import Channel
from distdemo.launcher.rendezvous import connect_store

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

ALIVE_S = 1.0  # between two increments of a node's counter
SILENCE_TIMEOUT_S = 4.0, 8.0  # without an increment until a node is lost: minimum and maximum
SILENCE_HINT = "Check whether its processes and its host are running, and can be reached."
POLL_S = 0.1  # between polls of an idle store
EXIT_TIMEOUT_S = 2.0  # for the control process to send its queue and exit
AT_ONCE = 256  # messages per node and poll
TOGETHER_BYTES = 1 << 20  # of messages that are sent together
STORE_BYTES = 96 << 20  # memory limit of the control process: anyone may fill the store


class Control:
    """The launcher's end of its control process.

    Args:
        host: Host of the store.
        port: Port of the store.
        place: Placement of this node. Node 0 receives the messages of all others, and they its own.
        timeout_s: Seconds until the store must have answered.
        listening: Socket on which to serve the store; None if another process serves it.
    """

    def __init__(
        self,
        *,
        host: str,
        port: int,
        place: Placement,
        timeout_s: float,
        listening: socket.socket | None,
    ) -> None:
        self.host = host
        self.port = port
        self.prefix = f"distdemo/{place.job}"
        self.node = place.node
        least, most = SILENCE_TIMEOUT_S
        self.silence_s = max(least, min(most, timeout_s / 2))
        peers = [0] if place.node else range(1, place.nodes)
        child = _ControlProcess(self, peers, timeout_s, listening)
        self._helper = helper.fork(child.run, outlives=True)
        if listening is not None:
            listening.close()

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when a message has arrived."""
        return self._helper.connection.fileno()

    def send(self, message: Message) -> None:
        """Queue a message; ``receive`` reports a failure to send it.

        Raises:
            ValueError: The message exceeds its size limit.
        """
        self._helper.send(messages.write(message))

    def receive(self) -> list[tuple[int, bytes | Gone]]:
        """Return the messages that have arrived, each with its node, without waiting.

        A message of a node is encoded. `Gone` is the control process's: the node is lost, or, with
        this node's own number, the store.
        """
        arrived: list[tuple[int, bytes | Gone]] = []
        try:
            while len(arrived) < AT_ONCE and self._helper.connection.poll():
                arrived.append(self._helper.connection.recv())
        except (EOFError, OSError):
            why = "the process that talks to the store has exited"
            arrived.append((self.node, Gone(why)))
        return arrived

    def close(self) -> None:
        """Send the queued messages and end the control process."""
        self._helper.close(EXIT_TIMEOUT_S)


# ---------------------------------------------------------------------------- the control process


def _detach(kept: set[int]) -> None:
    """Ignore signals, close the launcher's files, and limit memory."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    gc.disable()  # a collected object could close a descriptor that is reused here
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    for fd in map(int, os.listdir("/dev/fd")):
        if fd > 2 and fd not in kept:
            with suppress(OSError):  # the one that listed them
                os.close(fd)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit_memory(STORE_BYTES)


class _ControlProcess:
    """The control process's end.

    Args:
        control: The launcher's end.
        peers: Nodes whose messages are received.
        timeout_s: Seconds until the store must have answered.
        listening: Socket on which to serve the store, or None.
    """

    def __init__(
        self,
        control: Control,
        peers: Sequence[int],
        timeout_s: float,
        listening: socket.socket | None,
    ) -> None:
        self._control = control
        self._listening = None if listening is None else listening.fileno()
        self._queue = deque[bytes]()  # messages that are not yet in the store
        self._closing = False  # the launcher has closed its end
        self._wake = threading.Event()
        self._reporting = threading.Lock()
        self._limit_s = timeout_s  # for the store's next answer
        self._answered_at = monotonic()
        self._sent = 0
        self._next = dict.fromkeys(peers, 0)  # number of the next message, by node
        self._alive = dict.fromkeys(peers, (0, 0.0))  # counter, and when it changed

    def run(self, launcher: Channel) -> None:
        """Exchange messages until the launcher has exited or the store is lost."""
        control = self._control
        self._launcher = launcher
        lost = self._no_answer()
        try:
            _detach({launcher.fileno(), self._listening or 0})
            threading.Thread(target=self._follow_launcher, daemon=True).start()
            store = self._open(timedelta(seconds=self._limit_s))
            lost = f"the connection to {control.host}:{control.port} was closed"
            self._exchange(store)
        except (RuntimeError, MemoryError):
            self._report(control.node, Gone(lost))

    def _open(self, timeout: timedelta) -> Store:
        from torch._C._distributed_c10d import PrefixStore, TCPStore

        host = self._control.host
        port = self._control.port
        if self._listening is None:
            store = connect_store(host, port, timeout)
        else:
            store = TCPStore(
                host,
                port,
                None,
                True,
                timeout,
                wait_for_workers=False,
                master_listen_fd=self._listening,
            )
        store.set_timeout(timedelta(seconds=self._control.silence_s))
        return PrefixStore(self._control.prefix, store)

    def _exchange(self, store: Store) -> None:
        self._limit_s = self._control.silence_s
        node = self._control.node
        if store.add(f"claim/{node}", 1) > 1:
            self._report(node, Gone("another process has its ranks already"))
            return
        changes = -1
        active_at = monotonic()
        alive_at = 0.0
        while True:
            closing = self._closing  # read first, so that everything sent before is delivered
            active = self._send(store)
            if monotonic() >= alive_at + ALIVE_S:
                alive_at = monotonic()
                store.add(f"alive/{node}", 1)
                self._watch(store)
            count = store.add("changes", 0)
            if count != changes:
                received = self._receive(store)
                changes = -1 if received else count
                active |= received
            self._answered_at = monotonic()
            if closing:
                return
            if active:
                active_at = monotonic()
            # Poll quickly while messages arrive, else rarely: ranks may be measuring.
            self._wake.wait(min(POLL_S, 0.002 + (monotonic() - active_at) / 4))
            self._wake.clear()

    def _send(self, store: Store) -> bool:
        """Write the queued messages to the store; return True if there were any."""
        if not self._queue:
            return False
        while self._queue:
            lines = [self._queue.popleft()]
            size = len(lines[0])
            while self._queue and size + len(self._queue[0]) < TOGETHER_BYTES:
                lines.append(self._queue.popleft())
                size += len(lines[-1]) + 1
            store.set(f"node/{self._control.node}/{self._sent}", b"\n".join(lines))  # type: ignore[arg-type]  # bytes, too
            self._sent += 1
        store.add("changes", 1)
        return True

    def _receive(self, store: Store) -> bool:
        """Report the messages in the store; return True if there were any."""
        received = False
        for node in self._next:
            for _ in range(AT_ONCE):
                key = f"node/{node}/{self._next[node]}"
                if not store.check([key]):
                    break
                data = store.get(key)
                if self._control.node == 0:  # no other node reads them
                    store.delete_key(key)
                self._next[node] += 1
                for line in data.split(b"\n"):
                    self._report(node, line)
                received = True
        return received

    def _watch(self, store: Store) -> None:
        """Report the nodes whose counter has stopped."""
        silence_s = self._control.silence_s
        for node, (value, changed_at) in self._alive.items():
            count = store.add(f"alive/{node}", 0)
            now = monotonic()
            if count != value:
                self._alive[node] = count, now
            elif value and now > changed_at + silence_s:
                self._report(node, Gone(f"no sign of life for {silence_s:g} s", SILENCE_HINT))

    def _report(self, node: int, report: bytes | Gone) -> None:
        with self._reporting:
            self._launcher.send((node, report))

    def _no_answer(self) -> str:
        where = f"{self._control.host}:{self._control.port}"
        return f"nothing answered at {where} within {self._limit_s:g} s"

    def _follow_launcher(self) -> None:
        """Queue the launcher's messages; exit after it, or if the store doesn't answer."""
        while True:
            left = self._answered_at + self._limit_s - monotonic()
            if left <= -ALIVE_S:  # not at once: the machine may have been suspended
                self._report(self._control.node, Gone(self._no_answer()))
                os._exit(1)
            if self._launcher.poll(max(0.1, left)):
                message = self._launcher.receive()
                if message is None:
                    break
                self._queue.append(message)
                self._wake.set()
        self._queue.append(messages.write(Gone()))
        self._closing = True
        self._wake.set()
        threading.Event().wait(EXIT_TIMEOUT_S / 2)
        os._exit(1)
