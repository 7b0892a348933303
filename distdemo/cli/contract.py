"""What a command is: a plain typed function that returns a :class:`Result`.

::

    @command(joins=True, epilog="Try: distdemo hello -n 8")
    def hello(session: Session, world_size: WorldSize = None) -> Result:
        # the docstring is the help
        ...
        return Result(report, view="distdemo.demo.view")

``cli.app`` lists the commands, ``cli.runner`` gives each its session and what every command takes
(``--format``, ``--output``, ``--quiet``, ``--traceback``), shows the result and leaves with the
exit code. A command prints nothing, writes no file and never exits.
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
        what: one line, what happened.
        why: one line, the reason.
        hint: one line, what to try.
        ranks: the ranks at fault.
        consequences: ranks that failed because of them.
    """

    what: str
    why: str = ""
    hint: str = ""
    ranks: tuple[int, ...] = ()
    consequences: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """What a command comes back with: a record, and where its views are.

    Attributes:
        record: a frozen dataclass. Its fields are the JSON document (see ``distdemo.encoding``).
        view: the module that draws it: ``table(record, console, **shown)``, ``summary(record,
            console)`` for ``--quiet``, and ``FILES`` by ending: what makes the content of a file.
        ok: whether the exit code is 0; by default what the record says.
        world: the world that it ran in; if that failed, the failure is shown. By default the
            record's own ``world``, if it has one.
        partial: there is something to show beside the failure.
        kept: files are written also if it failed: how it failed is the result.
        interrupted: a signal cut it short.
        errors: of the document, beside the world's verdict.
        shown: more arguments of ``table``.
        plot: the picture to draw; the view makes it: ``plot(record, kind)``, ``png`` or ``svg``.
        files: more to write: the option that named the file, its path, and what makes its content.
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
class Traits:
    """What the runner has to know of a command; as a decorator it marks the command's function.

    Attributes:
        joins: it can be a part of a world that an engine, or a person in another terminal, started.
        formats: that ``--format`` takes; those beside table and json are made as files are.
        outputs: the endings that ``--output`` takes.
        epilog: examples, at the end of its help.
        record: the class of the record, ``distdemo.bench.records:BenchReport``, or several: the
            schema of the document is made from it.
    """

    joins: bool = False
    formats: tuple[str, ...] = ("table", "json")
    outputs: tuple[str, ...] = (".json", ".txt")
    epilog: str = ""
    record: str = ""

    def __call__(self, function: Run) -> Run:
        """The function itself, marked."""
        function.traits = self  # type: ignore[attr-defined]  # the runner reads it
        return function


command = Traits
