"""The command contract: a typed function that returns a :class:`Result`.

::

    @command(joins=True, epilog="Try: distdemo hello -n 8")
    def hello(session: Session, world_size: WorldSize = None) -> Result:
        # the docstring is the help
        ...
        return Result(report, view="distdemo.demo.view")

``cli.app`` lists the commands. ``cli.runner`` gives each one its session and the shared options
(``--format``, ``--output``, ``--quiet``, ``--traceback``), shows the result and exits with the exit
code. A command prints nothing, writes no file and never exits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from distdemo.launcher.records import WorldReport

Run = TypeVar("Run", bound=Callable[..., "Result"])
Content = str | bytes


@dataclass(frozen=True, slots=True)
class Error:
    """One error of a document.

    Attributes:
        what: What happened, in one line.
        why: The reason, in one line.
        hint: What to try, in one line.
        ranks: Ranks at fault.
        consequences: Ranks that failed because of them.
    """

    what: str
    why: str = ""
    hint: str = ""
    ranks: tuple[int, ...] = ()
    consequences: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a command: a record, and the module with its views.

    Attributes:
        record: Frozen dataclass. Its fields are the JSON document (see ``distdemo.encoding``).
        view: Module with ``table(record, console, **shown)``, ``summary(record, console)`` for
            ``--quiet``, and ``FILES``: by suffix, a function that returns the content of a file.
        ok: True if the exit code is 0; by default ``record.ok``.
        world: World that the command ran; if it failed, the failure is shown. By default
            ``record.world``, if there is one.
        partial: True if there is a result to show in addition to the failure.
        kept: True if files are written even after a failure, because the failure is the result.
        interrupted: True if a signal ended the command early.
        errors: Errors of the document, in addition to the world's verdict.
        shown: More arguments of ``table``.
        plot: Path of the plot; the view draws it: ``plot(record, kind)``, ``png`` or ``svg``.
        files: More files: the option, the path, and a function that returns the content.
    """

    record: Any
    view: str
    ok: bool | None = None
    world: WorldReport | None = None
    partial: bool = False
    kept: bool = False
    interrupted: bool = False
    errors: tuple[Error, ...] = ()
    shown: Mapping[str, Any] = field(default_factory=dict)
    plot: Path | None = None
    files: tuple[tuple[str, Path | None, Callable[[], Content]], ...] = ()


@dataclass(frozen=True, slots=True)
class CommandInfo:
    """Properties of a command. As a decorator it attaches itself to the command's function.

    Attributes:
        joins: True if the command can run as one node of a joined world.
        formats: Values of ``--format``; all but table and json are made by the view's ``FILES``.
        outputs: Suffixes that ``--output`` accepts.
        epilog: Examples at the end of the help text.
        record: Class of the record, ``distdemo.bench.records:BenchReport``, or several of them;
            the JSON schema is made from it.
    """

    joins: bool = False
    formats: tuple[str, ...] = ("table", "json")
    outputs: tuple[str, ...] = (".json", ".txt")
    epilog: str = ""
    record: str = ""

    def __call__(self, function: Run) -> Run:
        """Return the function itself, with ``info`` attached."""
        function.info = self  # type: ignore[attr-defined]  # the runner reads it
        return function


command = CommandInfo
