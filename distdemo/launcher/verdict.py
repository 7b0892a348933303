"""Why a world failed: which rank is the cause, and which only suffered.

Pure logic over outcomes. The cause is the earliest rank that died or raised something of its own;
a rank that lost its connection to another is a consequence. If nobody failed by itself, the cause
is the rank that a monitored barrier names or, when time ran out, the one that is furthest behind
those that wait.
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
    accuser = next((outcome for outcome in suffering if outcome.missing), None)
    if accuser is not None:
        return _missed(accuser, outcomes)
    late = [outcome for outcome in outcomes if isinstance(outcome, TimedOut)]
    if late:
        what, longer = (
            f"Timed out after {world.deadline:g} s",
            "If they are only slow, a longer timeout gives them more time.",
        )
        if stalled and world.stall is not None:
            what = f"No progress for {world.stall:g} s"
            if world.user_program is not None:
                what = f"For {world.stall:g} s no rank wrote anything or used the processor"
                longer = "If they wait for something slow on purpose, --stall gives them more time."
        return _timed_out(what, longer, late, outcomes)
    if suffering:
        return _abandoned(suffering, outcomes) or _failed(suffering, outcomes)
    return Verdict("The run was ended early.", "Its ranks were stopped.", "")


def interrupted(outcomes: Sequence[Outcome]) -> Verdict:
    """The verdict over a world that a signal ended: nobody is to blame, but where were they?"""
    late = [outcome for outcome in outcomes if isinstance(outcome, TimedOut)]
    why = _timed_out("", "", late, outcomes).why if late else "All its ranks were stopped."
    return Verdict("The run was interrupted.", why, "")


def names_cause(judged: Verdict | None, outcomes: Sequence[Outcome]) -> bool:
    """Return True if the ranks at fault failed; one that only ran on has caused nothing."""
    guilty = () if judged is None else judged.ranks
    return any(isinstance(outcomes[rank], Died | Lost | Raised) for rank in guilty)


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
    if isinstance(first, Lost):  # all ranks of a node are, for the same reason
        guilty = tuple(o.rank for o in causes if isinstance(o, Lost) and o.why == first.why)
        others = tuple(o.rank for o in outcomes if not isinstance(o, Lost | Returned))
        why = "The other ranks had already returned."
        if others:
            why = f"{ranks_of(others)} had to be stopped, or lost {_it(guilty)}: a consequence."
        return Verdict(f"{ranks_of(guilty)}: {first.why}.", why, first.hint, guilty, others)
    guilty = tuple(outcome.rank for outcome in causes)
    others = tuple(o.rank for o in outcomes if o.rank not in guilty and not isinstance(o, Returned))
    why, trace, excerpt = f"It had got as far as: {first.phase.name}.", "", ""
    if isinstance(first, Died):
        what, hint = _death(first)
        if words := headline(first.message):
            why = f'It left saying "{words}". {why}'
    else:
        assert isinstance(first, Raised)  # noqa: S101 - tells the type checker what causes there are
        trace, excerpt = first.traceback, first.excerpt
        said = headline(first.message)
        said = f"{said[:LONGEST]}…" if len(said) > LONGEST else said
        what = f"Rank {first.rank} raised {first.type}: {said}".rstrip(": ")
        hint = "The traceback below is from that rank."
        if first.consequence:
            hint = "No rank reported a cause of its own: one may have left its process group early."
        if first.type == "UsageError":  # it says why, and what to try
            _, reason, advice = (*first.message.splitlines(), "", "")[:3]
            why, hint = f"{reason} {why}".strip(), advice or hint
    if isinstance(first, Raised) and first.consequence:
        if len(guilty) > 1:
            why += f" {ranks_of(guilty[1:])} lost a peer after it."
        if others:
            why += f" {ranks_of(others)} had not failed."
        return Verdict(what, why, hint, guilty, others, trace, excerpt)
    if len(guilty) > 1:
        itself = "itself" if len(guilty) == 2 else "themselves"
        why += f" {ranks_of(guilty[1:])} failed by {itself} after it."
    if others:
        why += f" {ranks_of(others)} lost it or {_were(others)} stopped: a consequence."
    return Verdict(what, why, hint, guilty, others, trace, excerpt)


def _death(died: Died) -> tuple[str, str]:
    """What happened, and what to try."""
    if died.signal is None:
        what = f"Rank {died.rank} ended with exit code {died.exit_code} before it was done."
        if died.phase.step < 0:
            return what, (
                "It could not start: look above for what it wrote. If your script calls launch "
                "at its top level, put that under `if __name__ == '__main__':`."
            )
        return what, "Something in it called sys.exit or os._exit: look at what it wrote."
    try:
        name = signal.Signals(died.signal).name
    except ValueError:
        name = f"signal {died.signal}"
    hint = {
        "SIGKILL": "If nobody killed it, the system ran out of memory: fewer ranks, smaller data.",
        "SIGABRT": "The backend gave up inside C++: tensors of different size or dtype on the "
        "two sides do this.",
        "SIGSEGV": "A crash in native code: try another backend or torch release.",
        "SIGBUS": "Shared memory may be full: look at the size of /dev/shm.",
    }.get(name, "Find out who sent the signal.")
    return f"Rank {died.rank} was killed by {name}.", hint


def _abandoned(suffering: Sequence[Raised], outcomes: Sequence[Outcome]) -> Verdict | None:
    """Nobody failed by itself, but some have gone, and others have lost their peers."""
    gone = tuple(o.rank for o in outcomes if isinstance(o, Returned) and o.left)
    lost = tuple(o.rank for o in suffering)
    if not gone:
        return None
    return Verdict(
        f"{ranks_of(gone)} had left when {ranks_of(lost).lower()} still needed {_it(gone)}.",
        f"{ranks_of(gone)} ended with exit code 0. "
        f"{ranks_of(lost)} lost {_it(gone)}: a consequence.",
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
    return Verdict(
        f"{ranks_of(missing)} never came to the barrier: {headline(accuser.message)}.",
        f"Rank {first.rank} {_doing(first)}. {ranks_of(waited)} waited for {_it(missing)}.",
        "Look at what holds it up; a longer timeout of the barrier gives slow ranks more time.",
        missing,
        waited,
        accuser.traceback,
        accuser.excerpt,
    )


# ---------------------------------------------------------------------------------------- timeout


def _timed_out(
    what: str, longer: str, late: list[TimedOut], outcomes: Sequence[Outcome]
) -> Verdict:
    if all(outcome.phase.step < 0 for outcome in late):
        why = "The system was still starting them."
        return Verdict(f"{what}: no rank was up by then.", why, longer)
    guilty = _absent(late, outcomes)
    waiting = tuple(outcome.rank for outcome in late if outcome.rank not in guilty)
    if not guilty:
        return Verdict(
            f"{what}: {ranks_of(waiting)} wait for each other.",
            f"Rank {late[0].rank} {_doing(late[0])}.",
            f"A deadlock: look for ranks that all send, or all receive, first. {longer}",
            (),
            waiting,
        )
    why = f"Rank {guilty[0]} {_doing(outcomes[guilty[0]])}."
    if waiting:
        wait = "waits" if len(waiting) == 1 else "wait"
        example = f"rank {waiting[0]} {_doing(outcomes[waiting[0]])}"
        why += f" {ranks_of(waiting)} {wait} for {_it(guilty)}; {example}."
    never = "never arrived" if waiting else f"{_were(guilty)} not done"
    return Verdict(f"{what}: {ranks_of(guilty).lower()} {never}.", why, longer, guilty, waiting)


def _absent(late: list[TimedOut], outcomes: Sequence[Outcome]) -> tuple[int, ...]:
    """The ranks that the others wait for; empty if all wait alike.

    Of those that are a phase behind, or else of all, the ones that don't answer: one that was
    stopped may hold up others on their way. Else those that are behind, or stand in no collective.
    """
    furthest = max(outcome.phase.step for outcome in late)
    behind = [outcome for outcome in late if outcome.phase.step < furthest]
    asked = behind or late
    silent = [o.rank for o in asked if o.where is None and o.phase.step >= 0]
    if 0 < len(silent) < len(asked):
        return tuple(silent)
    if behind:
        return tuple(outcome.rank for outcome in behind)
    idle = [outcome.rank for outcome in late if outcome.where and not outcome.where.collective]
    if idle:
        return tuple(idle)
    gone = [outcome.rank for outcome in outcomes if isinstance(outcome, Returned)]
    return tuple(gone) or (() if len(late) > 1 else (late[0].rank,))


def _doing(outcome: Outcome) -> str:
    """What a rank was doing last, in words."""
    if isinstance(outcome, Returned):
        return "returned without joining in"
    if outcome.phase.step < 0:
        return "never started"
    phase = outcome.phase.name
    if not isinstance(outcome, TimedOut):
        return f"was last heard of when it had {phase}"
    if outcome.where is None:
        return f"did not answer (phase: {phase}): stopped, or stuck in the kernel"
    at = f"at {outcome.where.place}" if outcome.where.place else f"(phase: {phase})"
    if outcome.where.collective:
        return f"is waiting in {outcome.where.collective} {at}"
    return f"is {at}" if outcome.where.place else f"is busy {at}"


# ------------------------------------------------------------------------------------------ words


def ranks_of(ranks: Sequence[int]) -> str:
    """Return ``Rank 2`` or ``Ranks 0, 1, 3``, in ascending order; long lists are cut."""
    if len(ranks) == 1:
        return f"Rank {ranks[0]}"
    names = [str(rank) for rank in sorted(ranks)]
    if len(names) > 8:
        return f"Ranks {', '.join(names[:6])} and {len(names) - 6} more"
    return f"Ranks {', '.join(names)}"


def _it(ranks: tuple[int, ...]) -> str:
    return "it" if len(ranks) == 1 else "them"


def _were(ranks: tuple[int, ...]) -> str:
    return "was" if len(ranks) == 1 else "were"
