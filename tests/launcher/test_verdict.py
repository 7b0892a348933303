"""Verdicts: the root cause of a failed world, and the text about it."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

from golden import matches

from distdemo.launcher.records import (
    NOT_STARTED,
    CodeLine,
    Died,
    Lost,
    Outcome,
    Phase,
    Position,
    Raised,
    Returned,
    Stopped,
    TimedOut,
    WorldSpec,
    headline,
)
from distdemo.launcher.verdict import judge, lost_peer

CLOSED = (
    "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer "
    "[127.0.0.1]:49370. This is typically caused by a remote worker crashing."
)
JOINED = Phase(1, "joined the group")
ENTERED = Phase(2, "entered all_reduce")
LEFT = Phase(3, "left all_reduce")
IN_ALL_REDUCE = Position("all_reduce", CodeLine("train.py", 12, "step"))
CALL = "all_reduce at train.py:12 in step (call 2)"
BUSY = Position("", CodeLine("train.py", 7, "load"))


def returned(rank: int) -> Outcome:
    return Returned(rank=rank, phase=LEFT, at=0.5)


def raised(rank: int, at: float, message: str = "boom", **more: Any) -> Outcome:
    text = {"type": "ValueError", "message": message, "traceback": "Trace", **more}
    return Raised(rank=rank, at=at, phase=ENTERED, **text)


def affected(rank: int, at: float, message: str = CLOSED, missing: tuple[int, ...] = ()) -> Outcome:
    """Return the outcome of a rank that lost a peer, or whose barrier misses these ranks."""
    return raised(rank, at, message, type="RuntimeError", consequence=True, missing=missing)


def late(rank: int, phase: Phase = ENTERED, where: Position | None = IN_ALL_REDUCE) -> Outcome:
    return TimedOut(rank=rank, at=30.0, phase=phase, where=where)


def died(rank: int, at: float, **how: Any) -> Outcome:
    return Died(rank=rank, at=at, **{"phase": JOINED, **how})


def lost(rank: int, at: float, why: str = "no sign of life on h1 for 8 s") -> Outcome:
    return Lost(rank=rank, at=at, why=why, hint="Look at the network.")


BARRIER = "[Rank 0]: Ranks 2 failed to pass monitoredBarrier in 9 ms"
WORLDS: dict[str, tuple[Outcome, ...]] = {
    # Death and errors.
    "an earlier consequence": (affected(0, 0.1), raised(1, 0.2), affected(2, 0.3)),
    "a killed rank": (affected(0, 0.1), Stopped(rank=1), died(2, 0.9, signal=signal.SIGKILL)),
    "two causes": (raised(0, 0.3, "late"), raised(1, 0.1, "early"), returned(2)),
    "an exit": (died(0, 0.1, exit_code=1, message="no data in /tmp\nreally"), Stopped(rank=1)),
    "an exit at the start": (died(0, 0.1, exit_code=1, phase=NOT_STARTED), Stopped(rank=1)),
    "an exit without returning": (died(0, 0.1, exit_code=0, last_call=CALL), Stopped(rank=1)),
    "SIGSEGV": (died(0, 0.1, signal=signal.SIGSEGV, where=BUSY, last_call=CALL),),
    "SIGABRT": (died(0, 0.1, signal=signal.SIGABRT),),
    "a signal without a name": (died(0, 0.1, signal=41),),
    "no message": (raised(0, 0.1, ""),),
    "256 ranks": (raised(0, 0.1), *(affected(rank, 0.2) for rank in range(1, 256))),
    "no cause": (affected(1, 0.2), affected(0, 0.1)),
    # Monitored barrier.
    "a missed barrier": (
        affected(0, 0.5, BARRIER, (2,)),
        affected(1, 0.1),
        Stopped(rank=2, phase=JOINED),
    ),
    "a barrier that two missed": (affected(0, 0.5, BARRIER, (1, 3)), returned(1), affected(2, 0.1)),
    # Timeouts.
    "an earlier phase": (late(0), late(1, JOINED, BUSY), late(2)),
    "a rank that never started": (late(0), late(1, NOT_STARTED, None)),
    "no rank started": (late(0, NOT_STARTED, None), late(1, NOT_STARTED, None)),
    "a deadlock": tuple(late(rank, ENTERED, Position("send", CodeLine())) for rank in (0, 1)),
    "outside a collective": (late(0, JOINED), late(1, JOINED, BUSY), late(2, JOINED)),
    "no answer": (late(0), late(1, ENTERED, None), late(2)),
    "returned without joining in": (late(0), returned(1), late(2)),
    "a single rank": (late(0, JOINED, BUSY),),
    # Ended early, and lost nodes.
    "stopped": (Stopped(rank=0), returned(1)),
    "a lost node": (Stopped(rank=0), Stopped(rank=1), lost(2, 9.0), lost(3, 9.0)),
    "a lost node with a call": (Stopped(rank=0), replace(lost(1, 9.0), last_call=CALL)),
    "two lost nodes": (Stopped(rank=0), lost(1, 3.0), lost(2, 2.0, "its process is gone")),
    "a lost node after all returned": (returned(0), lost(1, 3.0)),
}


def described(outcomes: tuple[Outcome, ...], stall: float | None = None) -> str:
    found = judge(WorldSpec(len(outcomes), stall=stall), outcomes, stalled=stall is not None)
    assert found is not None
    ranks = f"{found.ranks[:9]} {found.consequences[:9]} {found.traceback}".rstrip()
    return f"{found.what}\n{found.why}\n{found.hint}\n{ranks}\n"


def test_verdicts() -> None:
    assert judge(WorldSpec(2), [returned(0), returned(1)]) is None
    texts = {name: described(outcomes) for name, outcomes in WORLDS.items()}
    texts["a stall"] = described(WORLDS["an earlier phase"], 5)
    texts["a stalled deadlock"] = described(WORLDS["a deadlock"], 5)
    text = "\n".join(f"## {name}\n{text}" for name, text in texts.items())
    matches(Path(__file__).parent / "golden" / "verdicts.txt", text)


def test_what_the_backend_says_of_a_peer_that_is_gone_is_known() -> None:
    for message in (
        CLOSED,
        "Read error [127.0.0.1]:19669: Connection reset by peer. This is ...",
        "Write error: Broken pipe",
        "Application timeout caused pair closure",
        "eof (this error originated at tensorpipe/transport/shm/connection_impl.cc:259)",
        "EOF: end of file (this error originated at tensorpipe/transport/uv/connection.cc:132)",
        "RPCErr:1:RPC ran for more than set timeout (500 ms) and will now be marked with an error",
        "Timed out waiting 1000ms for recv operation to complete",
        "Gloo connectFullMesh failed with timed out connecting",
        "wait timeout after 30000ms, keys: /default_pg/0//cpu//0/1",
        "The client socket has failed: Connection refused",
        "NCCL error in: NCCLUtils.cpp, remote process exited or there was a network error",
    ):
        assert lost_peer(message), message
    for message in ("The size of tensor a (3) must match tensor b (4)", "Invalid scalar type"):
        assert not lost_peer(message), message


def test_a_long_message_keeps_whole_sentences_of_both_ends() -> None:
    assert headline("one line\nand another\n") == "one line and another"
    frames = "\nException raised from run at /a.cpp:1 (most recent call first):\nframe #0: f"
    assert headline(f"NCCL error{frames}") == "NCCL error"
    first = "Expected to have finished reduction. This error indicates something."
    last = "Parameter indices which did not receive grad for rank 1: 2 3"
    middle = "A sentence in the middle. " * 100
    assert headline(f"{first} {middle}\n{last}").startswith(f"{first} A sentence")
    assert headline(f"{first} {middle}\n{last}").endswith(f"middle. [...] {last}")
    assert len(headline("x" * 100_000)) < 1000
