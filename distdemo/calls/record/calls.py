"""Convert the arguments of ``ProcessGroup``'s methods to a ``Call``.

``METHODS`` has one entry per method. Each returns a cheap, hashable tuple, because programs repeat
the same calls; ``described`` converts it to a record once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.constants import default_pg_timeout

from distdemo.calls.records import Call, SourceLine

Args = tuple[Any, ...]


class Fields(NamedTuple):
    """Fields of ``Call``; ``data`` holds the tensor's dtype, shape, device and strides."""

    op: str
    sync: bool
    data: tuple[Any, ...] = ()
    reduce_op: str = ""
    root: int | None = None
    send_counts: tuple[int, ...] = ()
    receive_counts: tuple[int, ...] = ()
    peer: int | None = None
    tag: int = 0
    aliased: bool = False
    limited: bool = False
    batched: bool = False


def described(fields: Fields, source_line: SourceLine) -> Call:
    """Return the record of a call."""
    dtype, shape, device, strides = fields.data or ("", (), "", ())
    return Call(
        fields.op,
        source_line,
        dtype=str(dtype).removeprefix("torch."),
        shape=tuple(shape),
        count=torch.Size(shape).numel() if fields.data else 0,
        device=device,
        reduce_op=fields.reduce_op,
        root=fields.root,
        send_counts=fields.send_counts,
        receive_counts=fields.receive_counts,
        peer=fields.peer,
        tag=fields.tag,
        sync=fields.sync,
        aliased=fields.aliased,
        strides=strides,
        limited=fields.limited,
        batched=fields.batched,
    )


def _data(tensor: Tensor, *raw: Tensor) -> tuple[Any, ...]:
    """Return dtype, shape, device and strides of a call's tensor.

    Args:
        tensor: Tensor of the call, or the first of a list.
        raw: Tensors whose memory the backend uses directly, so that strides must match.
    """
    strides = next((each.stride() for each in raw if not each.is_contiguous()), ())
    return tensor.dtype, tensor.shape, tensor.device.type, strides


def _counts(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    return tuple(tensor.numel() for tensor in tensors)


def _aliased(tensors: Sequence[Tensor]) -> bool:
    """Return True if two tensors begin at the same address."""
    addresses = {tensor.data_ptr() for tensor in tensors if tensor.numel()}
    return len(addresses) < sum(tensor.numel() > 0 for tensor in tensors)


def _reduction(op: Any) -> str:
    return _name(getattr(op, "op", op))


@cache
def _name(kind: Any) -> str:
    return str(getattr(kind, "name", kind)).lower()


def _option(args: Args, named: dict[str, Any], index: int, name: str) -> Any:
    opts = named.get("opts", args[index] if len(args) > index else None)
    return getattr(opts, name, None)


def _sync(args: Args, named: dict[str, Any], index: int) -> bool:
    """Return True if torch waits in the call itself; otherwise ``Work.wait`` is intercepted."""
    return _option(args, named, index, "asyncOp") is False


def _first(tensors: Any) -> Tensor:
    return tensors if isinstance(tensors, Tensor) else tensors[0]


def _reducing(op: str, *, rooted: bool = False) -> Callable[[Args, dict[str, Any]], Fields]:
    def fields(args: Args, named: dict[str, Any]) -> Fields:
        tensors = args[0]
        given = _option(args, named, 1, "reduceOp")
        if given is None:  # the overload without options
            rest = [*args[1:], *named.values()]
            given = next(
                (each for each in rest if hasattr(each, "op") or hasattr(each, "name")), "sum"
            )
        root = _option(args, named, 1, "rootRank") if rooted else None
        each = [tensors] if isinstance(tensors, Tensor) else tensors
        counts = () if len(each) == 1 else _counts(each)
        data = _data(each[0], *each)
        return Fields(op, _sync(args, named, 1), data, _reduction(given), root, counts)

    return fields


def _broadcast(args: Args, named: dict[str, Any]) -> Fields:
    root = _option(args, named, 1, "rootRank")
    if root is None:
        root = named.get("root", args[1] if len(args) > 1 and isinstance(args[1], int) else 0)
    tensor = _first(args[0])
    data = _data(tensor, tensor)
    return Fields("broadcast", _sync(args, named, 1), data, "", root)


def _allgather(args: Args, named: dict[str, Any]) -> Fields:
    outputs = args[0][0] if args[0] and not isinstance(args[0][0], Tensor) else args[0]
    data, receive_counts = _data(_first(args[1])), _counts(outputs)
    sync, aliased = _sync(args, named, 2), _aliased(outputs)
    return Fields("all_gather", sync, data, "", None, (), receive_counts, None, 0, aliased)


def _allgather_base(args: Args, named: dict[str, Any]) -> Fields:
    receive_counts = (args[0].numel(),)
    sync, data = _sync(args, named, 2), _data(args[1])
    return Fields("all_gather_single", sync, data, "", None, (), receive_counts)


def _coalesced(op: str) -> Callable[[Args, dict[str, Any]], Fields]:
    def fields(args: Args, named: dict[str, Any]) -> Fields:
        given = _option(args, named, 2, "reduceOp") if op.startswith("reduce") else None
        reduce_op = "" if given is None else _reduction(given)
        counts, sync = _counts(args[1]), _sync(args, named, 2)
        return Fields(op, sync, _data(args[1][0]), reduce_op, None, counts, ())

    return fields


def _gather(args: Args, named: dict[str, Any]) -> Fields:
    outputs = args[0][0] if args[0] and not isinstance(args[0][0], Tensor) else args[0]
    root = _option(args, named, 2, "rootRank")
    sync, data = _sync(args, named, 2), _data(_first(args[1]))
    return Fields("gather", sync, data, "", root, (), _counts(outputs), None, 0, _aliased(outputs))


def _scatter(args: Args, named: dict[str, Any]) -> Fields:
    inputs = args[1][0] if args[1] and not isinstance(args[1][0], Tensor) else args[1]
    root = _option(args, named, 2, "rootRank")
    output = _first(args[0])
    sync, data = _sync(args, named, 2), _data(output, output, *inputs)
    return Fields("scatter", sync, data, "", root, _counts(inputs), ())


def _reduce_scatter(args: Args, named: dict[str, Any]) -> Fields:
    inputs = args[1][0] if args[1] and not isinstance(args[1][0], Tensor) else args[1]
    given = _option(args, named, 2, "reduceOp")
    reduce_op = "sum" if given is None else _reduction(given)
    output = _first(args[0])
    sync, data = _sync(args, named, 2), _data(output, output)
    return Fields("reduce_scatter", sync, data, reduce_op, None, _counts(inputs), ())


def _reduce_scatter_base(args: Args, named: dict[str, Any]) -> Fields:
    given = _option(args, named, 2, "reduceOp")
    reduce_op = "sum" if given is None else _reduction(given)
    sync, send_counts = _sync(args, named, 2), (args[1].numel(),)
    data = _data(args[0])
    return Fields("reduce_scatter_single", sync, data, reduce_op, None, send_counts, ())


def _alltoall(args: Args, named: dict[str, Any]) -> Fields:
    outputs, inputs = args[0], args[1]
    sync, data = _sync(args, named, 2), _data(inputs[0])
    send_counts, receive_counts = _counts(inputs), _counts(outputs)
    return Fields(
        "all_to_all", sync, data, "", None, send_counts, receive_counts, None, 0, _aliased(outputs)
    )


def _alltoall_base(args: Args, named: dict[str, Any]) -> Fields:
    """Return the fields. Splits count rows of dimension 0; empty splits are equal, marked by −1."""
    output, into = args[0], args[1]
    sync, data = _sync(args, named, 4), _data(into)
    send_counts, receive_counts = _split(into, args[3]), _split(output, args[2])
    return Fields("all_to_all_single", sync, data, "", None, send_counts, receive_counts)


def _split(tensor: Tensor, splits: Sequence[int] | None) -> tuple[int, ...]:
    row = tensor[0].numel() if tensor.dim() and len(tensor) else 1
    return tuple(rows * row for rows in splits) if splits else (-1, tensor.numel())


def _barrier(args: Args, named: dict[str, Any]) -> Fields:
    return Fields("barrier", _sync(args, named, 0))


def _p2p(op: str, *parameters: str) -> Callable[[Args, dict[str, Any]], Fields]:
    def fields(args: Args, named: dict[str, Any]) -> Fields:
        given = {**dict(zip(("tensors", *parameters), args, strict=False)), **named}
        peer, tag = given.get("dstRank", given.get("srcRank", -1)), given.get("tag", 0)
        data = _data(_first(given["tensors"]))
        sync = op == "send" and peer == -1  # gloo never returns from it
        return Fields(op, sync=sync, data=data, peer=int(peer), tag=int(tag))

    return fields


def _monitored_barrier(args: Args, named: dict[str, Any]) -> Fields:
    timeout = named.get("timeout", args[0] if args else None)
    limited = timeout is not None and timeout < default_pg_timeout
    return Fields("monitored_barrier", sync=True, limited=limited)


METHODS: dict[str, Callable[[Args, dict[str, Any]], Fields]] = {
    "allreduce": _reducing("all_reduce"),
    "allreduce_coalesced": _reducing("all_reduce_coalesced"),
    "broadcast": _broadcast,
    "reduce": _reducing("reduce", rooted=True),
    "allgather": _allgather,
    "_allgather_base": _allgather_base,
    "all_gather_single": _allgather_base,
    "allgather_coalesced": _coalesced("all_gather_coalesced"),
    "allgather_into_tensor_coalesced": _coalesced("all_gather_into_tensor_coalesced"),
    "all_gather_single_coalesced": _coalesced("all_gather_into_tensor_coalesced"),
    "gather": _gather,
    "scatter": _scatter,
    "reduce_scatter": _reduce_scatter,
    "_reduce_scatter_base": _reduce_scatter_base,
    "reduce_scatter_single": _reduce_scatter_base,
    "reduce_scatter_tensor_coalesced": _coalesced("reduce_scatter_tensor_coalesced"),
    "reduce_scatter_single_coalesced": _coalesced("reduce_scatter_tensor_coalesced"),
    "alltoall": _alltoall,
    "alltoall_base": _alltoall_base,
    "all_to_all_single": _alltoall_base,
    "barrier": _barrier,
    "monitored_barrier": _monitored_barrier,
    "send": _p2p("send", "dstRank", "tag"),
    "recv": _p2p("recv", "srcRank", "tag"),
    "recv_anysource": _p2p("recv", "tag"),
}
"""Function that returns the fields of each ``ProcessGroup`` method, for torch 2.8 and later."""
