"""A process of the tests' own goes to a host: what ``ip netns exec`` does, without an exec."""

from __future__ import annotations

import ctypes
import os
import socket
from pathlib import Path

NEW_FILES, NEW_NAME, NEW_NETWORK = 0x0002_0000, 0x0400_0000, 0x4000_0000  # CLONE_NEW*, of sched.h
BIND, SLAVE, AND_BELOW = 0x1000, 0x8_0000, 0x4000  # MS_*, of sys/mount.h
DETACH = 2  # MNT_DETACH


def enter(namespace: str, name: str, etc: Path) -> None:
    """Be on this host from here on; for a process with a single thread.

    Args:
        namespace: of the network, as ``ip netns`` knows it.
        name: the host's.
        etc: the files that lie over those of /etc.

    Raises:
        OSError: the kernel refuses it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    network = os.open(f"/run/netns/{namespace}", os.O_RDONLY | os.O_CLOEXEC)
    _asked(libc.setns(network, NEW_NETWORK))
    os.close(network)
    _asked(libc.unshare(NEW_FILES | NEW_NAME))
    _asked(libc.mount(b"", b"/", None, ctypes.c_ulong(SLAVE | AND_BELOW), None))
    _asked(libc.umount2(b"/sys", DETACH))
    _asked(libc.mount(namespace.encode(), b"/sys", b"sysfs", ctypes.c_ulong(0), None))
    for file in etc.iterdir():
        place = os.fsencode(Path("/etc", file.name))
        _asked(libc.mount(os.fsencode(file), place, None, ctypes.c_ulong(BIND), None))
    socket.sethostname(name)


def _asked(answer: int) -> None:
    if answer != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
