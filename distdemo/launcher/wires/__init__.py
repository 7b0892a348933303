"""Wires: how the ranks of a world find each other where the backend does not meet at a store.

MPI wants to be told who is who before anything else works.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from distdemo.launcher.records import WorldSpec
from distdemo.launcher.wires.contract import Wire
from distdemo.launcher.wires.pmi import PmiWire


@contextmanager
def strung(world: WorldSpec) -> Iterator[Wire]:
    """The wire of a world on this machine; nothing of it is left when the block ends.

    Raises:
        UsageError: it can't be laid.
    """
    if world.mpi_start is None:
        yield Wire()
        return
    wire = PmiWire(world)
    try:
        yield wire
    finally:
        wire.close()
