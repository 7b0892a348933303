"""Convert the arguments of ``ProcessGroup``'s methods to a ``RankCall``.

``METHODS`` describes the methods. ``fields_of`` returns a cheap, hashable tuple, because programs
repeat the same calls; ``described`` converts it to a record once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.constants import default_pg_timeout

from distdemo.calls.records import RankCall, SourceLine
from distdemo.observe.memory import memory_of

Args = tuple[Any, ...]


class Fields(NamedTuple):
    """Fields of ``RankCall``; ``data`` holds the tensor's dtype, shape, device and strides."""

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
    overlapping: bool = False
    limited: bool = False
    batched: bool = False


class Method(NamedTuple):
    """A method of ``ProcessGroup``. Its arguments are numbered from 0.

    Attributes:
        op: Name of the op.
        read: Number of the argument that the backend reads, or None.
        filled: Number of the argument that the backend fills, or None.
        opts: Number of the options.
        data: Number of the argument whose first tensor is compared, or None.
        raw: Arguments whose memory the backend uses directly, so that strides must match.
        sends: Number of the argument with the sizes that this rank sends, or None.
        receives: Number of the argument with the sizes that it receives, or None.
        lists: True if the receiving argument is a list, which could hold one tensor twice.
        reduces: True if it has a ReduceOp.
        rooted: True if it has a root.
        fields: Function that returns its fields instead, or None.
    """

    op: str
    read: int | None = None
    filled: int | None = None
    opts: int = 2
    data: int | None = None
    raw: tuple[int, ...] = ()
    sends: int | None = None
    receives: int | None = None
    lists: bool = False
    reduces: bool = False
    rooted: bool = False
    fields: Callable[[Args, dict[str, Any]], Fields] | None = None


def fields_of(method: Method, args: Args, named: dict[str, Any]) -> Fields:
    """Return the fields of a call of a method with these arguments."""
    if method.fields is not None:
        return method.fields(args, named)
    opts = named.get("opts", args[method.opts] if len(args) > method.opts else None)
    reduce_op = ""
    if method.reduces:
        operator = getattr(opts, "reduceOp", None)
        if operator is None:  # the overload without options
            rest = (*args[method.opts :], *named.values())
            operators = (value for value in rest if hasattr(value, "op") or hasattr(value, "name"))
            operator = next(operators, "sum")
        reduce_op = _operator_name(getattr(operator, "op", operator))
    root = None
    if method.rooted:
        root = getattr(opts, "rootRank", None)
        if root is None:  # likewise
            root = opts if isinstance(opts, int) else named.get("root", 0)
    data: tuple[Any, ...] = ()
    if method.data is not None:
        data = _data(listed(args[method.data])[0])
        for number in method.raw:
            for tensor in listed(args[number]):
                is_strided = tensor.layout is torch.strided
                if is_strided and not tensor.is_contiguous() and not data[3]:
                    data = (*data[:3], tensor.stride())
    sent = () if method.sends is None else _counts(listed(args[method.sends]))
    if method.receives is None:
        return Fields(method.op, _is_sync(opts), data, reduce_op, root, sent)
    outputs = listed(args[method.receives])
    fields = Fields(method.op, _is_sync(opts), data, reduce_op, root, sent, _counts(outputs))
    return _with_clashes(fields, outputs) if method.lists else fields


def tensors_of(method: Method, args: Args) -> Sequence[Tensor]:
    """Return the tensors whose content a method gives to other ranks."""
    number = method.filled if method.read is None else method.read
    given: Sequence[Tensor] = () if number is None else listed(args[number])
    return given


def described(fields: Fields, source_line: SourceLine) -> RankCall:
    """Return the record of a call."""
    given = fields._asdict()
    dtype, shape, device, strides = given.pop("data") or ("", (), "", ())
    return RankCall(
        source_line=source_line,
        dtype=str(dtype).removeprefix("torch."),
        shape=tuple(shape),
        count=torch.Size(shape).numel() if fields.data else 0,
        device=device,
        strides=strides,
        **given,
    )


def _data(tensor: Tensor) -> tuple[Any, ...]:
    """Return dtype, shape and device of a tensor; without strides, as if it were contiguous."""
    return tensor.dtype, tensor.shape, tensor.device.type, ()


def listed(given: Any) -> Any:
    """Return the tensors of an argument: a tensor, a list, or a list in a list."""
    if isinstance(given, Tensor):
        return (given,)
    return given[0] if given and not isinstance(given[0], Tensor) else given


def _counts(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    return tuple([tensor.numel() for tensor in tensors])


def _with_clashes(fields: Fields, outputs: Sequence[Tensor]) -> Fields:
    """Mark a call if two of its outputs begin at the same address, or overlap."""
    size = max(fields.receive_counts, default=0) * (outputs[0].element_size() if outputs else 0)
    end = 0
    for start in sorted(map(_address, outputs)):
        if start < end:
            break
        end = start + size
    else:
        return fields
    parts = [
        (out.data_ptr(), out.nbytes, out.is_contiguous())
        for out in outputs
        if memory_of(out) is out  # else it has no address
    ]
    pairs = [*pairwise(sorted(parts))]
    if any(first[0] == second[0] for first, second in pairs):
        return fields._replace(aliased=True)
    return fields._replace(
        overlapping=any(  # the elements of tensors with gaps may alternate
            is_whole and other_is_whole and other < start + size
            for (start, size, is_whole), (other, _, other_is_whole) in pairs
        )
    )


def _address(tensor: Tensor) -> int:
    """Return the address of a tensor; 0 if it has no memory, such as a wrapper of torch.func."""
    try:
        return tensor.data_ptr()
    except (NotImplementedError, RuntimeError):
        return 0


def _is_sync(opts: Any) -> bool:
    """Return True if torch waits in the call itself; otherwise ``Work.wait`` is intercepted."""
    return getattr(opts, "asyncOp", None) is False


@cache
def _operator_name(kind: Any) -> str:
    return str(getattr(kind, "name", kind)).lower()


def _all_to_all_single(args: Args, named: dict[str, Any]) -> Fields:
    """Return the fields. Splits count rows of dimension 0; empty splits are equal, marked by −1."""
    output, given, output_splits, input_splits, *rest = args
    data = _data(given)
    return Fields(
        "all_to_all_single",
        _is_sync(named.get("opts", rest[0] if rest else None)),
        data if output.is_contiguous() else (*data[:3], output.stride()),
        send_counts=_split(given, input_splits),
        receive_counts=_split(output, output_splits),
    )


def _split(tensor: Tensor, splits: Sequence[int] | None) -> tuple[int, ...]:
    row = tensor[0].numel() if tensor.dim() and len(tensor) else 1
    return tuple(rows * row for rows in splits) if splits else (-1, tensor.numel())


def _p2p(op: str, *parameters: str) -> Callable[[Args, dict[str, Any]], Fields]:
    def fields(args: Args, named: dict[str, Any]) -> Fields:
        given = {**dict(zip(("tensors", *parameters), args, strict=False)), **named}
        peer = int(given.get("dstRank", given.get("srcRank", -1)))
        sync = op == "send" and peer == -1  # gloo never returns from it
        data = _data(listed(given["tensors"])[0])
        return Fields(op, sync, data, peer=peer, tag=int(given.get("tag", 0)))

    return fields


def _monitored_barrier(args: Args, named: dict[str, Any]) -> Fields:
    timeout = named.get("timeout", args[0] if args else None)
    limited = timeout is not None and timeout < default_pg_timeout
    return Fields("monitored_barrier", sync=True, limited=limited)


_GATHER_RAW = (1,) if torch.__version__ < "2.9" else ()  # gloo copies other tensors since 2.9
_in_place = partial(Method, filled=0, opts=1, data=0, raw=(0,))
_two_buffers = partial(Method, read=1, filled=0)
_gathering = partial(_two_buffers, data=1, receives=0)
_scattering = partial(_two_buffers, data=0, sends=1)
_coalesced = partial(Method, data=1, sends=1)
_reduce_scatter_single = _scattering("reduce_scatter_single", reduces=True)
_all_to_all_splits = _two_buffers("all_to_all_single", fields=_all_to_all_single)
METHODS: dict[str, Method] = {
    "allreduce": _in_place("all_reduce", reduces=True),
    "allreduce_coalesced": _in_place("all_reduce_coalesced", raw=(), sends=0, reduces=True),
    "broadcast": _in_place("broadcast", rooted=True),
    "reduce": _in_place("reduce", reduces=True, rooted=True),
    "allgather": _gathering("all_gather", lists=True),
    "_allgather_base": _gathering("all_gather_single"),
    "all_gather_single": _gathering("all_gather_single"),
    "allgather_coalesced": _coalesced("all_gather_coalesced"),
    "allgather_into_tensor_coalesced": _coalesced("all_gather_into_tensor_coalesced"),
    "all_gather_single_coalesced": _coalesced("all_gather_into_tensor_coalesced"),
    "gather": _gathering("gather", raw=_GATHER_RAW, lists=True, rooted=True),
    "scatter": _scattering("scatter", raw=(0, 1), rooted=True),
    "reduce_scatter": _scattering("reduce_scatter", raw=(0,), reduces=True),
    "_reduce_scatter_base": _reduce_scatter_single,
    "reduce_scatter_single": _reduce_scatter_single,
    "reduce_scatter_tensor_coalesced": _coalesced("reduce_scatter_tensor_coalesced", reduces=True),
    "reduce_scatter_single_coalesced": _coalesced("reduce_scatter_tensor_coalesced", reduces=True),
    "alltoall": _gathering("all_to_all", sends=1, lists=True),
    "alltoall_base": _all_to_all_splits,
    "all_to_all_single": _all_to_all_splits,
    "barrier": Method("barrier", opts=0),
    "monitored_barrier": Method("monitored_barrier", fields=_monitored_barrier),
    "send": Method("send", read=0, fields=_p2p("send", "dstRank", "tag")),
    "recv": Method("recv", filled=0, fields=_p2p("recv", "srcRank", "tag")),
    "recv_anysource": Method("recv", fields=_p2p("recv", "tag")),
}
"""Methods of ``ProcessGroup`` in torch 2.8 and later."""
