"""Helpers for distributed programs of your own: who am I, gather and broadcast whatever there is.

Each is safe to call in a program that was started alone: where no process group is initialised,
or ``torch.distributed`` is not there at all, this process is rank 0 of a world of one. (Until
``init_process_group`` that holds under torchrun too.) Importing this module doesn't import torch.

**Groups.** ``group=None`` is the default group. ``src`` and ``dst`` are ranks *of the group*,
0 to its size − 1; those of ``torch.distributed`` itself count in the default group.

**Mistakes.** A call begins with one small all_gather of what each rank is about to do. Where ranks
disagree (other calls, another root, tensors that don't fit together, a value that can't be
pickled) every rank raises the same error, rather than hang, abort or return garbage.

**The CPU group.** Objects travel over the CPU. Where the default group takes no CPU tensors
(nccl), a gloo group over the same ranks is made at the first call that needs it, and serves as
long as that default group lives. Making it is collective, like any ``new_group``: that first call
stands at the same place in the order in which all ranks make groups. A smaller group that takes
no CPU tensors carries the bytes on its device, as torch's own object collectives do.

.. warning::
    Objects travel by pickle, and **unpickling runs code**: whoever can send to the group can run
    code on its ranks. Call the three object functions only among processes that you trust, over a
    network that you trust.
"""

from __future__ import annotations

from distdemo.comm import carrier
from distdemo.comm.objects import all_gather_objects, broadcast_object, gather_objects
from distdemo.comm.uneven import all_gather_uneven

__all__ = [
    "all_gather_objects",
    "all_gather_uneven",
    "broadcast_object",
    "gather_objects",
    "get_rank",
    "get_world_size",
    "is_main",
    "synchronize",
]


def get_rank() -> int:
    """This process's rank in the default group; 0 without one."""
    dist = carrier.distributed()
    return 0 if dist is None else int(dist.get_rank())


def get_world_size() -> int:
    """The number of ranks in the default group; 1 without one."""
    dist = carrier.distributed()
    return 1 if dist is None else int(dist.get_world_size())


def is_main() -> bool:
    """Whether this process is rank 0: the one that prints and saves."""
    return get_rank() == 0


def synchronize() -> None:
    """Collective: return once every rank has called this; at once in a world of one.

    The processes meet on the CPU; what a GPU still computes is not waited for.
    """
    route = carrier.find_route(None)
    if route.size > 1:
        import torch.distributed as dist

        dist.barrier(group=route.carrier)
