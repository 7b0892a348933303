"""``distdemo doctor``: check this machine for problems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import choice
from distdemo.cli.session import Session
from distdemo.doctor.records import TOPICS


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """Options of ``distdemo doctor``."""

    only: Annotated[
        list[str] | None,
        choice("TOPIC", TOPICS, f"Check only this topic. Repeatable: {', '.join(TOPICS)}."),
    ] = None
    world: Annotated[
        bool, typer.Option("--world/--no-world", help="Start a two-rank test world.")
    ] = True


@command(
    record="distdemo.doctor.records:DoctorReport",
    epilog="Try: distdemo doctor; distdemo doctor --quiet; distdemo doctor --only network",
)
def doctor(session: Session, options: DoctorOptions) -> Result:
    """Check what worlds need: network, memory, torch, MPI, GPUs.

    Checks what PyTorch's process groups depend on, and starts a two-rank test world over gloo.
    Nothing is changed. To test the connection to another machine, use distdemo hello --nnodes and
    distdemo bench links.
    """
    from distdemo.doctor.checks import examine
    from distdemo.doctor.system import System
    from distdemo.doctor.view import doctor_view
    from distdemo.view.progress import spinner

    system = System(runs_world=options.world)
    with spinner("checking this machine", enabled=not session.quiet):
        report = examine(system, options.only or TOPICS)
    errors = tuple(
        Error(f"{finding.check}: {finding.what}.", finding.why, finding.hint)
        for finding in report.findings
        if finding.level == "broken"
    )
    return Result(report, doctor_view, errors=errors)
