"""A script that mpiexec starts in a rank's place: ``shim.py SOCKET``.

It hands on what mpiexec tells the rank, to the launcher, which starts the rank itself with this:
the environment as JSON after 8 bytes of length (big-endian), and with the length the descriptor
that ``PMI_FD`` names, if there is one. It stays as long as the launcher wants, for mpiexec to see
a process, and leaves when the socket closes.
"""

import json
import os
import socket
import sys
from contextlib import suppress


def hand_on(path: str) -> None:
    """Tell the launcher, then wait for it to hang up."""
    with socket.socket(socket.AF_UNIX) as wire:
        wire.connect(path)
        text = json.dumps(dict(os.environ)).encode()
        held = [int(os.environ["PMI_FD"])] if "PMI_FD" in os.environ else []
        socket.send_fds(wire, [len(text).to_bytes(8, "big")], held)
        wire.sendall(text)
        for fd in held:
            os.close(fd)
        with suppress(OSError):  # the launcher was killed
            wire.recv(1)


if __name__ == "__main__":
    hand_on(sys.argv[1])
