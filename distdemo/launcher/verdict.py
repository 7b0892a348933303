"""Find the root cause of a failed world.

Pure logic over outcomes. The cause is the earliest rank that died or raised its own exception; a
rank that only lost its connection to another is a consequence. If there is no such rank, the cause
is the rank that a monitored barrier names or, after a timeout, the rank furthest behind those that
wait.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

from distdemo.launcher.records import (
    Died,
    Limit,
    Lost,
    Outcome,
    Raised,
    Returned,
    TimedOut,
    Verdict,
    WorldReport,
    WorldSpec,
    headline,
    signal_name,
)

# Messages of gloo, NCCL, TensorPipe and the stores when a peer has exited (torch 2.8 to 2.15).
_LOST_PEER = re.compile(
    r"connection (was )?(closed|reset|refused|aborted)|connectFullMesh failed|broken pipe"
    r"|socket (closed|timeout)|timed out (waiting|after)|wait timeout|remote process exited"
    r"|peer .{0,200}(closed|died)|application timeout|\beof\b.{0,200}tensorpipe"
    r"|RPC ran for more than",
    re.IGNORECASE,
)


JOINED_STEP = 1  # later phases are reported by the function that the ranks run


def lost_peer(message: str) -> bool:
    """Return True if a message of a backend only reports a lost peer."""
    return _LOST_PEER.search(message) is not None


def judge(
    world: WorldSpec, outcomes: Sequence[Outcome], *, stalled: bool = False
) -> Verdict | None:
    """Return the verdict for a world, or None if every rank returned.

    Args:
        world: World that was started.
        outcomes: Outcome of each rank, in order.
        stalled: True if the stall limit passed rather than the deadline.
    """
    if all(isinstance(outcome, Returned) for outcome in outcomes):
        return None
    causes = sorted((o for o in outcomes if _is_cause(o)), key=lambda outcome: outcome.at)
    if causes:
        return _failed(world, causes, outcomes)
    affected = sorted((o for o in outcomes if isinstance(o, Raised)), key=lambda o: o.at)
    accuser = next((outcome for outcome in affected if outcome.missing), None)
    if accuser is not None:
        return _missing_at_barrier(accuser, outcomes)
    late = [outcome for outcome in outcomes if isinstance(outcome, TimedOut)]
    if late:
        return _timed_out(world, late, outcomes, "stall" if stalled else "deadline")
    if affected:
        return _exited_early(affected, outcomes) or _failed(world, affected, outcomes)
    return Verdict("The run was ended early.", "Its ranks were stopped.", "")


def interrupted(outcomes: Sequence[Outcome]) -> Verdict:
    """Return the verdict for a world that a signal ended: no rank is at fault."""
    late = [outcome for outcome in outcomes if isinstance(outcome, TimedOut)]
    why = _positions(late, _absent(late, outcomes), outcomes) if late else ""
    return Verdict("The run was interrupted.", why or "All its ranks were stopped.", "")


def names_cause(judged: Verdict | None, outcomes: Sequence[Outcome]) -> bool:
    """Return True if a rank at fault failed, rather than timed out or was stopped."""
    guilty = () if judged is None else judged.ranks
    return any(isinstance(outcomes[rank], Died | Lost | Raised) for rank in guilty)


def report_of(stop: BaseException) -> WorldReport | None:
    """Return the report of the world that a signal ended, or None."""
    return stop.__dict__.get("report")


def _is_cause(outcome: Outcome) -> bool:
    """Return True if the rank's failure isn't a consequence of another one."""
    if isinstance(outcome, Raised):
        return not outcome.consequence
    return isinstance(outcome, Died | Lost)


# ------------------------------------------------------------------------------- death and errors

_SIGNALS = {
    "SIGKILL": "Unless someone killed it, memory ran out: use fewer ranks or smaller data.",
    "SIGABRT": "The backend aborted in C++: check that tensors have the same size and dtype on all "
    "ranks.",
    "SIGSEGV": "A crash in native code: try another backend or torch release.",
    "SIGBUS": "Shared memory may be full: check the size of /dev/shm.",
}
"""Hint by signal."""


def _failed(world: WorldSpec, causes: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
    first = causes[0]
    if isinstance(first, Lost):  # all ranks of a node are lost for the same reason
        causes = [o for o in causes if isinstance(o, Lost) and o.why == first.why]
    guilty = tuple(outcome.rank for outcome in causes)
    others = tuple(o.rank for o in outcomes if o.rank not in guilty and not isinstance(o, Returned))
    trace = ""
    reason = _reached(world, first)
    if isinstance(first, Lost):
        what = f"{ranks_of(guilty)}: {first.why}."
        hint = first.hint
        known = f"The last call known of rank {first.rank} was {first.last_call}."
        reason = known if first.last_call else ""
    elif isinstance(first, Died):
        what, hint = _death(first)
        if text := headline(first.message):
            reason = f'Its message: "{text}". {reason}'.strip()
    else:
        assert isinstance(first, Raised)  # for the type checker
        trace = first.traceback
        said = headline(first.message)
        hint = first.hint
        reason = f"{first.why} {reason}"
        what = f"Rank {first.rank} raised {first.type}: {said}".rstrip(": ")
        if first.consequence:
            hint = "No rank reported another cause: one may have destroyed its process group early."
    if len(guilty) > 1 and not isinstance(first, Lost):
        reason += f" {ranks_of(guilty[1:])} also failed, later."
    if others:
        were = "was" if len(others) == 1 else "were"
        reason += f" {ranks_of(others)} {were} disconnected or stopped as a consequence."
    return Verdict(what, reason.strip(), hint, guilty, others, trace)


def _reached(world: WorldSpec, outcome: Outcome) -> str:
    """Return what is known of how far a rank got: its line and last call, or its phase."""
    line = str(outcome.where.source_line) if outcome.where else ""
    facts = [f"It was at {line}."] if line else []
    if outcome.last_call:
        facts.append(f"Its last call was {outcome.last_call}.")
    if not facts and world.user_program is None:
        facts = [f"Last phase reached: {outcome.phase.name}."]
    return " ".join(facts)


def _death(died: Died) -> tuple[str, str]:
    """Return what happened to the rank, and a hint."""
    if died.signal is not None:
        name = signal_name(died.signal)
        hint = _SIGNALS.get(name, "Find out who sent the signal.")
        return f"Rank {died.rank} was killed by {name}.", hint
    if died.exit_code == 0:
        return f"Rank {died.rank} exited without returning.", "It called os._exit(0)."
    what = f"Rank {died.rank} exited with code {died.exit_code} before it finished."
    if died.phase.step < 0:
        return what, (
            "It could not start: see its output above. If your script calls launch at its top "
            "level, put the call under `if __name__ == '__main__':`."
        )
    return what, "It called sys.exit or os._exit: check its output."


def _exited_early(affected: Sequence[Raised], outcomes: Sequence[Outcome]) -> Verdict | None:
    """Return a verdict on ranks that exited early, as the only failures are lost connections."""
    gone = tuple(o.rank for o in outcomes if isinstance(o, Returned) and o.left)
    lost = tuple(o.rank for o in affected)
    if not gone:
        return None
    return Verdict(
        f"{ranks_of(gone)} exited, with code 0, while {ranks_of(lost).lower()} still needed it.",
        f"{ranks_of(lost)} lost the connection as a consequence.",
        "Every rank must make the same collective calls before any rank exits.",
        gone,
        lost,
    )


def _missing_at_barrier(accuser: Raised, outcomes: Sequence[Outcome]) -> Verdict:
    """Return the verdict for a monitored barrier, whose error names the missing ranks."""
    missing = accuser.missing
    waited = tuple(o.rank for o in outcomes if isinstance(o, Raised) and o.rank not in missing)
    first = outcomes[missing[0]]
    return Verdict(
        f"{ranks_of(missing)} never reached the barrier: {headline(accuser.message)}.",
        f"Rank {first.rank} {_activity(first)}. {ranks_of(waited)} waited.",
        "Find out what delays it; if it is just slow, raise the barrier's timeout.",
        missing,
        waited,
        accuser.traceback,
    )


# ---------------------------------------------------------------------------------------- timeout


def limit_text(world: WorldSpec, limit: Limit) -> str:
    """Return the beginning of a sentence on a world that ended at this limit."""
    if limit == "deadline" or world.stall is None:
        return f"Timed out after {world.deadline:g} s"
    if world.user_program is not None or world.silent:
        return f"For {world.stall:g} s no rank wrote anything or used the processor"
    return f"No progress for {world.stall:g} s"


def _timed_out(
    world: WorldSpec, late: list[TimedOut], outcomes: Sequence[Outcome], limit: Limit
) -> Verdict:
    """Return the verdict for ranks that were still running; a deadlock only if they stalled."""
    what = limit_text(world, limit)
    stalled = limit == "stall"
    longer = f"If the ranks are just slow, raise the {'stall limit' if stalled else 'timeout'}."
    guilty = _absent(late, outcomes)
    waiting = tuple(outcome.rank for outcome in late if outcome.rank not in guilty)
    why = _positions(late, guilty, outcomes)
    if not why:
        what += ": no rank had started."
        return Verdict(what, "The system was still starting them.", longer, limit=limit)
    if not guilty:
        doing = "are waiting for each other" if stalled else "were in calls that wait for others"
        what += f": {ranks_of(waiting).lower()} {doing}."
        deadlock = "A deadlock" if stalled else "If they make no progress, it is a deadlock"
        longer = f"{deadlock}: compare the calls that they wait in, and their order. {longer}"
    elif not waiting:
        what += f": {ranks_of(guilty).lower()} did not finish."
    else:
        are = "is" if len(waiting) == 1 else "are"
        state = "is not" if len(guilty) == 1 else "are not"
        if all(isinstance(outcomes[rank], Returned) for rank in guilty):
            state = "returned"
        what += (
            f": {ranks_of(waiting).lower()} {are} waiting, and {ranks_of(guilty).lower()} {state}."
        )
    return Verdict(what, why, longer, guilty, waiting, limit=limit)


def _positions(late: list[TimedOut], guilty: tuple[int, ...], outcomes: Sequence[Outcome]) -> str:
    """Describe where a rank at fault and one that waits were; empty if no rank had started."""
    if all(outcome.phase.step < 0 for outcome in late):
        return ""
    waiting = (outcome.rank for outcome in late if outcome.rank not in guilty)
    return " ".join(
        f"Rank {rank} {_activity(outcomes[rank])}.{_other_threads(outcomes[rank])}"
        for rank in (*guilty[:1], *islice(waiting, 1))
    )


def _absent(late: list[TimedOut], outcomes: Sequence[Outcome]) -> tuple[int, ...]:
    """Return the ranks that the other ranks wait for; empty if every rank waits.

    Candidates are the late ranks of an earlier phase, or else all late ranks. If some of them
    don't answer, these are returned, because a stopped rank may delay others. Otherwise the ranks
    of the earlier phase are, or those outside a collective.
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


def _activity(outcome: Outcome) -> str:
    """Describe what a rank was last doing."""
    if isinstance(outcome, Returned):
        return "exited" if outcome.left else "returned"
    if outcome.phase.step < 0:
        return "never started"
    phase = outcome.phase.name
    line = str(outcome.where.source_line) if outcome.where else ""
    if not isinstance(outcome, TimedOut):
        return f"was at {line}" if line else f"last reported that it had {phase}"
    if outcome.where is None:
        own = f" (phase: {phase})" if outcome.phase.step > JOINED_STEP else ""
        return f"did not answer{own}: stopped, or stuck in the kernel"
    at = f"at {line}" if line else f"(phase: {phase})"
    if outcome.where.collective:
        return f"is waiting in {outcome.where.collective} {at}"
    return f"is {at}" if line else f"is busy {at}"


def _other_threads(outcome: Outcome) -> str:
    """Describe what the other threads of a rank were doing, if they run the user's code."""
    texts = []
    for other in outcome.where.others if outcome.where else ():
        one = other.threads == 1
        who = "Another thread" if one else f"{other.threads} other threads"
        doing = f"waiting in {other.collective} " if other.collective else ""
        texts.append(f" {who} {'is' if one else 'are'} {doing}at {other.source_line}.")
    return "".join(texts)


# ------------------------------------------------------------------------------------------- text


def ranks_of(ranks: Sequence[int]) -> str:
    """Return ``Rank 2`` or ``Ranks 0, 1, 3``, in ascending order; shorten long lists."""
    if len(ranks) == 1:
        return f"Rank {ranks[0]}"
    names = [str(rank) for rank in sorted(ranks)]
    if len(names) > 8:
        return f"Ranks {', '.join(names[:6])} and {len(names) - 6} more"
    return f"Ranks {', '.join(names)}"
