"""Kinds of findings, and checks of calls that need no state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from distdemo.backends import REGISTRY
from distdemo.calls.records import Kind, RankCall


@dataclass(frozen=True, slots=True)
class KindInfo:
    """Text of a kind of finding, and the value that is compared.

    Attributes:
        rule: Rule that was broken, and the effect.
        differs: End of the sentence if the ranks' calls differ.
        value: Getter of a value that must be equal on all ranks, or None.
    """

    rule: str
    differs: str = "the calls differ"
    value: Callable[[RankCall], object] | None = None


def _size(call: RankCall) -> object:
    if call.rules.parts:
        return None  # every pair of ranks is compared
    return call.send_counts if call.rules.lists else (call.count, call.send_counts)


KINDS: dict[Kind, KindInfo] = {
    "call": KindInfo(
        "All ranks of a group must make the same calls in the same order.",
        "the ranks make different calls",
        lambda call: call.op,
    ),
    "group": KindInfo(
        "All ranks of the world must call new_group in the same order with the same members.",
        "the ranks create different groups",
        lambda call: (call.members, call.lone_groups),
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
    "device": KindInfo(
        "All ranks of a group must pass tensors on the same device type.",
        "the ranks pass tensors on different devices",
        lambda call: call.device,
    ),
    "shape": KindInfo("The sizes that ranks pass must match.", "the sizes don't match", _size),
    "buffers": KindInfo(
        "All ranks must pass tensors with the same strides.",
        "the ranks' tensors have different strides",
        lambda call: call.strides,
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
    "replicas": KindInfo(
        "All ranks must start with the same parameters and change them in the same way."
    ),
    "severed": KindInfo(
        "Gradients don't pass through this call. Use torch.distributed.nn.functional, or detach() "
        "the tensor."
    ),
    "order": KindInfo(
        "NCCL may run one call at a time: ranks must make calls on overlapping groups in the same "
        "order, and sends and receives with batch_isend_irecv."
    ),
    "nccl": KindInfo(
        "NCCL rejects such a call. It ignores tags, so it pairs messages in the order of the calls."
    ),
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
OWN_MEMORY = "Every tensor in a list needs its own memory."
OTHER_LINES = "The lines differ, too: a rank may have made a call too many or too few."
COMPARED = {kind: info.value for kind, info in KINDS.items() if info.value is not None}
MISUSES = {
    "written": (
        "a tensor is written to while a call is using it.",
        "Wait for the call before changing its tensors.",
    ),
    "read": (
        "a tensor is read while a call is filling it.",
        "Wait for the call before reading its result.",
    ),
    "unwaited": ("a call is never waited for.", "Wait for every non-blocking call."),
    "strided": (
        "a tensor has gaps, and the backend treats it as contiguous.",
        "Pass contiguous tensors.",
    ),
}
"""Message and rule of each misuse of a call's memory."""


UNKNOWN = object()
"""Value that agrees with every other."""
ANY_SIZE = ("all_to_all", "coalesced")  # in names of ops whose sizes may differ between ranks


def agreement(call: RankCall) -> tuple[object, ...]:
    """Return the values that must be equal on all ranks, in the order of `COMPARED`."""
    if not call.partial:
        return tuple(value(call) for value in COMPARED.values())
    sized = call.op and call.count >= 0 and not any(name in call.op for name in ANY_SIZE)
    known = {
        "call": call.op or UNKNOWN,
        "dtype": call.dtype or UNKNOWN,
        "shape": call.count if sized else UNKNOWN,
    }
    return tuple(known.get(kind, UNKNOWN) for kind in COMPARED)


def check_arguments(call: RankCall, rank: int, n: int, backend: str) -> tuple[Kind, str] | None:
    """Return the error in a call's own arguments, or None.

    Args:
        call: Call of this rank.
        rank: Group rank of the caller.
        n: Size of the group.
        backend: Backend of the group.
    """
    if call.root is not None and not 0 <= call.root < n:
        return (
            "argument",
            f"the root of {call.op} is rank {call.root}, but the group has {n} ranks.",
        )
    if call.partial:
        return None
    lowest = -1 if call.rules.data == "from peer" else 0  # only a receive can be from any rank
    if call.peer is not None and not lowest <= call.peer < n:
        return (
            "argument",
            f"the peer of {call.op} is rank {call.peer}, but the group has {n} ranks.",
        )
    if call.peer == rank and backend.startswith("gloo"):
        return "argument", f"{call.op} has this rank itself as its peer, which gloo rejects."
    lists = call.rules.lists if call.root in (None, rank) else ()
    for sizes in (getattr(call, name) for name in lists):
        if len(sizes) != n:
            return "argument", f"{call.op} got a list of {len(sizes)} tensors for {n} ranks."
        if backend.startswith("gloo") and len(lists) == 1 and len(set(sizes)) > 1:
            return "shape", f"{call.op} got a list of tensors of unequal size, which gloo rejects."
    if call.aliased:
        return "buffers", f"a list passed to {call.op} contains the same tensor several times."
    return None


def lacking_in_nccl(call: RankCall) -> str:
    """Return the reason why NCCL can't make this call as intended, or an empty text."""
    nccl = REGISTRY["nccl"]
    if call.dtype and call.dtype not in nccl.dtypes:
        return f"{call.op} passes {call.dtype}, which NCCL doesn't support."
    if call.reduce_op in nccl.unsupported_reduce_ops:
        return f"{call.op} passes {call.reduce_op.upper()}, which NCCL doesn't support."
    if call.op == "monitored_barrier" or (call.op == "recv" and call.peer == -1):
        return f"{call} isn't available with NCCL."
    return f"{call.op} has tag {call.tag}, which NCCL ignores." if call.tag else ""


def differs(
    calls: dict[int, RankCall], members: Sequence[int]
) -> tuple[Kind, tuple[int, ...]] | None:
    """Return the first disagreement between calls at one position, and the ranks in the minority.

    Args:
        calls: Calls by global rank.
        members: Members of the group, in group order.
    """
    if len(calls) < 2:
        return None
    agreements = {rank: agreement(call) for rank, call in calls.items()}
    for number, kind in enumerate(COMPARED):
        values = {
            rank: values[number]
            for rank, values in agreements.items()
            if values[number] is not UNKNOWN
        }
        if len(set(values.values())) > 1:
            usual = majority(values)
            return kind, tuple(sorted(rank for rank, value in values.items() if value != usual))
    return compare_parts(calls, members)


def majority(values: Mapping[int, object]) -> object:
    """Return the most common value; in a tie, the one of the lowest rank."""
    counts = Counter(values[rank] for rank in sorted(values))
    return counts.most_common(1)[0][0]


def compare_parts(
    calls: dict[int, RankCall], members: Sequence[int]
) -> tuple[Kind, tuple[int, ...]] | None:
    """Return the mismatch between the sizes that ranks send and expect, or None."""
    clashes = [(one, other) for one, other, _, _ in size_mismatches(calls, members)]
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
    calls: dict[int, RankCall], members: Sequence[int]
) -> Iterator[tuple[int, int, int, int]]:
    """Yield (sender, receiver, sent size, expected size) where the sizes differ."""
    if not all(call.rules.parts and not call.partial for call in calls.values()):
        return
    numbers = {rank: members.index(rank) for rank in calls}
    for (one, i), (other, j) in permutations(numbers.items(), 2):
        sent = _sent_size(calls[one], i, j, len(members))
        expected = _received_size(calls[other], j, i, len(members))
        if sent is not None and expected is not None and sent != expected:
            yield one, other, sent, expected


def _sent_size(call: RankCall, own: int, other: int, n: int) -> int | None:
    """Return the number of elements sent to another rank, or None if none or unknown."""
    if not call.sends_to(own, other):
        return None
    return _part_size(call.send_counts, other, n) if call.send_counts else call.count


def _received_size(call: RankCall, own: int, other: int, n: int) -> int | None:
    """Return the number of elements expected from another rank, or None."""
    if not call.receives_from(own, other):
        return None
    return _part_size(call.receive_counts, other, n) if call.receive_counts else call.count


def _part_size(parts: tuple[int, ...], other: int, n: int) -> int | None:
    if len(parts) == 2 and parts[0] == -1:
        return parts[1] // n
    return parts[other] if len(parts) == n else None
