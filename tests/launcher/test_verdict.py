from __future__ import annotations

import signal

from distdemo.launcher.records import (
    NOT_STARTED,
    Died,
    Lost,
    Outcome,
    Phase,
    Raised,
    Returned,
    Stopped,
    TimedOut,
    Verdict,
    Where,
    WorldSpec,
)
from distdemo.launcher.verdict import judge, lost_peer, ranks_of

CLOSED = (
    "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer "
    "[127.0.0.1]:49370. This is typically caused by a remote worker crashing."
)
JOINED = Phase(1, "joined the group")
ENTERED = Phase(2, "entered all_reduce")
LEFT = Phase(3, "left all_reduce")
IN_ALL_REDUCE = Where("all_reduce", "train.py:12 in step")
BUSY = Where("", "train.py:7 in load")


def returned(rank: int) -> Outcome:
    return Returned(rank=rank, phase=LEFT, at=0.5)


def raised(rank: int, at: float, message: str = "boom") -> Outcome:
    return Raised(
        rank=rank, at=at, phase=ENTERED, type="ValueError", message=message, traceback="Trace"
    )


def affected(rank: int, at: float) -> Outcome:
    return Raised(
        rank=rank,
        at=at,
        phase=ENTERED,
        type="RuntimeError",
        message=CLOSED,
        traceback="Trace",
        consequence=True,
    )


def late(rank: int, phase: Phase = ENTERED, where: Where | None = IN_ALL_REDUCE) -> TimedOut:
    return TimedOut(rank=rank, at=30.0, phase=phase, where=where)


def verdict(*outcomes: Outcome) -> Verdict:
    found = judge(WorldSpec(len(outcomes)), outcomes)
    assert found is not None
    assert found.what
    assert found.why
    return found


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


# ---------------------------------------------------------------------------- death and errors


def test_a_world_in_which_every_rank_returned_has_no_verdict() -> None:
    assert judge(WorldSpec(2), [returned(0), returned(1)]) is None


def test_a_cause_takes_precedence_over_an_earlier_consequence() -> None:
    found = verdict(affected(0, 0.1), raised(1, 0.2), affected(2, 0.3))
    assert (found.ranks, found.consequences) == ((1,), (0, 2))
    assert (found.what, found.traceback) == ("Rank 1 raised ValueError: boom", "Trace")
    assert "Ranks 0, 2 were disconnected or stopped as a consequence" in found.why
    dead = Died(rank=2, at=0.9, phase=JOINED, signal=signal.SIGKILL)
    found = verdict(affected(0, 0.1), Stopped(rank=1), dead)
    assert (found.ranks, found.consequences) == ((2,), (0, 1))
    assert found.what == "Rank 2 was killed by SIGKILL."
    assert "joined the group" in found.why
    assert verdict(late(0), raised(1, 0.1)).ranks == (1,)  # and those that wait
    assert verdict(gave_up(0, (1,)), raised(1, 0.9)).ranks == (1,)
    assert verdict(Stopped(rank=0), raised(1, 0.1)).ranks == (1,)  # and an early end


def test_of_several_causes_the_earliest_comes_first() -> None:
    found = verdict(raised(0, 0.3, "late"), raised(1, 0.1, "early"), returned(2))
    assert found.ranks == (1, 0)
    assert "early" in found.what
    assert "Rank 0 also failed, later" in found.why
    assert found.consequences == ()


def test_a_rank_that_exited_is_reported_with_its_exit_code_and_message() -> None:
    left = Died(rank=0, at=0.1, phase=ENTERED, exit_code=1, message="no data in /tmp\nreally")
    found = verdict(left, Stopped(rank=1))
    assert "Rank 0 exited with code 1 before it finished." in found.what
    assert found.why.startswith('Its message: "no data in /tmp". Last phase reached')
    assert "sys.exit" in found.hint
    found = verdict(Died(rank=0, at=0.1, exit_code=1), Stopped(rank=1))
    assert "__main__" in found.hint  # the rank never started


def test_every_signal_is_named_and_has_advice() -> None:
    for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM):
        found = verdict(Died(rank=0, at=0.1, phase=ENTERED, signal=number))
        assert number.name in found.what
        assert found.hint
    assert "signal 41" in verdict(Died(rank=0, at=0.1, signal=41)).what


def test_messages_and_lists_of_ranks_are_shortened() -> None:
    assert verdict(raised(0, 0.1, "first\nsecond")).what == "Rank 0 raised ValueError: first"
    assert verdict(raised(0, 0.1, "")).what == "Rank 0 raised ValueError"
    found = verdict(raised(0, 0.1), *(affected(rank, 0.2) for rank in range(1, 256)))
    assert len(found.consequences) == 255
    assert "Ranks 1, 2, 3, 4, 5, 6 and 249 more" in found.why


def test_consequences_without_a_cause_are_reported() -> None:
    found = verdict(affected(1, 0.2), affected(0, 0.1))
    assert found.ranks == (0, 1)
    assert "No rank reported another cause" in found.hint


# ---------------------------------------------------------------------------- monitored barrier


def gave_up(rank: int, missing: tuple[int, ...]) -> Outcome:
    text = f"[Rank 0]: Ranks {', '.join(map(str, missing))} failed to pass monitoredBarrier in 9 ms"
    return Raised(
        rank=rank,
        at=0.5,
        phase=JOINED,
        type="RuntimeError",
        message=text,
        traceback="Trace",
        consequence=True,
        missing=missing,
    )


def test_ranks_that_missed_a_monitored_barrier_are_the_cause() -> None:
    found = verdict(gave_up(0, (2,)), affected(1, 0.1), Stopped(rank=2, phase=JOINED))
    assert (found.ranks, found.consequences) == ((2,), (0, 1))
    assert found.what.startswith("Rank 2 never reached the barrier: [Rank 0]: Ranks 2 failed to")
    assert "Rank 2 last reported that it had joined the group" in found.why
    assert found.traceback == "Trace"
    found = verdict(gave_up(0, (1, 3)), returned(1), affected(2, 0.1), Stopped(rank=3))
    assert (found.ranks, found.consequences) == ((1, 3), (0, 2))
    assert "Rank 1 returned without joining in" in found.why
    assert "Ranks 0, 2 waited for them" in found.why


# ------------------------------------------------------------------------------------ timeouts


def test_the_rank_in_the_earliest_phase_is_at_fault() -> None:
    found = verdict(late(0), late(1, JOINED, BUSY), late(2))
    assert (found.ranks, found.consequences) == ((1,), (0, 2))
    assert found.what == "Timed out after 30 s: rank 1 never arrived."
    assert "train.py:7 in load" in found.why
    assert "Ranks 0, 2 wait for it" in found.why
    stalled = judge(WorldSpec(2, stall=5), [late(0), late(1, JOINED, BUSY)], stalled=True)
    assert stalled is not None
    assert stalled.what == "No progress for 5 s: rank 1 never arrived."
    found = verdict(late(0), late(1, NOT_STARTED, None))
    assert found.ranks == (1,)
    assert "Rank 1 never started" in found.why


def test_no_rank_is_at_fault_if_none_started_or_all_wait() -> None:
    found = verdict(late(0, NOT_STARTED, None), late(1, NOT_STARTED, None))
    assert found.ranks == ()
    assert "no rank had started" in found.what
    found = verdict(late(0, ENTERED, Where("send", "")), late(1, ENTERED, Where("send", "")))
    assert (found.ranks, found.consequences) == ((), (0, 1))
    assert "ranks 0, 1 are waiting for each other" in found.what
    assert "waiting in send" in found.why


def test_in_the_same_phase_ranks_outside_a_collective_are_at_fault() -> None:
    found = verdict(late(0, JOINED), late(1, JOINED, BUSY), late(2, JOINED))
    assert (found.ranks, found.consequences) == ((1,), (0, 2))
    assert "Rank 1 is at train.py:7 in load" in found.why
    assert "rank 0 is waiting in all_reduce at train.py:12 in step" in found.why
    found = verdict(late(0), late(1, ENTERED, None), late(2))  # one doesn't answer
    assert (found.ranks, found.consequences) == ((1,), (0, 2))
    assert "Rank 1 did not answer (phase: entered all_reduce)" in found.why
    found = verdict(late(0), returned(1), late(2))
    assert (found.ranks, found.consequences) == ((1,), (0, 2))
    assert "Rank 1 returned without joining in" in found.why
    found = verdict(late(0, JOINED, BUSY))
    assert found.ranks == (0,)
    assert "rank 0 did not finish" in found.what


# -------------------------------------------------------------------- ended early, and lost nodes


def test_a_world_that_was_only_stopped_was_ended_early() -> None:
    found = verdict(Stopped(rank=0), returned(1))
    assert (found.ranks, found.consequences) == ((), ())
    assert found.what == "The run was ended early."


def lost(rank: int, at: float, why: str = "no sign of life on h1 for 8 s") -> Outcome:
    return Lost(rank=rank, at=at, why=why, hint="Look at the network.")


def test_ranks_are_named_in_ascending_order() -> None:
    assert ranks_of((3,)) == "Rank 3"
    assert ranks_of((3, 1, 2)) == "Ranks 1, 2, 3"
    assert ranks_of(tuple(range(11, 1, -1))) == "Ranks 2, 3, 4, 5, 6, 7 and 4 more"


def test_the_ranks_of_a_lost_node_are_the_cause_despite_earlier_consequences() -> None:
    found = verdict(Stopped(rank=0), Stopped(rank=1), lost(2, 9.0), lost(3, 9.0))
    assert found.what == "Ranks 2, 3: no sign of life on h1 for 8 s."
    assert found.hint == "Look at the network."
    assert (found.ranks, found.consequences) == ((2, 3), (0, 1))
    for other in (affected(0, 0.2), late(0)):
        found = verdict(other, lost(1, 8.3))
        assert (found.ranks, found.consequences) == ((1,), (0,))
    found = verdict(Stopped(rank=0), lost(1, 3.0), lost(2, 2.0, "its process is gone"))
    assert (found.what, found.ranks) == ("Rank 2: its process is gone.", (2,))
    found = verdict(raised(0, 0.2), lost(1, 8.3))
    assert found.ranks == (0, 1)
    assert "Rank 0 raised ValueError: boom" in found.what
    assert verdict(returned(0), lost(1, 3.0)).consequences == ()
