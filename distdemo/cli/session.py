"""The session of a command: output settings, placement, and how to start ranks.

Ranks run in a local world on this machine, or as part of a joined world (under torchrun, mpiexec,
Slurm, or with ``--nnodes``). In a joined world every process runs the same command. The process of
rank 0 continues as in a local world; the other processes follow it and exit with its exit code.
"""

from __future__ import annotations

import gc
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from distdemo import backends, words
from distdemo.errors import EXIT_FAILED, DistdemoError, UsageError
from distdemo.joined import engines
from distdemo.joined.engines import Placement
from distdemo.joined.interfaces import parse_address
from distdemo.launcher.limits import check_machine
from distdemo.launcher.records import WorldSpec
from distdemo.platform import system

if TYPE_CHECKING:
    from distdemo.cli.contract import Result
    from distdemo.cli.options import NodeOptions, WorldsOptions
    from distdemo.joined.world import JoinedWorld
    from distdemo.launcher.records import WorldReport
    from distdemo.view.blocks import Block
    from distdemo.view.console import Signs

MAX_LINE = 1000  # characters of an answer
MANY_RANKS = 64  # from here on, their forks cost more than moving this process's memory
PORT = 29500  # torch's own default
UNREADABLE = "Standard input can't be read."
REDIRECT = "Redirect a file to it, or use a terminal."


def _read(read: Callable[[], str]) -> str:
    """Return what a function reads from standard input.

    Raises:
        UsageError: It can't be read.
    """
    try:
        return read()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(UNREADABLE, f"{reason}.", REDIRECT) from None


def find_placement(options: NodeOptions) -> Placement | None:
    """Return the place of this process in a joined world, or None if it starts its own world.

    Raises:
        UsageError: The options, or the engine's variables, contradict each other.
    """
    nnodes, node_rank, master = options.nnodes, options.node_rank, options.master
    if (nnodes, node_rank, master) == (None, None, None):
        if options.launcher == "local":
            return None
        if options.launcher == "auto":
            return engines.detect(os.environ)
        return engines.named(options.launcher, os.environ)
    if nnodes is None or node_rank is None or master is None or node_rank >= nnodes:
        raise UsageError(
            "--nnodes, --node-rank and --master are required together.",
            "Each node needs its number, from 0 to --nnodes - 1, and the address of node 0.",
            "Try --nnodes 2 --node-rank 0 --master 10.0.0.1:29500, and --node-rank 1 on the other.",
        )
    host, port = parse_address(master)
    return Placement(
        engine="terminals",
        rank=0,
        world_size=0,  # set by the command
        master=host,
        port=port or PORT,
        why=f"--nnodes {nnodes} --node-rank {node_rank}",
        nnodes=nnodes,
        node_rank=node_rank,
    )


@dataclass(slots=True)
class Session:
    """One run of one command.

    Attributes:
        command: Name of the command, ``bench links``.
        format: ``table``, ``json`` or another format of the command.
        quiet: True to print only the verdict.
        verbose: True to print details, too.
        traceback: True to show the traceback of the rank at fault.
        output: File that the result will be written to.
        placement: Place of this process in a joined world, or None if it starts all ranks.
        exports: Functions that return the content of a file for a record, by suffix: ``.csv``.
        so_far: Function that returns the result up to now, given why the command ends here; set
            once there is something. The runner shows and writes it after a signal, and writes it
            after an error.
    """

    command: str
    format: str = "table"
    quiet: bool = False
    verbose: bool = False
    traceback: bool = False
    output: Path | None = None
    placement: Placement | None = None
    exports: Mapping[str, Callable[[Any], str | bytes]] = field(default_factory=dict)
    so_far: Callable[[str], Result] | None = None
    _joined_world: JoinedWorld | None = field(default=None, repr=False)

    @property
    def folder(self) -> Path | None:
        """Folder that ``--output`` names; None if that is a file."""
        return None if self.output is None or self.output.suffix else self.output

    # ------------------------------------------------------------------------- what to start

    @property
    def is_first(self) -> bool:
        """True if this process shows the result, because it has rank 0."""
        return self.placement is None or self.placement.node == 0

    @property
    def joined(self) -> str:
        """Reason why this process starts only a part of the ranks; empty if it starts all."""
        return "" if self.placement is None else self.placement.why

    @property
    def one_world_only(self) -> bool:
        """True if no second world can follow: MPI can be initialized once per process."""
        return self.placement is not None and self.placement.one_world_only

    @property
    def shares_output(self) -> bool:
        """True if standard output may contain text in addition to the result."""
        return self.format == "table"

    @property
    def shows_progress(self) -> bool:
        """True if a command may show a progress bar or a spinner."""
        return self.is_first and not self.quiet

    @property
    def is_interactive(self) -> bool:
        """True if a command may ask questions: it has a terminal for input and for output."""
        terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
        return terminal and self.shares_output and not self.quiet

    def world_size(
        self, requested: int | None, default: int = 4, smallest: int = 1, why: str = ""
    ) -> int:
        """Return the number of ranks: the requested one, or the one that the engine started.

        Args:
            requested: ``--world-size``.
            default: Default of this command.
            smallest: Smallest number that makes sense.
            why: Reason for it, as a sentence.

        Raises:
            UsageError: The number is too small, or the engine started a different number.
        """
        place = self.placement
        nodes = 0 if place is None else place.nnodes
        started = 0 if place is None or nodes else place.world_size
        if started and requested not in (None, started):
            raise UsageError(
                f"--world-size {requested}, but this world has {started} ranks.",
                f"This process is one of them: {self.joined}.",
                "Leave out --world-size, or add --launcher local.",
            )
        size = started or requested or max(default, nodes)
        least = max(smallest, nodes)
        if size < least:
            raise UsageError(
                f"--world-size {size} is too small: at least {least}.",
                why if size < smallest else "Every node starts at least one rank.",
                f"Try --world-size {least}.",
            )
        if place is not None and nodes:  # the ranks of a node depend on the size
            self.placement = place.sized(size)
        return size

    def ranks_here(self, world_size: int) -> int:
        """Return the number of ranks that this process knows to be on this machine."""
        return world_size if self.placement is None else self.placement.ranks_here

    def own_ranks(self, world_size: int) -> range:
        """Return the ranks that this process starts."""
        place = self.placement
        return range(world_size) if place is None else place.ranks_of(place.node)

    def world(
        self,
        size: int,
        options: WorldsOptions,
        *,
        stall: float | None = None,
        data_bytes: int = 0,
    ) -> WorldSpec:
        """Return the world to start. Everything is checked that doesn't need torch.

        Args:
            size: Number of ranks.
            options: Backend, device, start method, and the seconds for the whole run (by default
                30, more for many ranks).
            stall: Seconds without progress, or None for no limit.
            data_bytes: Bytes of all ranks' tensors.

        Raises:
            UsageError: These can't be combined, or this machine can't hold the ranks.
        """
        device = options.device
        if options.backend == "auto":
            chosen = backends.default_backend(size, device)
        else:
            chosen = backends.REGISTRY[options.backend]
        if device is not None and device not in chosen.devices:
            raise UsageError(
                f"--device {device} and --backend {chosen.option} can't be combined.",
                f"{chosen.name} takes tensors on {' and '.join(chosen.devices)}.",
                "Leave out --device, or try --backend gloo.",
            )
        place = self.placement
        if place is not None and place.engine not in (chosen.engines or (place.engine,)):
            where = "with --nnodes" if place.nnodes else f"on ranks of {place.engine}"
            raise UsageError(
                f"--backend {chosen.option} can't be used {where}.",
                "Its processes find each other through MPI's own launcher.",
                "Try mpiexec -n 4 distdemo ..., or srun; or --backend gloo.",
            )
        world = WorldSpec(
            size,
            chosen.name,
            device or chosen.default_device(),
            options.timeout or max(30.0, 2.0 * size),  # spawned ranks import torch one by one
            options.start_method,
            capture=True,
            stall=stall,
        )
        if not backends.has_gpu():  # otherwise torch counts them
            backends.check_gpus(chosen, world, size)
        self.check_memory(world, data_bytes)
        return world

    def check_memory(self, world: WorldSpec, data_bytes: int = 0) -> None:
        """Check that this machine can hold the world and its tensors.

        Raises:
            UsageError: It can't. The error names the limit.
        """
        check_machine(replace(world, world_size=self.ranks_here(world.world_size)), data_bytes)

    # ------------------------------------------------------------------------------ running

    @contextmanager
    def waiting(self, text: str, *worlds: WorldSpec) -> Iterator[None]:
        """Show a spinner. First import torch, and check what the worlds need of it.

        Raises:
            UsageError: torch or a backend is missing, or there are too few GPUs.
        """
        from distdemo.view.progress import spinner

        with spinner(text, enabled=self.shows_progress):
            self.prepare(*worlds)
            yield

    def prepare(self, *worlds: WorldSpec) -> None:
        """Import torch, and check that it has the backends and GPUs that the worlds need.

        Raises:
            UsageError: torch or a backend is missing, or there are too few GPUs.
        """
        from distdemo.launcher.torch_import import load_torch

        load_torch()
        gc.freeze()  # collecting torch's objects would take a tenth of a second of what follows
        place = self.placement
        for world in worlds:
            backend = backends.REGISTRY[world.backend]
            own_gpus = (
                place is not None and not place.nnodes and "CUDA_VISIBLE_DEVICES" in os.environ
            )
            here = 1 if own_gpus else self.ranks_here(world.world_size)
            backends.check_gpus(backend, world, here)
            reason = backend.missing()
            if reason is not None:
                how = backend.how_to_install
                hint = f"{how} Or try --backend gloo." if how else "Try --backend gloo."
                raise UsageError(f"--backend {backend.option} can't be used here.", reason, hint)
            backends.prepared(world, joined=place is not None)
        forked = [world for world in worlds if world.start_method in ("auto", "fork")]
        if any(self.ranks_here(world.world_size) >= MANY_RANKS for world in forked):
            system.use_huge_pages()

    def start(
        self,
        world: WorldSpec,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        **callbacks: Any,
    ) -> WorldReport:
        """Run ``target(rank, *args)`` on every rank of a world, and report how each rank ended.

        Args:
            world: World to start. Of several, the first is the largest.
            target: Function; its first argument is a ``launcher.rank.Rank``. All worlds of a
                command have the same target, whose annotations name the types of what it returns
                and of arguments that differ from world to world.
            args: Further arguments, the same on every rank.
            callbacks: See ``launcher.local.World.run``.

        Raises:
            typer.Exit: This process has no rank 0, and its part is done.
        """
        place = self.placement
        if place is None:
            from distdemo.launcher.local import run_world

            return run_world(backends.prepared(world), target, args, **callbacks)
        from distdemo.joined.nodes import ParticipationEnded, join

        if self._joined_world is None:
            self._joined_world = join(place, shlex.join(sys.argv[1:]))
        try:
            return self._joined_world.run(
                backends.prepared(world, joined=True), target, args, **callbacks
            )
        except ParticipationEnded as end:
            if place.nnodes:  # a person started this node
                self._report_part(place, end.code)
            raise typer.Exit(end.code) from None

    def _report_part(self, place: Placement, code: int) -> None:
        """Print how the run ended, on a node that doesn't show the result."""
        from distdemo.view.format import ranks_text

        outcome = "succeeded" if code == 0 else f"failed with exit code {code}"
        ranks = f"Rank{'s' * (place.ranks_here > 1)} {ranks_text(place.ranks_of(place.node))}"
        sys.stderr.write(
            f"{ranks} ran here; the run {outcome}. Node 0 ({place.master}) shows the result.\n"
        )

    # ----------------------------------------------------------------------------- questions

    def understood(self, typed: str, meaning: str) -> None:
        """Print the meaning of a name, in a dim line, unless it is the same name."""
        is_shown = self.shares_output and self.is_first and not self.quiet
        if is_shown and words.letters(words.without_prefix(typed)) != words.letters(meaning):
            from distdemo.view import colours
            from distdemo.view.console import messages

            messages().print(f"{typed}: {meaning}", style=colours.QUIET)

    def show(self, blocks: Callable[[Signs], Iterable[Block]]) -> None:
        """Print a part of the report before the result, if the session is interactive."""
        if self.is_interactive:
            from distdemo.view.blocks import show_blocks
            from distdemo.view.console import output, signs

            console = output()
            show_blocks(console, blocks(signs(console)))

    def ask(self, prompt: str) -> str | None:
        """Return the next line of standard input, or None at its end.

        Args:
            prompt: Text that is shown before it, if the session is interactive. A terminal is not
                read without a prompt.

        Raises:
            UsageError: Standard input can't be read.
        """
        if sys.stdin is None or (sys.stdin.isatty() and not self.is_interactive):
            return None
        if self.is_interactive:
            sys.stdout.write(prompt)
            sys.stdout.flush()
        line = _read(partial(sys.stdin.readline, MAX_LINE))
        if self.is_interactive and not line:  # Ctrl-D leaves the cursor behind the prompt
            sys.stdout.write("\n")
        return line.strip() if line else None

    def read_input(self) -> str:
        """Return the text of standard input.

        Raises:
            UsageError: It is closed, or can't be read.
        """
        if sys.stdin is None:
            raise UsageError(UNREADABLE, "It is closed.", REDIRECT)
        return _read(sys.stdin.read)

    # ------------------------------------------------------------------------------- the end

    def refuse(self, error: DistdemoError) -> None:
        """Send rank 0 an error of this node."""
        if self._joined_world is not None:
            self._joined_world.refuse(error)

    def end(self, code: int = EXIT_FAILED) -> None:
        """End the command on all nodes with this exit code, whatever happened."""
        if self._joined_world is not None:
            with suppress(OSError):  # the reader is gone
                sys.stdout.flush()  # an engine may kill this process when another one has exited
            self._joined_world.end(code)
