"""Measure TCP streams between the ranks without torch.distributed: the limit of gloo's transport.

All ranks at once send to their right neighbour on a ring and receive from the left one, through
plain sockets.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from contextlib import ExitStack, suppress
from time import perf_counter
from typing import TYPE_CHECKING

from distdemo.bench.records import StreamLimit
from distdemo.joined.interfaces import addresses
from distdemo.measure.statistics import quantile

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

SECONDS = 0.3  # of streaming
SLICE_S = 0.02
FAST_SHARE = 0.1
"""Share of the fastest slices and rounds that counts: other programs can make a limit look lower,
nothing can make it look higher."""
ROUNDS = 100  # of a small message around the ring
BUFFER_BYTES = 1 << 20
PEER_TIMEOUT_S = 5.0  # without a byte from a neighbour, after which it counts as lost
PING = bytes(8)
TOKEN_BYTES = 16


def stream_limit(rank: Rank) -> StreamLimit | None:
    """Measure this rank's streams in less than a second; at most once per world. Collective.

    Returns:
        The limit; None if a neighbour can't be reached, for example because of a firewall: the
        limit is only for comparison and must not make a world fail.
    """
    rank.report_phase("measuring TCP streams")
    limit = None
    with ExitStack() as stack, suppress(OSError):
        right, left = connect_ring(rank, stack)
        latency_s = _ring_time_s(right, left, first=rank.rank == 0) / rank.world_size
        limit = StreamLimit(_bandwidth(right, left), latency_s)
    rank.barrier("stream")
    return limit


def connect_ring(rank: Rank, stack: ExitStack) -> tuple[socket.socket, socket.socket]:
    """Return a stream to the right neighbour and one from the left. Collective.

    A rank listens only on the address of gloo's interface, which is loopback in worlds that
    distdemo starts. Its neighbour proves itself with a token from the world's store.

    Args:
        rank: This rank of the world.
        stack: Closes the sockets at its end.

    Raises:
        OSError: A neighbour can't be reached.
    """
    store = rank.store("stream")
    token = secrets.token_hex(TOKEN_BYTES // 2)
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "").partition(",")[0]
    address = next((own for own in addresses().get(interface, ()) if "." in own), "")
    listener = None
    where = ""
    with suppress(OSError):
        if address:
            listener = stack.enter_context(socket.create_server((address, 0)))
            listener.settimeout(PEER_TIMEOUT_S)
            where = f"{address} {listener.getsockname()[1]} {token}"
    store.set(str(rank.rank), where)
    neighbour = bytes(store.get(str((rank.rank + 1) % rank.world_size))).decode().split()
    if listener is None or not neighbour:
        raise ConnectionError
    host, port, its_token = neighbour
    right = socket.create_connection((host, int(port)), PEER_TIMEOUT_S)
    stack.enter_context(right)
    right.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    right.sendall(its_token.encode())
    left, _ = listener.accept()
    stack.enter_context(left)
    left.settimeout(PEER_TIMEOUT_S)
    if not secrets.compare_digest(_receive(left, TOKEN_BYTES), token.encode()):
        raise ConnectionError
    return right, left


def _receive(left: socket.socket, size: int) -> bytes:
    """Return this many bytes.

    Raises:
        OSError: The neighbour was lost.
    """
    data = b""
    while len(data) < size:
        part = left.recv(size - len(data))
        if not part:
            raise ConnectionError
        data += part
    return data


def _ring_time_s(right: socket.socket, left: socket.socket, *, first: bool) -> float:
    """Return the seconds that 8 bytes take around the ring. Collective."""
    times = []
    for _ in range(ROUNDS):
        began_s = perf_counter()
        if first:
            right.sendall(PING)
        _receive(left, len(PING))
        if not first:
            right.sendall(PING)
        times.append(perf_counter() - began_s)
    return quantile(sorted(times), FAST_SHARE)


def _bandwidth(right: socket.socket, left: socket.socket) -> float:
    """Return the bytes per second from the left while another thread sends to the right."""
    end_s = perf_counter() + SECONDS

    def send() -> None:
        data = bytes(BUFFER_BYTES)
        with suppress(OSError):  # the receiver sees it, too
            while perf_counter() < end_s:
                right.sendall(data)
            right.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send)
    sender.start()
    buffer = bytearray(BUFFER_BYTES)
    rates = []
    try:
        received = 0
        began_s = perf_counter()
        while count := left.recv_into(buffer):
            received += count
            elapsed_s = perf_counter() - began_s
            if elapsed_s >= SLICE_S:
                rates.append(received / elapsed_s)
                received = 0
                began_s += elapsed_s
    finally:
        sender.join()
    if not rates:
        raise ConnectionError
    return quantile(sorted(rates), 1 - FAST_SHARE)
