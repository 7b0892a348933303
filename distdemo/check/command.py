"""``distdemo check`` and ``distdemo backends``."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distdemo import backends, ops, words
from distdemo.check import matrix
from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import ADVANCED, OUTPUT, WorldsOptions, stall_option, timeout_option
from distdemo.cli.session import Session
from distdemo.cli.types import (
    Numbers,
    file_to_write,
    numbers,
    offer,
    parse_dtype,
    unknown,
    unknown_call,
)
from distdemo.dtypes import DTYPES
from distdemo.errors import UsageError
from distdemo.launcher.records import WorldSpec
from distdemo.ops.spec import OpSpec
from distdemo.view.format import listing, plural

if TYPE_CHECKING:
    from distdemo.backends.contract import Backend
    from distdemo.check.records import BackendEntry, CheckReport

STALL_S = 10.0  # seconds without progress after which a case fails
TRIAL_TIMEOUT_S = 15.0  # for the trial of a backend


@dataclass(frozen=True, kw_only=True)
class CheckOptions(WorldsOptions):
    """Options of ``distdemo check``."""

    timeout: Annotated[float | None, timeout_option("none")] = None
    full: Annotated[
        bool, typer.Option("--full", help="Combine the axes for every form: thousands of cases.")
    ] = False
    probe: Annotated[
        bool,
        typer.Option(
            "--probe",
            help="Run every form, dtype and reduce operation once, even unsupported ones.",
            rich_help_panel=ADVANCED,
        ),
    ] = False
    only_ops: Annotated[
        list[str] | None,
        typer.Option(
            "--op",
            metavar="OP",
            help="Only this operation, or one form of it: all-gather/single. Repeatable.",
            autocompletion=offer(op.command for op in ops.REGISTRY.values()),
        ),
    ] = None
    only_dtypes: Annotated[
        list[str] | None,
        typer.Option(
            "--dtype",
            metavar="DTYPE",
            parser=parse_dtype,
            help="Only this element type. Repeatable.",
            autocompletion=offer(DTYPES),
        ),
    ] = None
    world_sizes: Annotated[
        Numbers | None,
        typer.Option(
            "--world-size",
            "-n",
            metavar="N",
            parser=numbers("world sizes", "2,5", 1),
            help="Only these world sizes: 3, or 2,5. Default: 1 to 5; with --full also 8.",
        ),
    ] = None
    only_case: Annotated[
        str | None,
        typer.Option("--case", metavar="ID", help="Only the case with this ID from a report."),
    ] = None
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", "-x", help="Stop at the first failure.")
    ] = False
    junit_xml: Annotated[
        Path | None,
        typer.Option(
            "--junit-xml",
            metavar="FILE",
            parser=file_to_write(".xml"),
            help="Write a JUnit report for GitHub, GitLab or Jenkins.",
            rich_help_panel=OUTPUT,
        ),
    ] = None
    stall: Annotated[float | None, stall_option()] = STALL_S
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Fail on cases that are known to be wrong, or need GPUs that aren't there.",
        ),
    ] = False

    @property
    def scope(self) -> str:
        """Name of the matrix."""
        if self.probe:
            return "probe"
        return "full" if self.full else "quick"


@command(
    joins=True,
    epilog="Try: distdemo check; distdemo check --op all-reduce --full; distdemo check "
    "--junit-xml report.xml",
    record="distdemo.check.records:CheckReport",
)
def check(session: Session, options: CheckOptions) -> Result:
    """Verify every operation, form and type, with a report for CI.

    The exit code is 0 only if every case that the backend supports passed. Cases known to be wrong
    in this release of torch are listed but not run; with --strict, they are a failure.
    """
    return _result(options, _run(session, options, _cases(session, options)))


def _result(options: CheckOptions, report: CheckReport) -> Result:
    from distdemo.check.junit import junit_xml
    from distdemo.check.view import check_view, verdict

    errors = [Error(f"{case.id} failed.", case.why) for case in report.of("failed")]
    not_run = dict.fromkeys(case.why for case in report.of("not run"))
    errors += [Error("Some cases were not run.", why) for why in not_run]
    if not errors and not report.ok:
        errors.append(Error(verdict(report)))
    return Result(
        report,
        check_view,
        errors=tuple(errors),
        files=(("--junit-xml", options.junit_xml, partial(junit_xml, report)),),
    )


def _run(session: Session, options: CheckOptions, cases: Sequence[matrix.Case]) -> CheckReport:
    """Run the cases, with a progress bar."""
    from distdemo.check.controller import CheckRun
    from distdemo.launcher.torch_import import load_torch
    from distdemo.view.progress import Progress

    largest = session.world_size(max(case.world_size for case in cases))
    run = CheckRun(
        cases=cases,
        world=session.world(largest, options, stall=options.stall),
        scope=options.scope,
        strict=options.strict,
        fail_fast=options.fail_fast or session.one_world_only,
        timeout=options.timeout,
    )
    with Progress(len(cases), enabled=session.shows_progress) as progress:
        if not session.joined and backends.REGISTRY[run.world.backend].rank_per_gpu:
            load_torch()
            run.gpus = backends.count_gpus()
            fitting = [case.world_size for case in cases if case.world_size <= run.gpus]
            run.world = replace(run.world, world_size=max(fitting, default=largest))
        session.prepare(run.world)
        session.so_far = lambda why: _result(options, run.report(why))
        return run.run(session.start, progress.advance)


# ------------------------------------------------------------------------------------- the cases


def _cases(session: Session, options: CheckOptions) -> list[matrix.Case]:
    """Return the cases that match the options.

    Raises:
        UsageError: A case, operation or form doesn't exist, or no case matches.
    """
    sizes: Collection[int] = options.world_sizes or ()
    if session.joined:
        sizes = [session.world_size(size) for size in sizes or (None,)]
    forms = _selected_forms(options.only_ops or ())
    if options.only_case is not None:
        cases = [_named_case(options.only_case)]
    else:
        cases = matrix.SCOPES[options.scope](sizes, {name for name, _ in forms})
    cases = [
        case
        for case in cases
        if not forms or (case.op.name, case.form_name) in forms
        if not options.only_dtypes or case.dtype in options.only_dtypes
        if not sizes or case.world_size in sizes
    ]
    if not cases:
        raise UsageError(
            "No case matches.",
            "No case has these operations, dtypes and world sizes.",
            "Remove one of the options, or add --full.",
        )
    return cases


def _selected_forms(only_ops: Collection[str]) -> set[tuple[str, str]]:
    """Return the ops and forms in ``--op``; empty for all.

    Raises:
        UsageError: An operation or form doesn't exist.
    """
    selected = set()
    for text in only_ops:
        name, _, form = text.partition("/")
        resolved = ops.resolve(name)
        if resolved is None:
            known = [op.command for op in ops.REGISTRY.values()]
            raise unknown_call("operation", known, name)
        op, meant = resolved
        forms = [matrix.form_name(known) for known in op.all_forms]
        if meant != op.all_forms[0] and not form:
            form = matrix.form_name(meant)
        if form and form not in forms:
            raise unknown("form", [f"{op.command}/{known}" for known in forms], text)
        selected |= {(op.name, known) for known in forms if form in ("", known)}
    return selected


def _named_case(name: str) -> matrix.Case:
    """Return the case with this ID, from any scope.

    Raises:
        UsageError: There is no such case.
    """
    op = ops.find(name.partition("/")[0])
    size = re.search(r"/n(\d{1,6})\b", name)
    known: dict[str, matrix.Case] = {}
    if op is not None and size is not None:
        known = {case.id: case for case in matrix.full((int(size[1]),), (op.name,))}
    if name not in known:
        near = [f"--case {other}" for other in words.closest(name, known)]
        raise UsageError(
            f"There is no case {name!r}.",
            "--format json lists the IDs of all cases.",
            f"Did you mean {listing(near, 'or')}?" if near else "",
        )
    return known[name]


# ----------------------------------------------------------------------------------- the backends


@command(epilog="Try: distdemo backends", record="distdemo.check.records:BackendList")
def list_backends(session: Session) -> Result:
    """Try every backend: available or not, why, and how to get it."""
    from distdemo.check.records import BackendList
    from distdemo.check.view import backends_view

    with session.waiting("trying the backends"):
        entries = [_entry(backend, session) for backend in backends.REGISTRY.values()]
    backend_list = BackendList(tuple(entries))
    errors = [
        Error(f"{entry.name} fails.", entry.tried, entry.get)
        for entry in entries
        if entry.works is False
    ]
    if not errors and not backend_list.ok:
        errors.append(Error("No backend works here.", "None could be tried."))
    return Result(backend_list, backends_view, errors=tuple(errors))


def _entry(backend: Backend, session: Session) -> BackendEntry:
    """Return the entry of a backend, with the outcome of an all_reduce if it is available."""
    from distdemo.check.rank import run_once
    from distdemo.check.records import BackendEntry

    entry = BackendEntry(backend.name, backend.summary, backend.devices)
    missing = backend.missing()
    if missing:
        return replace(entry, missing=missing, get=backend.how_to_install)
    entry = replace(entry, version=backend.version())
    device = backend.default_device()
    ranks = 2 if device == "cpu" else min(2, backends.count_gpus())
    world = WorldSpec(ranks, backend.name, device, TRIAL_TIMEOUT_S, capture=True)
    specs = (OpSpec("all_reduce", ranks, reduce_op="sum"),)
    try:
        report = session.start(world, run_once, (ops.REGISTRY["all_reduce"], specs))
    except UsageError as error:
        return replace(entry, tried=error.what)
    if report.verdict is not None:
        return replace(entry, works=False, tried=report.verdict.what)
    works = all(verification.ok for verification in report.values)
    outcome = "verified" if works else "gave a wrong result"
    return replace(entry, works=works, tried=f"all_reduce on {plural(ranks, 'rank')} {outcome}")
