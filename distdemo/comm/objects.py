"""Objects: anything that pickles, gathered and broadcast.

.. warning::
    **Unpickling runs code**: whoever can send to the group can run code on its ranks.
"""

from __future__ import annotations

import operator
import pickle
from typing import TYPE_CHECKING, Any, TypeVar

from distdemo.comm import carrier
from distdemo.comm.carrier import Route
from distdemo.errors import DistdemoError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

T = TypeVar("T")


def all_gather_objects(value: T, group: ProcessGroup | None = None) -> list[T]:
    """Collective: every rank's value, in the order of the ranks, on every rank.

    ::

        {"loss": 0.5}  # rank 0    ->    [{"loss": 0.5}, None]  # rank 0
        None           # rank 1    ->    [{"loss": 0.5}, None]  # rank 1

    In a world of one the list holds the value itself, else copies, this rank's own included.

    Args:
        value: anything that pickles. Tensors arrive on the device that they came from.
        group: None for the default group.

    Raises:
        DistdemoError: this rank is no member of the group; or, on every rank, a value doesn't
            pickle, or the ranks called different functions.

    .. warning:: Unpickling runs code: whoever can send to the group can run code on this rank.
    """
    route = carrier.find_route(group)
    if route.size == 1:
        return [value]
    data, sizes = _pickled(route, "all_gather_objects", value)
    parts = carrier.all_gather_bytes(route, _resized(data, max(sizes)))
    return _unpickled(parts, sizes)


def gather_objects(value: T, dst: int = 0, group: ProcessGroup | None = None) -> list[T] | None:
    """Collective: every rank's value, in the order of the ranks, on rank ``dst``; None elsewhere.

    ::

        "a"  # rank 0          ->    None        # rank 0
        "b"  # rank 1 = dst    ->    ["a", "b"]  # rank 1 = dst

    In a world of one the list holds the value itself, else copies, this rank's own included.

    Args:
        value: anything that pickles. Tensors arrive on the device that they came from.
        dst: a rank of the group (torch's own ``dst`` counts in the default group).
        group: None for the default group.

    Raises:
        DistdemoError: this rank is no member of the group; or, on every rank, ``dst`` is no rank
            of the group or not the same everywhere, a value doesn't pickle, or the ranks called
            different functions.

    .. warning:: Unpickling runs code: whoever can send to the group can run code on rank ``dst``.
    """
    route = carrier.find_route(group)
    if route.size == 1:
        _check_root(route, [dst])
        return [value]
    data, sizes = _pickled(route, "gather_objects", value, dst)
    parts = carrier.gather_bytes(route, _resized(data, max(sizes)), dst)
    return None if parts is None else _unpickled(parts, sizes)


def broadcast_object(value: T, src: int = 0, group: ProcessGroup | None = None) -> T:
    """Collective: rank ``src``'s value on every rank; what the others give is not looked at.

    ::

        {"lr": 0.1}  # rank 0 = src    ->    {"lr": 0.1}  # rank 0, the value itself
        None         # rank 1          ->    {"lr": 0.1}  # rank 1, a copy

    Args:
        value: on ``src`` anything that pickles. Tensors arrive on the device that they came from.
        src: a rank of the group (torch's own ``src`` counts in the default group).
        group: None for the default group.

    Raises:
        DistdemoError: this rank is no member of the group; or, on every rank, ``src`` is no rank
            of the group or not the same everywhere, the value doesn't pickle, or the ranks called
            different functions.

    .. warning:: Unpickling runs code: whoever can send to the group can run code on this rank.
    """
    route = carrier.find_route(group)
    if route.size == 1:
        _check_root(route, [src])
        return value
    mine = value if route.rank == src else None
    data, sizes = _pickled(route, "broadcast_object", mine, src)
    received = carrier.broadcast_bytes(route, _resized(data, sizes[src]), src)
    return value if route.rank == src else _unpickled([received], [sizes[src]])[0]


def _pickled(route: Route, call: str, value: object, root: int = 0) -> tuple[Tensor, list[int]]:
    """Collective: this rank's pickle, and the bytes of every rank's, once all ranks agree."""
    import torch

    data, mistake = bytearray(), None
    try:
        data = bytearray(pickle.dumps(value))
    except Exception as error:  # noqa: BLE001 - pickling runs the value's own code; all must hear
        mistake = error
    headers = carrier.agree(route, call, _number(root), -1 if mistake else len(data))
    _check_root(route, [root for root, _ in headers])
    sizes = [size for _, size in headers]
    if min(sizes) < 0:
        raise _not_pickled(carrier.texts(route, _words(mistake))) from mistake
    return torch.frombuffer(data, dtype=torch.uint8), sizes


def _number(root: int) -> int:
    """The root as a number that the agreement can carry; any other is none that a rank has."""
    try:
        number = operator.index(root)
    except TypeError:
        return -1
    return number if 0 <= number < 2**31 else -1


def _words(error: Exception | None) -> str:
    return "" if error is None else f"{type(error).__name__}: {error}"


def _not_pickled(mistakes: list[str]) -> DistdemoError:
    rank, mistake = next((rank, text) for rank, text in enumerate(mistakes) if text)
    return DistdemoError(
        f"The value of rank {rank} can't be sent.",
        f"It can't be pickled: {mistake}.",
        "Give plain data: no lambdas, open files, locks or generators.",
    )


def _check_root(route: Route, roots: list[int]) -> None:
    """Refuse roots that are not the same everywhere, or no rank of the group."""
    if len(set(roots)) > 1:
        raise DistdemoError(
            "The ranks don't agree on the root.",
            carrier.by_rank([f"root {root}" for root in roots]),
            "Every rank has to give the same src or dst.",
        )
    if not 0 <= roots[0] < route.size:
        raise DistdemoError(
            f"Rank {roots[0]} can't be the root.",
            f"The group has {route.size} rank{'s' * (route.size > 1)}, counted from 0.",
            "src and dst are ranks of the group, not of the default group.",
        )


def _resized(data: Tensor, size: int) -> Tensor:
    """The bytes in a buffer of this size: cut, or filled up with zeros."""
    if data.numel() == size:
        return data
    buffer = data.new_zeros(size)
    kept = min(size, data.numel())
    buffer[:kept] = data[:kept]
    return buffer


def _unpickled(parts: list[Tensor], sizes: list[int]) -> list[Any]:
    """The values again.

    Raises:
        DistdemoError: one can't be read on this rank (its class is not there, its device is not).
    """
    import torch

    values = []
    for part, size in zip(parts, sizes, strict=True):
        data = bytearray(size)  # the way to bytes that needs no NumPy
        torch.frombuffer(data, dtype=torch.uint8).copy_(part[:size])
        try:
            values.append(pickle.loads(data))  # noqa: S301 - what the warnings above are about
        except Exception as error:
            raise DistdemoError(
                "A value that arrived can't be read on this rank.",
                f"{_words(error)}.",
                "Its class has to be importable on every rank, and its device has to be there.",
            ) from error
    return values
