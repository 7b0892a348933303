"""Memory that all ranks of one machine share, without a file that anybody could be left with.

Rank 0 makes it (memfd_create: it has no name) and the others open it through
``/proc/PID/fd/NUMBER``, which the kernel allows to processes of the same user alone. When the last
rank has gone, so has the memory, however the ranks ended.
"""

from __future__ import annotations

import mmap
import os
import re
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

TOKEN = 32  # bytes that tell our memory from another's at the same place


class Page:
    """Shared memory.

    Attributes:
        buffer: its bytes.
        words: the same as signed 64-bit numbers; one is read or written at once, never in halves.
    """

    def __init__(self, memory: mmap.mmap, size: int) -> None:
        self._memory = memory
        self.buffer = memoryview(memory)[:size]
        self.words = self.buffer[: size // 8 * 8].cast("q")

    def close(self) -> None:
        """Give it back; the views can't be used any more. The other ranks keep theirs."""
        self.words.release()
        self.buffer.release()
        with suppress(BufferError):  # somebody holds a view: it goes with the process
            self._memory.close()


def shared_page(rank: Rank, place: str, size: int) -> Page | None:
    """Collective: memory that all ranks share, zeros at first.

    Args:
        rank: this rank of the world.
        place: a name that no other page of the world had.
        size: bytes.

    Returns:
        None on every rank where one of them can't have it: they live on several machines, in
        containers that don't see each other's processes, or on a system without memfd.
    """
    store = rank.store(f"page/{place}")
    made = _make(size) if rank.rank == 0 else None
    if rank.rank == 0:
        store.set("where", "" if made is None else made.address)
    found = made or _open(bytes(store.get("where")).decode(), size)
    if found is None:
        rank.count(f"page/{place}/lacking", 1)
    rank.meet(f"page/{place}")
    complete = rank.count(f"page/{place}/lacking") == 0
    if made is not None:
        os.close(made.descriptor)
    if found is None or complete:
        return None if found is None else found.page
    found.page.close()
    return None


class _Found:
    """A page, and where others find it."""

    def __init__(self, page: Page, descriptor: int, address: str) -> None:
        self.page = page
        self.descriptor = descriptor
        self.address = address


def _make(size: int) -> _Found | None:
    """New memory; None where the system has none of this kind, or too little."""
    if not hasattr(os, "memfd_create"):
        return None
    token = secrets.token_bytes(TOKEN)
    try:
        descriptor = os.memfd_create("distdemo", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, size + TOKEN)
        memory = mmap.mmap(descriptor, size + TOKEN)
    except OSError:
        return None
    memory[size:] = token
    address = f"/proc/{os.getpid()}/fd/{descriptor} {token.hex()}"
    return _Found(Page(memory, size), descriptor, address)


def _open(address: str, size: int) -> _Found | None:
    """The memory of another rank; None if it isn't to be had, or isn't that one."""
    path, _, token = address.partition(" ")
    if not re.fullmatch(r"/proc/\d+/fd/\d+", path):  # whatever else the store says
        return None
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if os.fstat(descriptor).st_size != size + TOKEN:
            return None
        memory = mmap.mmap(descriptor, size + TOKEN)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    if not secrets.compare_digest(memory[size:].hex(), token):
        memory.close()
        return None
    return _Found(Page(memory, size), -1, address)
