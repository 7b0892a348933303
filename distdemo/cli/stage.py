"""Where a command's ranks run: in worlds of its own, or as a part of one that an engine started.

In the second case every process of the world runs the same command. The one with rank 0 goes on
as if the world were its own; the others do as it says, and leave with the exit code that it finds.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from distdemo import backends
from distdemo.backends.starting import prepared
from distdemo.cli.main_exits import AlreadyTold
from distdemo.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, DistdemoError, UsageError
from distdemo.launcher.joined.placement import Placement, Request

if TYPE_CHECKING:
    from distdemo.launcher.joined.join import NodeZero, OtherNode, Resume
    from distdemo.launcher.records import WorldReport, WorldSpec

Start = Callable[..., "WorldReport"]


@dataclass(frozen=True, slots=True)
class Sequel:
    """How the sites agree on the worlds after the first.

    Attributes:
        order: from the arguments of a program to what tells other sites to run the same.
        resume: from that to the program and its arguments.
    """

    order: Callable[[tuple[Any, ...]], Any]
    resume: Resume


@contextmanager
def stage(
    seat: Placement | None, world: WorldSpec, meaning: str, sequel: Sequel | None = None
) -> Iterator[Start]:
    """What starts worlds for this command: ``run_prepared``, or a site's part in a larger world.

    Args:
        seat: this process's place in a world that an engine started; None: there is none.
        world: the largest world of the command.
        meaning: of the command, in which all sites have to agree.
        sequel: for commands that run several worlds.

    Raises:
        typer.Exit: on a site without rank 0, when its part is done.
    """
    _check_engine(seat, world)
    if seat is None:
        from distdemo.backends.starting import run_prepared

        yield run_prepared
    elif seat.node == 0:
        from distdemo.launcher.joined.join import NodeZero

        with _leading(NodeZero(seat, _request(meaning, world), world.deadline)) as leader:
            yield _led(leader, sequel)
    else:
        from distdemo.launcher.joined.join import OtherNode

        follower = OtherNode(seat, _request(meaning, world), world.deadline)
        with _following(follower):
            yield _followed(follower, seat, sequel)


def _check_engine(seat: Placement | None, world: WorldSpec) -> None:
    """Refuse a backend whose ranks this engine can't start."""
    wanted = backends.REGISTRY[world.backend].engines
    if seat is not None and wanted is not None and seat.engine not in wanted:
        where = "with --nnodes" if seat.nnodes else f"on ranks of {seat.engine}"
        raise UsageError(
            f"--backend {world.backend} can't be used {where}.",
            "Its processes find each other by what MPI's own starter tells them.",
            "Try mpiexec -n 4 distdemo ..., or srun; or --backend gloo.",
        )


def _request(meaning: str, world: WorldSpec) -> Request:
    settings = (world.world_size, world.backend, world.device)
    return Request(f"{meaning} {settings}", shlex.join(sys.argv[1:]))


@contextmanager
def _leading(leader: NodeZero) -> Iterator[NodeZero]:
    """Whatever ends the block, the other sites leave with the exit code that it means."""
    code = EXIT_FAILED
    try:
        yield leader
    except (typer.Exit, AlreadyTold) as end:
        code = end.exit_code if isinstance(end, typer.Exit) else end.code
        raise
    except UsageError:
        code = EXIT_USAGE
        raise
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
        raise
    finally:
        with suppress(OSError):  # whoever read it has gone
            sys.stdout.flush()  # an engine may kill us when the first of the others has left
        leader.end(code)


@contextmanager
def _following(follower: OtherNode) -> Iterator[None]:
    """An error of this site alone is told to the leader, who shows it."""
    from distdemo.launcher.joined.join import NodeZeroLostError, UnheardError

    try:
        yield
    except UnheardError as error:
        _show_unheard(error)
        raise AlreadyTold(EXIT_FAILED) from error
    except NodeZeroLostError:
        raise
    except DistdemoError as error:
        with suppress(OSError):
            follower.refuse(error)
        raise
    finally:
        follower.leave()


def _show_unheard(error: DistdemoError) -> None:
    """Rank 0 will never know of it, so this process speaks; the engine may end it right after."""
    from distdemo.launcher.joined.meeting import abort_mpi
    from distdemo.view.console import messages, show
    from distdemo.view.failure import error_text

    show(messages(), error_text(error))
    abort_mpi()


def _led(leader: NodeZero, sequel: Sequel | None) -> Start:
    def start(
        world: WorldSpec,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        **how: Any,  # noqa: ANN401 - the launcher's own
    ) -> WorldReport:
        order = None if sequel is None else sequel.order(args)
        mine = prepared(world, joined=True)
        return leader.run(mine, target, args, order=order, **how)

    return start


def _followed(follower: OtherNode, seat: Placement, sequel: Sequel | None) -> Start:
    def start(
        world: WorldSpec,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        **_: Any,  # noqa: ANN401 - what is the leader's alone
    ) -> WorldReport:
        resume = None if sequel is None else sequel.resume
        code = follower.serve(prepared(world, joined=True), target, args, resume)
        if seat.nnodes:  # somebody sits in front of this terminal
            typer.echo(_elsewhere(seat, code), err=True)
        raise typer.Exit(code)

    return start


def _elsewhere(seat: Placement, code: int) -> str:
    """For the terminal of a node other than the first: where to look."""
    ranks = seat.ranks_of(seat.node)
    these = f"Rank {ranks[0]}" if len(ranks) == 1 else f"Ranks {ranks[0]} to {ranks[-1]}"
    how = "all went well" if code == 0 else f"it failed, exit code {code}"
    return f"{these} ran here; {how}. Node 0 ({seat.master}) shows the result."
