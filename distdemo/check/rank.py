"""Run and verify the cases of a check in every rank.

The result of each case is sent to the launcher immediately, so that no result is lost if a later
case kills or hangs the world.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from distdemo.launcher.local import sends
from distdemo.ops.buffers import make_buffers
from distdemo.ops.run import Groups, role_of, run_role, verify_role

if TYPE_CHECKING:
    from distdemo.check.matrix import Case
    from distdemo.launcher.rank import Rank
    from distdemo.ops.contract import Op
    from distdemo.ops.spec import OpSpec, Verification


@dataclass(frozen=True, slots=True)
class CaseFinding:
    """One rank's result of one case.

    Attributes:
        number: Index of the case in the list of all cases.
        time_s: Seconds from the start of the case until it was verified.
        wrong: Lines about wrong elements; empty if the case passed.
    """

    number: int
    time_s: float
    wrong: tuple[str, ...] = ()


@sends(CaseFinding, lambda finding, _, numbers: finding.number in numbers)
def run_cases(rank: Rank, cases: Sequence[Case], numbers: tuple[int, ...]) -> None:
    """Run cases in order and send the result of each. Collective.

    Args:
        rank: Handle of this rank.
        cases: Cases of the check.
        numbers: Indices of those to run.

    Raises:
        Exception: The exception of a case, after which the world can't be trusted.
    """
    groups = Groups()
    for number in numbers:
        case = cases[number]
        name = f"case {number}"  # of the phase and the barrier
        rank.report_phase(name)
        entered = time.monotonic()
        verification = run_verified(rank, case.op, case.specs, groups, name)
        wrong = []
        if not verification.ok:
            counts = f"{verification.wrong} of {verification.checked}"
            wrong.append(f"Rank {rank.rank}: {counts} elements are wrong.")
        for mismatch in verification.mismatches[:3]:
            index = ", ".join(map(str, mismatch.index)) or "() of a scalar"
            wrong.append(
                f"rank {rank.rank}, piece {mismatch.piece}, index {index}: got {mismatch.got}, "
                f"expected {mismatch.expected}"
            )
        rank.send(CaseFinding(number, time.monotonic() - entered, tuple(wrong)))


def run_once(rank: Rank, op: Op, specs: Sequence[OpSpec]) -> Verification:
    """Run an op and verify it. Collective."""
    return run_verified(rank, op, specs, Groups())


def run_verified(
    rank: Rank, op: Op, specs: Sequence[OpSpec], groups: Groups, name: str = ""
) -> Verification:
    """Run an op and verify it. Collective.

    Args:
        rank: Handle of this rank.
        op: Op to run.
        specs: One spec per group; the groups run at the same time.
        groups: Process groups created so far.
        name: Name of this call, unique in its world.
    """
    role = role_of(rank.rank, op, specs, name)
    group = groups.of(specs, role)
    with torch.inference_mode(role.spec.inference):
        buffers = make_buffers(role.op, role.rank, role.spec, rank.device)
        timing = run_role(rank, role, buffers, group)
        return verify_role(role, buffers, timing.present)
