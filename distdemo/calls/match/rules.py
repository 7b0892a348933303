"""Kinds of findings, and checks of calls that need no state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from distdemo.backends import REGISTRY
from distdemo.backends.contract import Backend
from distdemo.calls.records import Kind, Misuse, RankCall


@dataclass(frozen=True, slots=True)
class KindInfo:
    """Text of a kind of finding, and the value that is compared.

    Attributes:
        rule: Rule that was broken, and the effect.
        differs: End of the sentence if the ranks' calls differ.
        value: Getter of a value that must be equal on all ranks, or None. The value is None or
            empty if it is unknown, which agrees with every other.
    """

    rule: str
    differs: str = "the calls differ"
    value: Callable[[RankCall], object] | None = None


UNKNOWN_BACKEND = Backend()
ANY_SIZE = ("all_to_all", "coalesced")  # in names of ops whose sizes may differ between ranks


def _size(call: RankCall) -> object:
    if call.partial:
        return _count(call)
    if call.rules.parts:
        return None  # every pair of ranks is compared
    return call.send_counts if call.rules.lists else (call.count, call.send_counts)


def _count(call: RankCall) -> int | None:
    """Return the number of elements as torch's flight recorder counts them; None if unknown."""
    if call.count < 0 or call.op == "barrier" or any(name in call.op for name in ANY_SIZE):
        return None
    return sum(call.send_counts) if call.op == "reduce_scatter" and call.send_counts else call.count


def _steps(call: RankCall) -> tuple[int, ...]:
    """Return the strides; without those of dimensions of one element, which never matter."""
    if len(call.strides) != len(call.shape):
        return call.strides  # of another tensor in a list
    pairs = zip(call.shape, call.strides, strict=True)
    return tuple(stride for size, stride in pairs if size > 1)


KINDS: dict[Kind, KindInfo] = {
    "call": KindInfo(
        "All ranks of a group must make the same calls in the same order.",
        "the ranks make different calls",
        lambda call: call.op,
    ),
    "group": KindInfo(
        "All ranks of the world must call new_group in the same order with the same members.",
        "the ranks create different groups",
        lambda call: (call.members, call.lone_groups, call.named_after),
    ),
    "reduce_op": KindInfo(
        "All ranks of a group must pass the same ReduceOp. gloo would return a wrong "
        "result and no error.",
        "the ranks pass different ReduceOps",
        lambda call: call.reduce_op,
    ),
    "root": KindInfo(
        "All ranks of a group must pass the same root.",
        "the ranks pass different roots",
        lambda call: call.root,
    ),
    "dtype": KindInfo(
        "All ranks of a group must pass the same dtype.",
        "the ranks pass different dtypes",
        lambda call: call.dtype,
    ),
    # A note. Source: ``run`` of AsyncBroadcastCUDAWork, AsyncAllreduceCUDAHostWork and others in
    # ProcessGroupGloo.cpp and ProcessGroupGlooCuda.cpp makes the call with a copy on the CPU.
    "device": KindInfo(
        "gloo copies CUDA tensors to the CPU, so this is right for a group that uses only gloo."
    ),
    "shape": KindInfo("The sizes that ranks pass must match.", "the sizes don't match", _size),
    "buffers": KindInfo(
        "All ranks must pass tensors with the same strides.",
        "the ranks' tensors have different strides",
        lambda call: None if layout_fault(call.shape, call.strides) else _steps(call),
    ),
    "splits": KindInfo(
        "Each rank must send exactly as much as the receiver expects.", "the splits don't match"
    ),
    "argument": KindInfo("The backend would reject this call or hang."),
    "absent": KindInfo("Every rank of a group must make the same calls."),
    "uneven": KindInfo(
        "Every rank must run the same number of iterations. With DDP, join() allows fewer."
    ),
    "p2p": KindInfo("Every send needs a receive with the same peer, tag, dtype and size."),
    "deadlock": KindInfo(
        "Let one side receive while the other sends, or use isend, irecv or batch_isend_irecv."
    ),
    "stuck": KindInfo("Every rank of a group must make the same calls."),
    "shift": KindInfo(
        "If these calls weren't meant to match, some rank has made one call too many or too "
        "few before, or calls in another order."
    ),
    "step": KindInfo(
        "A rank has skipped a batch or a step: gradients of different batches are averaged from "
        "here on."
    ),
    "replicas": KindInfo("Replicas must start equal, and change in the same way on all ranks."),
    "unreduced": KindInfo("Reduce the gradients of all ranks before each step."),
    "data": KindInfo(
        "The ranks probably train on the same batches. Use DistributedSampler, or give each rank "
        "its own part of the data."
    ),
    "severed": KindInfo(
        "Gradients don't pass through this call. detach() the tensor, or use a call that has a "
        "gradient, such as all_reduce of torch.distributed._functional_collectives (before torch "
        "2.13: of torch.distributed.nn.functional)."
    ),
    "order": KindInfo(
        "NCCL may run one call at a time: ranks must make calls on overlapping groups in the same "
        "order, and sends and receives with batch_isend_irecv."
    ),
    "nccl": KindInfo("NCCL rejects such a call."),
    "died": KindInfo(
        "Ranks that wait for a rank that has ended never finish. Fix its error first."
    ),
    "slow": KindInfo(
        "Compare the hosts and links of these ranks, or raise the timeout if the call may take "
        "longer."
    ),
}
"""Kinds of findings. The first difference in this order is reported."""
MEMBERS_ONLY = "Only members may use a group."
OWN_MEMORY = "Give every tensor its own memory unless nothing reads it, as with padding."
TAGS = "NCCL ignores tags: it pairs the messages of two ranks in the order of the calls."
CONTIGUOUS = "Pass .contiguous(), and copy the result back if there is one."
OTHER_LINES = "The lines differ, too: a rank may have made a call too many or too few."
COMPARED = {kind: info.value for kind, info in KINDS.items() if info.value is not None}


@dataclass(frozen=True, slots=True)
class MisuseInfo:
    """Text of a misuse of a call's memory or result.

    Attributes:
        kind: Kind of the finding: ``buffers`` for an error, another one for a warning.
        what: Message.
        rule: Rule that was broken.
        then: What the program does at the later line, or empty if there is none.
    """

    kind: Kind
    what: str
    rule: str
    then: str = ""


MISUSES: dict[Misuse, MisuseInfo] = {
    "written": MisuseInfo(
        "buffers",
        "a tensor is written to while a call is using it.",
        "Wait for the call before changing its tensors.",
        "writes to it",
    ),
    "read": MisuseInfo(
        "buffers",
        "a tensor is read while a call is filling it.",
        "Wait for the call before reading its result.",
        "reads it",
    ),
    "unwaited": MisuseInfo(
        "buffers", "a call is never waited for.", "Wait for every non-blocking call."
    ),
    "shared": MisuseInfo(
        "buffers",
        "a tensor is read whose memory was filled with several results.",
        OWN_MEMORY,
        "reads it",
    ),
    "severed": MisuseInfo(
        "severed",
        "a gradient ignores a collective in place.",
        KINDS["severed"].rule,
        "backward",
    ),
    "severed result": MisuseInfo(
        "severed",
        "a gradient ignores the result of a collective.",
        KINDS["severed"].rule,
        "uses the result",
    ),
    "unshuffled": MisuseInfo(
        "data",
        "DistributedSampler gave the same order in two epochs.",
        "Call set_epoch(epoch) of the sampler before each epoch.",
    ),
}


def agreement(call: RankCall) -> tuple[object, ...]:
    """Return the values that must be equal on all ranks, in the order of `COMPARED`."""
    return tuple(value(call) for value in COMPARED.values())


def check_arguments(call: RankCall, rank: int, n: int, backend: str) -> tuple[Kind, str] | None:
    """Return the error in a call's own arguments, or None.

    tests/calls/test_rules.py makes such calls without distdemo, over gloo and MPI. Sources for
    NCCL, in torch 2.8 to 2.15 with NCCL 2.27 to 2.30: ``ArgsCheck`` in NCCL's misc/argcheck.cc
    checks a root or peer. In ProcessGroupNCCL.cpp ``gather`` and ``scatter`` check the length of
    the list, ``alltoall`` sends as many parts as the list has, and ``allgather`` and
    ``reduce_scatter`` access a list that is too short beyond its end.

    Args:
        call: Call of this rank.
        rank: Group rank of the caller.
        n: Size of the group.
        backend: Backend of the group.
    """
    if call.partial:
        return None
    known = backend_named(backend)
    for name, other in (("root", call.root), ("peer", call.peer)):
        is_any = other == -1 and call.rules.data == "from peer"
        is_null = name == "peer" and other == known.null_peer
        if other is not None and not (is_any or is_null) and not 0 <= other < n:
            what = f"the {name} of {call.op} is rank {other}, but the group has {n} ranks"
            return "argument", what
    if call.peer == rank and not known.sends_to_itself:
        what = f"{call.op} has this rank itself as its peer, which {known.name} rejects"
        return "argument", what
    for sizes in _lists(call, rank):
        is_rest_unused = call.op in known.ignores_rest and len(sizes) > n
        if len(sizes) != n and not is_rest_unused:
            return "argument", f"{call.op} got a list of {len(sizes)} tensors for {n} ranks"
        if call.op in known.needs_even and len(set(sizes)) > 1:
            what = f"{call.op} got a list of tensors of unequal size, which {known.name} rejects"
            return "shape", what
    if call.op in known.ignores_gaps and call.device == "cpu":
        fault = layout_fault(call.shape, call.strides)
        if fault:
            what = f"a tensor passed to {call.op} {fault}, which {known.name} ignores"
            return "buffers", what
    return None


def remarks(call: RankCall, rank: int, n: int, backend: str) -> Iterator[tuple[Kind, str, str]]:
    """Yield what may be meant in a call's own arguments: kind, text and rule.

    Args:
        call: Call of this rank.
        rank: Group rank of the caller.
        n: Size of the group.
        backend: Backend of the group.
    """
    if call.aliased:
        what = f"a list passed to {call.op} contains the same tensor several times."
        yield "buffers", what, OWN_MEMORY
    if call.overlapping:
        yield "buffers", f"a list passed to {call.op} contains tensors that overlap.", OWN_MEMORY
    known = backend_named(backend)
    if call.op == "send" and call.peer is not None and call.peer == known.null_peer:
        what = f"the peer of {call.op} is rank {call.peer}, which doesn't exist."
        yield "argument", what, f"{known.name} may drop the message without an error."
    if call.op in known.ignores_rest:
        for sizes in _lists(call, rank):
            if len(sizes) > n:
                what = f"{call.op} got a list of {len(sizes)} tensors for {n} ranks."
                yield "argument", what, f"{known.name} doesn't use the other tensors."


def _lists(call: RankCall, rank: int) -> list[tuple[int, ...]]:
    """Return the sizes in the lists that a call needs on this rank."""
    is_used = call.root in (None, rank) and not call.partial
    return [getattr(call, name) for name in call.rules.lists] if is_used else []


def backend_named(name: str) -> Backend:
    """Return the backend with this name; the usual facts if it is unknown."""
    return REGISTRY.get(name, UNKNOWN_BACKEND)


def layout_fault(shape: Sequence[int], strides: Sequence[int]) -> str:
    """Return how a tensor's elements don't fill an address range, or an empty text.

    They may fill it in any order.
    """
    if len(strides) != len(shape):
        return ""  # contiguous, or of another tensor in a list
    expected = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1 and stride != expected:
            return "has gaps" if stride else "repeats elements"
        expected *= size
    return ""


def lacking_in_nccl(call: RankCall) -> str:
    """Return the reason why NCCL rejects this call, or an empty text.

    Sources: ``getNcclDataType``, ``getNcclReduceOp`` and ``recvAnysource`` in ProcessGroupNCCL.cpp,
    and ``monitored_barrier`` in distributed_c10d.py, in torch 2.8 to 2.15.
    """
    nccl = REGISTRY["nccl"]
    if call.dtype and call.dtype not in nccl.dtypes:
        return f"{call.op} passes {call.dtype}, which NCCL doesn't support"
    if call.reduce_op in nccl.unsupported_reduce_ops:
        return f"{call.op} passes {call.reduce_op.upper()}, which NCCL doesn't support"
    if call.op == "monitored_barrier" or (call.op == "recv" and call.peer == -1):
        return f"{call} isn't available with NCCL"
    return ""


def ranks_by_value(values: Mapping[int, object]) -> list[tuple[int, ...]]:
    """Return the ranks that have the same value: the most common value first, then by rank."""
    groups: dict[object, list[int]] = {}
    for rank in sorted(values):
        groups.setdefault(values[rank], []).append(rank)
    usual = max(groups.values(), key=len)
    return [tuple(usual), *(tuple(ranks) for ranks in groups.values() if ranks is not usual)]


def minority(values: Mapping[int, object]) -> tuple[int, ...]:
    """Return the ranks that don't have the most common value; in a tie, the lowest rank's."""
    usual, *_ = ranks_by_value(values)
    return tuple(rank for rank in sorted(values) if rank not in usual)


def differs(
    calls: Mapping[int, RankCall], members: Sequence[int]
) -> tuple[Kind, tuple[int, ...]] | None:
    """Return the first disagreement between calls at one position, and the ranks in the minority.

    Args:
        calls: Calls by global rank.
        members: Members of the group, in group order.
    """
    is_partial = any(call.partial for call in calls.values())
    for kind, value in COMPARED.items():
        if is_partial and kind == "shape":
            value = _count  # noqa: PLW2901 - of which torch's flight recorder knows no more
        values = {rank: value(call) for rank, call in calls.items()}
        known = {rank: value for rank, value in values.items() if value not in (None, "")}
        if len(set(known.values())) > 1:
            return kind, minority(known)
    return compare_parts(calls, members)


def compare_parts(
    calls: Mapping[int, RankCall], members: Sequence[int]
) -> tuple[Kind, tuple[int, ...]] | None:
    """Return the mismatch between the sizes that ranks send and expect, or None."""
    clashes = [(sender, receiver) for sender, receiver, *_ in size_mismatches(calls, members)]
    if not clashes:
        return None
    first = next(iter(calls.values()))
    often = Counter(rank for pair in clashes for rank in pair)
    most = max(often.values())
    guilty = tuple(sorted(rank for rank, count in often.items() if count == most))
    if len(guilty) == len(calls) or len(clashes) == 1:
        guilty = tuple(sorted({rank for pair in clashes for rank in pair}))
        if first.root is not None and len(guilty) > 1:  # the root matches all other ranks
            guilty = tuple(rank for rank in guilty if rank != members[first.root])
    return ("splits" if first.op.startswith("all_to_all") else "shape"), guilty


def size_mismatches(
    calls: Mapping[int, RankCall], members: Sequence[int]
) -> Iterator[tuple[int, int, int, int]]:
    """Yield (sender, receiver, sent size, expected size) where the sizes differ."""
    if not all(call.rules.parts and not call.partial for call in calls.values()):
        return
    numbers = {rank: members.index(rank) for rank in calls}
    for (sender, i), (receiver, j) in permutations(numbers.items(), 2):
        given = calls[sender]
        taken = calls[receiver]
        if given.sends_to(i, j) and taken.receives_from(j, i):
            sent = _part_size(given, given.send_counts, j, len(members))
            expected = _part_size(taken, taken.receive_counts, i, len(members))
            if sent is not None and expected is not None and sent != expected:
                yield sender, receiver, sent, expected


def _part_size(call: RankCall, parts: tuple[int, ...], other: int, n: int) -> int | None:
    """Return the size of another rank's part; None if the list has a wrong length."""
    if not parts:
        return call.count
    if parts[0] == -1:  # equal parts, and their sum
        return parts[1] // n
    return parts[other] if len(parts) == n else None
