"""What is around a rank's process: descriptors, handlers, its launcher's life, the interfaces."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distdemo.launcher.rank import Assignment


def detach(assignment: Assignment) -> None:
    """Let go of what belongs to the launcher: descriptors, handlers, output; and die with it."""
    for fd in assignment.inherited:
        os.close(fd)
    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the launcher, which stops us
    if assignment.output is not None:
        os.dup2(assignment.output.fileno(), 1)
        os.dup2(assignment.output.fileno(), 2)
    _die_with_launcher(assignment)


def _die_with_launcher(assignment: Assignment) -> None:
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1  # prctl(2)
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
        _free_forkserver()
        _leave_if_abandoned(assignment.gate.fileno())
    else:
        import threading

        threading.Thread(target=_leave_with_launcher, args=(assignment,), daemon=True).start()


def _free_forkserver() -> None:
    """Close the end of the forkserver's lifeline that every rank inherits from it.

    The forkserver ends when nobody holds that end any more; while ranks did, a killed launcher
    would leave it, and so them, alive.
    """
    from multiprocessing import forkserver

    server = getattr(forkserver, "_forkserver", None)
    lifeline = getattr(server, "_forkserver_alive_fd", None)
    if lifeline is not None and getattr(server, "_forkserver_pid", None) is None:
        os.close(lifeline)
        server._forkserver_alive_fd = None  # type: ignore[union-attr]  # noqa: SLF001 - there is no public way


def _leave_if_abandoned(gate: int) -> None:
    """End at once if the launcher was gone before we asked the kernel to watch it."""
    import select

    watch = select.poll()  # not select.select, which takes no descriptor beyond 1023
    watch.register(gate, select.POLLIN | select.POLLHUP)
    if watch.poll(0):
        os._exit(1)


def _leave_with_launcher(assignment: Assignment) -> None:
    """Where the kernel does not watch the launcher: a thread does."""
    wait_at(assignment.gate.fileno())
    directory = assignment.local_ranks.rendezvous.directory
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)
    time.sleep(0.5)  # time to leave in an orderly way, if that is what the others do
    os._exit(1)


def take_interface(interface: str) -> None:
    """Bind the backends to this interface, unless the user named another.

    Args:
        interface: its name; empty: the one that no other machine can reach. That overrides the
            user's setting, which is meant for worlds that span machines, as this one doesn't.
    """
    if interface:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")
        os.environ.setdefault("TP_SOCKET_IFNAME", interface)  # TensorPipe's, for RPC
        return
    import socket

    names = [name for _, name in socket.if_nameindex()]
    loopback = next((name for name in ("lo", "lo0") if name in names), None)
    if loopback is not None:
        os.environ["GLOO_SOCKET_IFNAME"] = loopback
        os.environ["NCCL_SOCKET_IFNAME"] = f"={loopback}"
        os.environ["TP_SOCKET_IFNAME"] = loopback


def wait_at(gate: int) -> None:
    """Return when the launcher has closed its end, or is gone."""
    while os.read(gate, 1):
        pass
