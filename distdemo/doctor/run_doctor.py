"""``distdemo doctor``: look at this machine, at the way to another, or answer the other."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial
from typing import Any

import typer

from distdemo.cli.main_exits import AlreadyTold
from distdemo.doctor.parse_doctor import DoctorRequest, parse_doctor
from distdemo.doctor.records import DoctorReport, ListenReport
from distdemo.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, DistdemoError
from distdemo.view.spinner import spinner


def run_doctor(flags: dict[str, Any]) -> None:
    """``distdemo doctor``."""
    request = parse_doctor(flags)
    if request.listen is not None:
        _listen(request, *request.listen)
        return
    with spinner("looking at this machine", enabled=not request.view.quiet):
        report = _examine_or_stop(request)
    with suppress(BrokenPipeError):  # a reader that left does not change the exit code
        _show(report, request)
    raise typer.Exit(EXIT_OK if report.ok else EXIT_FAILED)


def _examine_or_stop(request: DoctorRequest) -> DoctorReport:
    try:
        return _examine(request)
    except KeyboardInterrupt:  # ``main`` remembers it, for the exit code
        raise DistdemoError(
            "Interrupted.",
            "There is no verdict. Whatever was started to look at this machine is gone.",
            "--only TOPIC looks at less, and --no-world starts no ranks.",
        ) from None


def _examine(request: DoctorRequest) -> DoctorReport:
    from distdemo.doctor.registry import examine
    from distdemo.doctor.surroundings import real

    around = real()
    visit = None
    if request.peer is not None and "peer" in request.topics:
        from distdemo.doctor.peers import Peer, examine_peer

        visit = partial(examine_peer, Peer(*request.peer), around)
    return examine(around, request.topics, _start(request), visit)


def _start(request: DoctorRequest) -> Any:  # noqa: ANN401 - the launcher's function, or None
    """What starts the trial world; None where none is wanted."""
    if not (request.world and "torch" in request.topics):
        return None

    def start(*args: Any) -> Any:  # noqa: ANN401 - as run_world's
        from distdemo.launcher.local import run_world  # imports torch, which may be missing

        return run_world(*args)

    return start


def _show(report: DoctorReport, request: DoctorRequest) -> None:
    if request.view.format == "json":
        from distdemo.doctor.view_document import doctor_document
        from distdemo.view.document import dumps

        typer.echo(dumps(doctor_document(report)))
        return
    from distdemo.doctor.view_table import doctor_table
    from distdemo.view.console import output, show

    console = output()
    show(console, doctor_table(report, console, quiet=request.view.quiet))


# -------------------------------------------------------------------------------------- listening


def _listen(request: DoctorRequest, address: str, port: int) -> None:
    """Serve until the time is over or Ctrl-C comes, and tell what was served either way."""
    import socket

    from distdemo.doctor.listening import Host, Place, default_place, open_server

    name = socket.gethostname()
    place = Place(address, port, "as told") if address else default_place(port, name)
    with open_server(place) as server:
        place = Place(place.address, server.getsockname()[1], place.reason)
        host = Host(server, place, name)
        _announce(host.report(), request.seconds)
        interrupted = False
        try:
            host.serve(request.seconds)
        except KeyboardInterrupt:
            interrupted = True
    with suppress(BrokenPipeError):
        _show_visits(host.report(interrupted=interrupted), request)
    if interrupted:
        raise AlreadyTold(EXIT_INTERRUPTED)


def _announce(report: ListenReport, seconds: float) -> None:
    """What is open now, on standard error; also with --quiet, for it concerns everybody."""
    from distdemo.doctor.view_table import place

    where = place(report)
    lines = (
        f"Listening on {where} ({report.reason}) for {seconds:g} s.",
        "Whoever reaches it may measure the way and read versions; nothing is executed.",
        f"On the other machine: distdemo doctor --peer {where}",
    )
    print("\n".join(lines), file=sys.stderr, flush=True)  # noqa: T201 - as it is, to be copied


def _show_visits(report: ListenReport, request: DoctorRequest) -> None:
    if request.view.format == "json":
        from distdemo.doctor.view_document import listen_document
        from distdemo.view.document import dumps

        typer.echo(dumps(listen_document(report)))
        return
    from distdemo.doctor.view_table import listen_table
    from distdemo.view.console import output, show

    console = output()
    table = listen_table(report, console)
    show(console, table.renderables[-1] if request.view.quiet else table)
