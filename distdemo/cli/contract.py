"""The command contract: a typed function that returns a :class:`Result`.

::

    @dataclass(frozen=True, kw_only=True)
    class HelloOptions(WorldOptions):
        ranks: Ranks = None  # an annotated type of ``cli.options``

    @command(joins=True, epilog="Try: distdemo hello -n 8")
    def hello(session: Session, options: HelloOptions) -> Result:
        # the docstring is the help
        ...
        return Result(report, hello_view)

``cli.app`` lists the commands. ``cli.runner`` reads the options from the record's fields, adds the
shared ones (``--format``, ``--output``, ``--quiet``, ``--verbose``, ``--traceback``), shows the
result and exits with the exit code. A command prints nothing, except by ``session.show``, writes
no file and never exits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

if TYPE_CHECKING:
    from distdemo.launcher.records import WorldReport
    from distdemo.view.blocks import View

Run = TypeVar("Run", bound=Callable[..., "Result"])
Content = str | bytes
FileContent = Content | BinaryIO


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
    """Result of a command: a record, its view and its exports.

    Attributes:
        record: Frozen dataclass. Its fields are the JSON document (see ``distdemo.encoding``).
        view: Function of the record and the terminal's signs that yields blocks.
        ok: True if the exit code is 0; by default ``record.ok``.
        world: World that the command ran; if it failed, the failure is shown. By default
            ``record.world``, if there is one.
        partial: True if there is a result to show in addition to the failure.
        is_shown: True if the command has shown the report while it ran; only the verdict is left.
        interrupted: True if a signal ended the command early.
        errors: Errors of the document, in addition to the world's verdict.
        files: More files: the option, the path, and a function that returns the content.
    """

    record: Any
    view: View
    ok: bool | None = None
    world: WorldReport | None = None
    partial: bool = False
    is_shown: bool = False
    interrupted: bool = False
    errors: tuple[Error, ...] = ()
    files: tuple[tuple[str, Path | None, Callable[[], FileContent]], ...] = ()


@dataclass(frozen=True, slots=True)
class CommandInfo:
    """Properties of a command. As a decorator it attaches itself to the command's function.

    Attributes:
        joins: True if the command can run as one node of a joined world.
        exports: Functions that return the content of a file for a record, by suffix: ``.csv``; each
            is also a value of ``--format``. They import what they need.
        folder: True if ``--output`` also takes a folder, for `Result.files`.
        epilog: Examples at the end of the help text.
        record: Class of the record, ``distdemo.bench.records:BenchReport``, or several of them;
            the JSON schema is made from it.
    """

    joins: bool = False
    exports: Mapping[str, Callable[[Any], Content]] = field(default_factory=dict)
    folder: bool = False
    epilog: str = ""
    record: str = ""

    def __call__(self, function: Run) -> Run:
        """Return the function itself, with ``info`` attached."""
        function.info = self  # type: ignore[attr-defined]  # the runner reads it
        return function


command = CommandInfo
