"""Judge the programs once more, with collectives of gloo read from torch's flight recorder.

``make flight`` runs all; the tests run some. What the recorder can't know is fixed here.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent.parent)]

from calls.programs import MISTAKES, WORLDS
from calls.recorded import lines_at_fault, lines_named, sanitized, source_of

from distdemo.calls.flight import SWITCH
from distdemo.launcher.rendezvous import RECORDER_SIZES

DEADLINE = 60.0  # seconds in which a program must end
HANGING = 10.0  # seconds until one is stopped that may hang, as its finding is unknown
UNKNOWN_KINDS = {
    "reduce_op": "ReduceOp",
    "root": "root",
    "splits": "splits",
    "p2p": "sends and receives of gloo",
    "buffers": "memory, strides and handles",
}
"""What the flight recorder doesn't have, by the kinds of findings that need it."""
UNKNOWN = {
    "pipeline_sends_before_its_first_stage": "sends and receives of gloo",
    "both_send_first": "sends and receives of gloo",
    "barrier_against_receive": "sends and receives of gloo",
    "one_loss_is_an_integer": "lines, as the call aborts the process",
    "leaves_by_os_exit": "latest calls of a process that ends at once",
    "chunks_of_ten_are_scattered_to_four": "calls that torch rejects",
    "fewer_batches_on_a_rank": "lines of earlier calls, so that uneven is absent",
    "averages_twice_in_fewer_steps": "lines of earlier calls, so that uneven is absent",
    "one_rank_waits_for_a_functional_collective": "whether a rank waits for a call",
    "one_rank_waits_for_futures": "whether a rank waits for a call",
}
"""What it doesn't have, by other programs that need it."""
UNKNOWN_FROM_CPP = {
    "one_rank_takes_the_greatest_of_all": "ReduceOp",
    "one_rank_waits_for_a_functional_collective": "whether a rank waits for a call",
}
"""The same where hooks see the calls from Python."""


def variables(mode: str) -> dict[str, str]:
    """Return the environment in which gloo's collectives are read from the flight recorder.

    Args:
        mode: ``alone`` for all collectives; ``both`` for those from C++, as it is with NCCL.
    """
    return {SWITCH: mode, **dict.fromkeys(RECORDER_SIZES[:1], "2000")}


def unknown(name: str, mode: str) -> str:
    """Return what the flight recorder doesn't have of what a program's finding needs."""
    if mode == "both":
        return UNKNOWN_FROM_CPP.get(name, "")
    return UNKNOWN.get(name) or UNKNOWN_KINDS.get(MISTAKES[name].kind, "")


def missed(name: str, deadline: float = DEADLINE) -> str:
    """Run a program; return how its finding differs from what it must be, or an empty text."""
    mistake = MISTAKES.get(name)
    if mistake is None:
        report, findings, notes = sanitized(name, buffers=False, deadline=deadline)
        if stopped := _stopped(notes):
            return stopped
        return "" if report.ok and not findings else f"{findings or report.verdict}"
    buffers = mistake.kind == "buffers"
    report, findings, notes = sanitized(name, buffers=buffers, deadline=deadline)
    if stopped := _stopped(notes):
        return stopped
    if not findings:
        return f"no finding: {report.verdict and report.verdict.what}"
    (finding,) = findings
    if (finding.kind, mistake.ranks and finding.ranks) != (mistake.kind, mistake.ranks):
        return f"{finding.kind}, {finding.ranks}: {finding.what}"
    if lines_named(finding, source_of(name)[1]) & lines_at_fault(mistake):
        return ""
    return f"another line: {[str(row.source_line) for row in finding.rows]}"


def _stopped(notes: list[str]) -> str:
    """Return the note of a rank that has stopped recording, or an empty text."""
    lines = (line for text in notes for line in text.splitlines())
    return next((line for line in lines if re.match(r"(@\d+ )?[XO] ", line)), "")


def main() -> int:
    """Judge all programs in both ways; the exit code is 1 if a miss isn't on the lists."""
    from distdemo.launcher.torch_import import load_compiler
    from distdemo.train.command import PRELOADED

    load_compiler(PRELOADED)
    wrong = 0
    for mode in ("alone", "both"):
        os.environ |= variables(mode)
        found = 0
        for name in (*MISTAKES, *WORLDS):
            why = unknown(name, mode) if name in MISTAKES else ""
            miss = missed(name, HANGING if why else DEADLINE)
            found += not miss
            wrong += bool(miss) and not why
            if miss:
                sys.stdout.write(f"{mode}: {name}: {miss} ({why or 'NOT ON THE LIST'})\n")
        sys.stdout.write(f"{mode}: {found} of {len(MISTAKES) + len(WORLDS)} as by hooks\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
