"""Wires: how the ranks of a world find each other where the backend does not meet at a store.

MPI wants to be told who is who before anything else works. One way of telling a file, behind one
contract, and the one list of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from distdemo.launcher.interrupts import Interrupts
from distdemo.launcher.records import WorldSpec
from distdemo.launcher.wires.contract import Wire
from distdemo.launcher.wires.mpiexec import MpiexecWire
from distdemo.launcher.wires.pmi import PmiWire

_WAYS: dict[str, Callable[[WorldSpec, Interrupts], Wire]] = {
    "pmi": PmiWire,
    "mpiexec": MpiexecWire,
}


@contextmanager
def strung(world: WorldSpec, interrupts: Interrupts) -> Iterator[Wire]:
    """The wire of a world on this machine; nothing of it is left when the block ends.

    Raises:
        UsageError: it can't be laid.
    """
    if world.mpi_start is None:
        yield Wire()
        return
    wire = _WAYS[world.mpi_start.way](world, interrupts)
    try:
        yield wire
    finally:
        wire.close()
