"""What two doctors say to each other: JSON behind its length, and plain bytes. Never pickle.

A message is four bytes of length, most significant first, and a JSON object of at most 16 KiB.
The visitor asks and the other answers, one question at a time::

    {"doctor": 1, "versions": …, "host": …}  → the same, and "you": the visitor's address
    {"do": "echo"}                           → {"time": seconds of the answerer's clock}
    {"do": "take", "bytes": n}, n bytes      → {"took": n}
    {"do": "give", "bytes": n}               → n bytes
    {"do": "call", "port": p}                → {"error": ""}, once it connected to the visitor
    {"do": "bye"}                            → {}
"""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any

PROTOCOL = 1
LONGEST = 16 << 10  # bytes of a message
MOST = 32 << 20  # bytes that may be taken or given at once
CHUNK = 64 << 10
PATIENCE = 4.0  # seconds that a visitor waits for the other side to go on
LATEST = 1e11  # seconds since 1970 that a clock may show: some 3,000 years from now
HOSTS_PATIENCE = 10.0  # likewise, of the one who is asked: the visitor has to notice first

Message = dict[str, Any]


class ProtocolError(Exception):
    """The other side says what no doctor would say."""


class Line:
    """One connection, with a deadline for all of it.

    Args:
        connection: to the other side; the caller closes it.
        seconds: until it is given up, whatever goes on.
        patience: seconds that one step may take.
    """

    def __init__(
        self, connection: socket.socket, seconds: float, patience: float = PATIENCE
    ) -> None:
        self._socket = connection
        self._until = time.monotonic() + seconds
        self._patience = patience
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def say(self, message: Message) -> None:
        """Send a message."""
        text = json.dumps(message).encode()
        self._send(struct.pack("!I", len(text)) + text)

    def hear(self) -> Message:
        """The next message.

        Raises:
            ProtocolError: it is none, or too long.
            OSError: the other side is gone, or silent for too long.
        """
        (length,) = struct.unpack("!I", self._receive(4))
        if not 2 <= length <= LONGEST:
            raise ProtocolError(f"a message of {length:,} bytes")
        try:
            message = json.loads(self._receive(length))
        except (ValueError, RecursionError) as error:
            raise ProtocolError("no JSON") from error
        if not isinstance(message, dict):
            raise ProtocolError("no JSON object")
        return message

    def ask(self, message: Message) -> Message:
        """Send a message and return the answer."""
        self.say(message)
        return self.hear()

    def give(self, count: int) -> None:
        """Send so many bytes that mean nothing."""
        block = memoryview(bytes(CHUNK))
        for start in range(0, count, CHUNK):
            self._send(block[: min(CHUNK, count - start)])

    def take(self, count: int) -> None:
        """Receive so many bytes and forget them."""
        buffer = bytearray(CHUNK)
        while count:
            self._wait()
            got = self._socket.recv_into(buffer, min(CHUNK, count))
            if not got:
                raise ConnectionResetError("it closed the connection")
            count -= got

    def _send(self, block: bytes | memoryview) -> None:
        self._wait()
        self._socket.sendall(block)

    def _receive(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            self._wait()
            part = self._socket.recv(count - len(parts))
            if not part:
                raise ConnectionResetError("it closed the connection")
            parts += part
        return bytes(parts)

    def _wait(self) -> None:
        """Bound the next step by the patience and by what is left of the deadline."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the visit took too long")
        self._socket.settimeout(min(self._patience, left))


def counted(message: Message) -> int:
    """The number of bytes that a message speaks of.

    Raises:
        ProtocolError: there is none, or it is too large.
    """
    count = message.get("bytes")
    if type(count) is not int or not 0 <= count <= MOST:
        raise ProtocolError(f"bytes: {str(count)[:40]}")
    return count


def time_of(message: Message) -> float:
    """The time that an echo tells, in seconds since 1970.

    Raises:
        ProtocolError: there is none, or none that a clock shows: NaN, infinity, a number of 400
            digits.
    """
    told = message.get("time")
    if not isinstance(told, int | float) or not 0 <= told <= LATEST:
        raise ProtocolError("an echo without a time")
    return float(told)


def reason(error: BaseException) -> str:
    """An error of a connection in words, without a full stop."""
    if isinstance(error, TimeoutError):
        return str(error) if "visit" in str(error) else "no answer in time"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error)
