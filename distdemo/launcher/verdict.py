"""Why a world failed: which rank is the cause, and which only suffered.

Pure logic over outcomes. The cause is the earliest rank that died or raised something of its own;
a rank that lost its connection to another is a consequence. If nobody failed by itself, the cause
is whoever a monitored barrier names, or, when time ran out, whoever is furthest behind those that
wait.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from distdemo.launcher.records import (
    Died,
    Lost,
    Outcome,
    Raised,
    Returned,
    TimedOut,
    Verdict,
    WorldReport,
    WorldSpec,
    headline,
)

# What gloo, NCCL, TensorPipe and the stores say when the other side is gone (torch 2.8 to 2.15).
_LOST_PEER = re.compile(
    r"connection (was )?(closed|reset|refused|aborted)|connectFullMesh failed|broken pipe"
    r"|socket (closed|timeout)|timed out (waiting|after)|wait timeout|remote process exited"
    r"|peer .*(closed|died)|application timeout|\beof\b.*tensorpipe|RPC ran for more than",
    re.IGNORECASE,
)


LONGEST = 400  # characters of an exception's text in a verdict


def lost_peer(message: str) -> bool:
    """Whether an exception of the backend says no more than that another rank is gone."""
    return _LOST_PEER.search(message) is not None


def judge(
    world: WorldSpec, outcomes: Sequence[Outcome], *, stalled: bool = False
) -> Verdict | None:
    """The verdict over a world's outcomes, one a rank in order; None if every rank returned.

    Args:
        world: what was asked for.
        outcomes: how each rank ended.
        stalled: late ranks ran out of the world's patience, not of its timeout.
    """
    if all(isinstance(outcome, Returned) for outcome in outcomes):
        return None
    causes = sorted((o for o in outcomes if _is_cause(o)), key=lambda outcome: outcome.at)
    if causes:
        return _failed(causes, outcomes)
    suffering = sorted((o for o in outcomes if isinstance(o, Raised)), key=lambda o: o.at)
    accusers = [outcome for outcome in suffering if outcome.missing]
    if accusers:
        return _missed(accusers[0], outcomes)
    late = [outcome for outcome in outcomes if isinstance(outcome, TimedOut)]
    if late:
        return _timed_out(*_ran_out(world, stalled=stalled), late, outcomes)
    if suffering:
        return _abandoned(suffering, outcomes) or _failed(suffering, outcomes)
    return Verdict("The run was ended early.", "Its ranks were stopped.", "")


def interrupted(outcomes: Sequence[Outcome]) -> Verdict:
    """The verdict over a world that a signal ended: nobody is to blame, but where were they?"""
    late = [outcome for outcome in outcomes if isinstance(outcome, TimedOut)]
    why = _timed_out("", "", late, outcomes).why if late else "All its ranks were stopped."
    return Verdict("The run was interrupted.", why, "")


def report_of(stop: BaseException) -> WorldReport | None:
    """The report of the world that a signal ended, with where its ranks were; None without one."""
    return stop.__dict__.get("report")


def _is_cause(outcome: Outcome) -> bool:
    """Whether it failed by itself."""
    if isinstance(outcome, Raised):
        return not outcome.consequence
    return isinstance(outcome, Died | Lost)


# ------------------------------------------------------------------------------- death and errors


def _failed(causes: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
    first = causes[0]
    guilty = tuple(outcome.rank for outcome in causes)
    others = tuple(o.rank for o in outcomes if o.rank not in guilty and not isinstance(o, Returned))
    if isinstance(first, Lost):
        return _lost(first, causes, outcomes)
    what, hint, trace = _what(first)
    why = f"{_last_words(first)}It had got as far as: {first.phase.name}."
    if isinstance(first, Raised) and first.type == "UsageError":  # it says why, and what to try
        _, reason, advice = (*first.message.splitlines(), "", "")[:3]
        why, hint = f"{reason} {why}".strip(), advice or hint
    if len(guilty) > 1:
        why += f" {_ranks(guilty[1:])} failed by {_themselves(guilty[1:])} after it."
    if others:
        why += f" {_ranks(others)} lost it or {_were(others)} stopped: a consequence."
    excerpt = first.excerpt if isinstance(first, Raised) else ""
    return Verdict(what, why, hint, guilty, others, trace, excerpt)


def _what(first: Outcome) -> tuple[str, str, str]:
    """What the first cause is, what to try, and its traceback."""
    if isinstance(first, Died):
        return *_death(first), ""
    assert isinstance(first, Raised)  # noqa: S101 - tells the type checker what causes there are
    said = headline(first.message)
    said = f"{said[:LONGEST]}…" if len(said) > LONGEST else said
    what = f"Rank {first.rank} raised {first.type}: {said}".rstrip(": ")
    return what, _advice(first), first.traceback


def _lost(first: Lost, causes: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
    """A site is lost: all its ranks are, for the same reason."""
    guilty = tuple(o.rank for o in causes if isinstance(o, Lost) and o.why == first.why)
    left = tuple(o.rank for o in outcomes if not isinstance(o, Lost | Returned))
    why = "The other ranks had already returned."
    if left:
        why = f"{_ranks(left)} had to be stopped, or lost {_it(guilty)}: a consequence."
    return Verdict(f"{_ranks(guilty)}: {first.why}.", why, first.hint, guilty, left)


def _last_words(outcome: Outcome) -> str:
    words = headline(outcome.message) if isinstance(outcome, Died) else ""
    return f'It left saying "{words}". ' if words else ""


def _death(died: Died) -> tuple[str, str]:
    if died.signal is None:
        what = f"Rank {died.rank} ended with exit code {died.exit_code} before it was done."
        if died.phase.step < 0:
            return what, (
                "It could not start: look above for what it wrote. If your script calls launch "
                "at its top level, put that under `if __name__ == '__main__':`."
            )
        return what, "Something in it called sys.exit or os._exit: look at what it wrote."
    name = _signal_name(died.signal)
    hint = {
        "SIGKILL": "If nobody killed it, the system ran out of memory: fewer ranks, smaller data.",
        "SIGABRT": "The backend gave up inside C++: tensors of different size or dtype on the "
        "two sides do this.",
        "SIGSEGV": "A crash in native code: try another backend or torch release.",
        "SIGBUS": "Shared memory may be full: look at the size of /dev/shm.",
    }.get(name, "Find out who sent the signal.")
    return f"Rank {died.rank} was killed by {name}.", hint


def _advice(raised: Raised) -> str:
    if raised.consequence:
        return "No rank reported a cause of its own. Run it again; --timeout gives slow ranks time."
    return "The traceback below is from that rank."


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _abandoned(suffering: Sequence[Raised], outcomes: Sequence[Outcome]) -> Verdict | None:
    """Nobody failed by itself, but some have gone, and others have lost their peers."""
    left = [outcome for outcome in outcomes if isinstance(outcome, Returned) and outcome.left]
    if not left:
        return None
    gone, lost = tuple(o.rank for o in left), tuple(o.rank for o in suffering)
    return Verdict(
        f"{_ranks(gone)} had left when {_ranks(lost).lower()} still needed {_it(gone)}.",
        f"{_ranks(gone)} ended with exit code 0. {_ranks(lost)} lost {_it(gone)}: a consequence.",
        "All ranks have to make the same collective calls before the first one leaves.",
        gone,
        lost,
        suffering[0].traceback,
        suffering[0].excerpt,
    )


def _missed(accuser: Raised, outcomes: Sequence[Outcome]) -> Verdict:
    """A monitored barrier gave up and named the ranks that it waited for."""
    missing = accuser.missing
    waited = tuple(o.rank for o in outcomes if isinstance(o, Raised) and o.rank not in missing)
    first = outcomes[missing[0]]
    why = f"Rank {first.rank} {_doing(first)}. "
    why += (
        f"{_ranks(waited)} waited for {_it(missing)} and {_were(waited)} let down: a consequence."
    )
    hint = "Look at what holds it up; a longer timeout of the barrier gives slow ranks more time."
    what = f"{_ranks(missing)} never came to the barrier: {headline(accuser.message)}."
    return Verdict(what, why, hint, missing, waited, accuser.traceback, accuser.excerpt)


# ---------------------------------------------------------------------------------------- timeout


def _ran_out(world: WorldSpec, *, stalled: bool) -> tuple[str, str]:
    """What ended the wait, in words, and how to wait longer."""
    longer = "A longer timeout gives slow ranks more time."
    if not stalled or world.stall is None:
        return f"Timed out after {world.deadline:g} s", longer
    if world.user_program is None:
        return f"No progress for {world.stall:g} s", longer
    return (
        f"For {world.stall:g} s no rank wrote anything or used the processor",
        "If they wait for something slow on purpose, --stall gives them more time.",
    )


def _timed_out(
    what: str, longer: str, late: list[TimedOut], outcomes: Sequence[Outcome]
) -> Verdict:
    if all(outcome.phase.step < 0 for outcome in late):
        why = "The system was still starting them."
        return Verdict(f"{what}: no rank was up by then.", why, longer)
    guilty = _absent(late, outcomes)
    waiting = tuple(outcome.rank for outcome in late if outcome.rank not in guilty)
    if not guilty:
        doing = _doing(late[0])
        return Verdict(
            f"{what}: {_ranks(tuple(o.rank for o in late))} wait for each other.",
            f"Rank {late[0].rank} {doing}.",
            f"A deadlock: look for ranks that all send, or all receive, first. {longer}",
            (),
            tuple(outcome.rank for outcome in late),
        )
    first = outcomes[guilty[0]]
    why = f"Rank {first.rank} {_doing(first)}."
    if waiting:
        example = outcomes[waiting[0]]
        why += f" {_ranks(waiting)} {_wait(waiting)} for it; rank {example.rank} {_doing(example)}."
    never = "never arrived" if waiting else f"{_were(guilty)} not done"
    return Verdict(f"{what}: {_ranks(guilty).lower()} {never}.", why, longer, guilty, waiting)


def _absent(late: list[TimedOut], outcomes: Sequence[Outcome]) -> tuple[int, ...]:
    """The ranks that the others wait for; empty if all wait alike."""
    furthest = max(outcome.phase.step for outcome in late)
    behind = [outcome.rank for outcome in late if outcome.phase.step < furthest]
    if behind:
        # One that was stopped may hold up others on their way: it alone does not answer.
        silent = [r for r in behind if _mute(outcomes[r])]
        return tuple(silent if 0 < len(silent) < len(behind) else behind)
    # All are in the same phase: those that don't answer, or stand in no collective, hold up those
    # that do.
    mute = [outcome.rank for outcome in late if outcome.where is None]
    if 0 < len(mute) < len(late):
        return tuple(mute)
    idle = [outcome.rank for outcome in late if outcome.where and not outcome.where.collective]
    if idle:
        return tuple(idle)
    gone = [outcome.rank for outcome in outcomes if isinstance(outcome, Returned)]
    return tuple(gone) or (() if len(late) > 1 else (late[0].rank,))


def _mute(outcome: Outcome) -> bool:
    """Whether a rank that was up did not say where it is."""
    return isinstance(outcome, TimedOut) and outcome.where is None and outcome.phase.step >= 0


def _doing(outcome: Outcome) -> str:
    """What a rank was doing last, in words."""
    if isinstance(outcome, Returned):
        return "returned without joining in"
    where = outcome.where if isinstance(outcome, TimedOut) else None
    if where is None and isinstance(outcome, TimedOut) and outcome.phase.step >= 0:
        return f"did not answer (phase: {outcome.phase.name}): stopped, or stuck in the kernel"
    if where is None:
        return (
            f"was last heard of when it had {outcome.phase.name}"
            if outcome.phase.step >= 0
            else "never started"
        )
    at = f" at {where.place}" if where.place else ""
    if where.collective:
        return f"is waiting in {where.collective}{at} (phase: {outcome.phase.name})"
    return f"is{at or ' busy'} (phase: {outcome.phase.name})"


# ------------------------------------------------------------------------------------------ words


def _ranks(ranks: tuple[int, ...]) -> str:
    """``Rank 2`` or ``Ranks 0, 1, 3``; long lists are cut."""
    if len(ranks) == 1:
        return f"Rank {ranks[0]}"
    if len(ranks) > 8:
        return f"Ranks {', '.join(map(str, ranks[:6]))} and {len(ranks) - 6} more"
    return f"Ranks {', '.join(map(str, ranks))}"


def _it(ranks: tuple[int, ...]) -> str:
    return "it" if len(ranks) == 1 else "them"


def _were(ranks: tuple[int, ...]) -> str:
    return "was" if len(ranks) == 1 else "were"


def _wait(ranks: tuple[int, ...]) -> str:
    return "waits" if len(ranks) == 1 else "wait"


def _themselves(ranks: tuple[int, ...]) -> str:
    return "itself" if len(ranks) == 1 else "themselves"
