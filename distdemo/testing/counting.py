"""Count the messages, rounds and calls of a block of code, from the notes of the sanitizer.

Each rank copies the notes that it writes within the block. At the end of the block the ranks
exchange these copies through the store, not through calls that would be counted, and every rank
counts the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from distdemo import dtypes
from distdemo.calls.notes import CallNote, GroupKey, Reader, ReturnNote, StopNote, WaitNote
from distdemo.calls.records import END_OF_TRAFFIC, RankCall

INPUTS_ONLY = ("all_gather_coalesced", "all_gather_into_tensor_coalesced")
"""Ops whose notes have the sizes of one rank's parts, not of the parts of all ranks."""


class CollectiveCall(NamedTuple):
    """A collective call of this rank.

    Attributes:
        op: Name of the op, ``all_reduce``.
        payload_bytes: Bytes of this rank's tensor, or of the parts of all ranks together if the op
            has one part per rank: S in the text of ``distdemo explain``.
        blocking: False if the call was made with ``async_op=True``, or in C++.
    """

    op: str
    payload_bytes: int
    blocking: bool


@dataclass(init=False, slots=True)
class BlockTraffic:
    """Traffic of a block; the attributes exist once the block has ended.

    Attributes:
        sent_bytes: Bytes that this rank sent in point-to-point messages.
        total_bytes: Bytes that all ranks sent in point-to-point messages.
        rounds: Rounds that these messages take if a rank can send one message and receive one
            message per round. See `count_rounds`.
        calls: Collective calls of this rank, in order. Their messages aren't counted above.
    """

    sent_bytes: int
    total_bytes: int
    rounds: int
    calls: tuple[CollectiveCall, ...]


@contextmanager
def counted() -> Iterator[BlockTraffic]:
    """Yield the traffic of the block, which is counted at its end. Collective.

    Raises:
        RuntimeError: The calls of this rank aren't recorded.
    """
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    from distdemo.calls.record.hooks import current_recorder

    recorder = current_recorder()
    if recorder is None or recorder.off or not recorder.is_registered(dist.group.WORLD):
        raise RuntimeError("traffic() requires the sanitizer, which is off on this rank")
    rank, n = dist.get_rank(), dist.get_world_size()
    store = c10d._get_default_store()
    used = BlockTraffic()
    with recorder.copied() as copy:
        first = recorder.calls
        yield used
    block = store.add(f"distdemo/traffic/{rank}", 1)
    with recorder.record_meeting(END_OF_TRAFFIC):
        store.set(f"distdemo/traffic/{block}/{rank}", f"{first}\n{copy.decode()}")
        copies = [store.get(f"distdemo/traffic/{block}/{other}") for other in range(n)]
    activities = [read_activity(other, notes) for other, notes in enumerate(copies)]
    used.sent_bytes = activities[rank].sent_bytes
    used.total_bytes = sum(activity.sent_bytes for activity in activities)
    used.rounds = count_rounds([activity.steps for activity in activities])
    used.calls = tuple(activities[rank].calls)


# --------------------------------------------------------------------------------- reading notes


@dataclass(eq=False, slots=True)
class Message:
    """A send or receive of one rank.

    Attributes:
        group: Group of the call.
        sends: True for a send.
        peer: Global rank of the other side, or −1 if unknown.
        tag: Tag of the message.
        nth: Number of earlier messages of its channel on this rank; set by `count_rounds`.
    """

    group: GroupKey
    sends: bool
    peer: int
    tag: int
    nth: int = 0


class Step(NamedTuple):
    """Step of a rank: it posts a send or receive, or waits for a receive."""

    message: Message
    waits: bool = False


@dataclass(slots=True)
class BlockActivity:
    """Sends, receives and calls of one rank in a block.

    Attributes:
        sent_bytes: Bytes that it sent in point-to-point messages.
        steps: Its steps in order; every receive is waited for, at the latest at the end.
        calls: Its collective calls.
    """

    sent_bytes: int = 0
    steps: list[Step] = field(default_factory=list)
    calls: list[CollectiveCall] = field(default_factory=list)


def read_activity(rank: int, text: bytes) -> BlockActivity:
    """Return the activity that a rank's notes describe.

    Args:
        rank: Global rank.
        text: Line with the number of the first call, then the notes.

    Raises:
        RuntimeError: The notes are incomplete.
    """
    activity = BlockActivity()
    first, _, text = text.partition(b"\n")
    number = int(first)
    unwaited: dict[int, Message] = {}  # receives by number
    waiting: dict[int, Message] = {}  # the receive that a thread waits for
    for _, note in Reader().read(text):
        match note:
            case StopNote():
                raise RuntimeError(f"the traffic of rank {rank} is unknown: {note.why}")
            case CallNote():
                call = note.call
                members = note.group.members
                itemsize = dtypes.DTYPES[call.dtype].itemsize if call.dtype else 0
                if call.peer is not None:
                    peer = members[call.peer] if call.peer >= 0 else -1
                    message = Message(note.group, call.op == "send", peer, call.tag)
                    activity.steps.append(Step(message))
                    if message.sends:
                        activity.sent_bytes += call.count * itemsize
                    else:
                        unwaited[number] = message
                elif not call.rules.internal and call.op != "new_group":
                    size = _elements(call, len(members)) * itemsize
                    activity.calls.append(CollectiveCall(call.op, size, call.sync))
                number += 1
            case WaitNote() if note.number in unwaited:
                waiting[note.thread] = unwaited.pop(note.number)
                activity.steps.append(Step(waiting[note.thread], waits=True))
            case ReturnNote() if note.thread in waiting:
                receive = waiting.pop(note.thread)
                if note.source >= 0:
                    receive.peer = receive.group.members[note.source]
    activity.steps += (Step(message, waits=True) for message in unwaited.values())
    return activity


def _elements(call: RankCall, n: int) -> int:
    """Return the elements of one rank's tensor, or of the parts of all ranks together."""
    if call.op == "all_to_all_single":  # its parts may be given as −1 and their sum
        return call.count
    if parts := call.send_counts or call.receive_counts:
        return sum(parts) * (n if call.op in INPUTS_ONLY else 1)
    return call.count * (n if call.rules.parts else 1)


# ---------------------------------------------------------------------------------------- rounds


def count_rounds(programs: Sequence[Sequence[Step]]) -> int:
    """Return the number of rounds that the messages of all ranks take.

    In a round, a rank sends at most one message and receives at most one; a link can do both at
    once (R. Thakur, R. Rabenseifner, W. Gropp, Optimization of Collective Communication Operations
    in MPICH, IJHPCA 19, 2005, section 3). A message is sent in the first round in which its sender
    has got that far and sends nothing else, and arrives at the end of the first round in which its
    receiver receives nothing else. A rank continues at once after a send, and after a receive when
    the message has arrived. A receive without a send in the block takes no round.

    Args:
        programs: Steps of each rank, in order.
    """
    n = len(programs)
    clocks = [0] * n
    next_send = [0] * n
    positions = [0] * n
    receiving: list[set[int]] = [set() for _ in programs]  # rounds in which a rank receives
    arrivals: defaultdict[tuple[object, ...], list[int]] = defaultdict(list)
    expected: defaultdict[tuple[object, ...], int] = defaultdict(int)

    def advance(rank: int, *, stuck: bool = False) -> bool:
        """Take the next step of a rank, if it can; a rank that is stuck waits for nothing."""
        if positions[rank] == len(programs[rank]):
            return False
        message, waits = programs[rank][positions[rank]]
        ends = (rank, message.peer) if message.sends else (message.peer, rank)
        channel = (message.group, *ends, message.tag)
        if waits:
            if message.nth < len(arrivals[channel]):
                end = arrivals[channel][message.nth]
                while end in receiving[rank]:
                    end += 1
                receiving[rank].add(end)
                clocks[rank] = max(clocks[rank], end)
            elif not stuck:
                return False
        elif message.sends:
            start = max(clocks[rank], next_send[rank])
            next_send[rank] = start + 1
            arrivals[channel].append(start + 1)
        else:
            message.nth = expected[channel]
            expected[channel] += 1
        positions[rank] += 1
        return True

    moved = True
    while moved:
        moved = False
        for rank in range(n):
            while advance(rank):
                moved = True
        moved = moved or any(advance(rank, stuck=True) for rank in range(n))
    return max(clocks, default=0)
