"""Start a user's program in this process as Python would: a script, a module, or a function.

It imports neither torch nor anything else that a program may want to import first.
"""

from __future__ import annotations

import atexit
import builtins
import importlib
import importlib.util
import inspect
import multiprocessing
import os
import runpy
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from multiprocessing import util
from pathlib import Path, PurePath
from types import ModuleType
from typing import TYPE_CHECKING, Any

from distdemo.encoding import derived
from distdemo.errors import UsageError
from distdemo.launcher.arguments import bind_texts
from distdemo.text import cut

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank


@dataclass(frozen=True, slots=True)
class Program:
    """A user's program.

    Attributes:
        file: Path as it was typed; empty for a module.
        module: Dotted name, as for ``python -m``; empty for a file.
        function: Function that every rank calls; empty to run the whole program, as
            ``python FILE`` would, which creates its own group.
        arguments: Program arguments, ``sys.argv[1:]``; a function gets them as parameters.
        creates_group: True if the program creates the process group itself.
    """

    file: str = ""
    module: str = ""
    function: str = ""
    arguments: tuple[str, ...] = ()
    creates_group: bool = False

    @property
    def home(self) -> str:
        """Display name without the function: ``train.py``, ``-m package.module``."""
        return PurePath(self.file).name if self.file else f"-m {self.module}"

    @derived
    def name(self) -> str:
        """Display name: ``prog.py:run``, ``train.py``, ``-m package.module``."""
        return f"{self.home}:{self.function}" if self.function else self.home

    @property
    def path(self) -> Path:
        """File that Python runs or imports; a module's is in the current folder, if anywhere."""
        path = Path(self.file) if self.file else Path(*self.module.split("."))
        if path.is_dir():
            return path / ("__init__.py" if self.function else "__main__.py")
        return path if self.file else path.with_suffix(".py")

    @property
    def folder(self) -> Path:
        """Folder in which its imports are looked up first: ``sys.path[0]``."""
        if not self.file:
            return Path.cwd()
        path = Path(os.path.realpath(self.file))
        return path if path.is_dir() else path.parent


def run_in_rank(program: Program, rank: Rank) -> Any:
    """Run the program on this rank, and return its function's value. Collective.

    Args:
        program: Program to run.
        rank: This rank, with its default group unless the program creates it.
    """
    multiprocessing.set_start_method(None, force=True)  # the program may choose its own
    set_up(program)
    with exit_handlers():
        if program.function:
            rank.set_variables()
            return _call_function(program, rank.rank, rank.world_size)
        run_whole(program)
    return None


@contextmanager
def exit_handlers() -> Iterator[None]:
    """Join threads and run exit handlers after the block, as Python does at exit; ranks skip that.

    After a failure multiprocessing runs the exit handlers when the process exits, so that the
    failure is reported first: threads may wait forever.
    """
    atexit._clear()
    for finalizer in weakref.finalize._registry:  # type: ignore[attr-defined]
        finalizer.atexit = False
    atexit.register(weakref.finalize._exitfunc)  # type: ignore[attr-defined]
    try:
        yield
    except BaseException as error:
        if not isinstance(error, SystemExit) or error.code not in (None, 0):
            util.Finalize(None, atexit._run_exitfuncs, exitpriority=1)
            raise
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()


def _call_function(program: Program, rank: int, world_size: int) -> Any:
    """Import the program and call its function.

    Raises:
        UsageError: There is no such function, or it can't be called with these arguments.
        BaseException: The program raised it.
    """
    function = load_function(program)
    try:
        returned = bind_texts(function, rank, world_size, program.arguments)()
    except ValueError as error:
        if "default process group twice" in str(error):
            raise UsageError(
                f"{program.function} creates a process group, but it has one already.",
                "The group is ready when a function is called.",
                "Add --own-group, or leave out init_process_group.",
            ) from error
        raise
    if inspect.isgenerator(returned) or inspect.isawaitable(returned):
        kind = type(returned).__name__
        raise TypeError(
            f"{program.function} did not run: it returned a {kind}, which the program must run"
        )
    return returned


def set_up(program: Program) -> None:
    """Set ``sys.argv`` and ``sys.path[0]`` as Python's command line would for the program."""
    sys.argv = [program.file or "-m", *program.arguments]
    if not getattr(sys.flags, "safe_path", False):  # python -P adds no such entry
        sys.path[0] = str(program.folder)


def run_whole(program: Program) -> None:
    """Run the program as ``python FILE`` or ``python -m MODULE`` does, as ``__main__``."""
    if program.module:
        runpy.run_module(program.module, run_name="__main__", alter_sys=True)
        return
    path = os.path.abspath(program.file)  # like Python, don't follow links
    if not is_source(path):
        runpy.run_path(program.file, run_name="__main__")
        return
    # ``runpy.run_path`` sets a different ``__file__`` and removes the module at the end.
    main = ModuleType("__main__")
    main.__dict__.update(
        __file__=path,
        __builtins__=builtins,
        __cached__=None,
        __loader__=SourceFileLoader("__main__", path),
    )
    sys.modules["__main__"] = main
    code = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
    exec(code, main.__dict__)  # noqa: S102 - the user's own program


def is_source(path: Path | str) -> bool:
    """Return False for folders and archives, which Python runs by their ``__main__.py``."""
    import zipfile

    return not (os.path.isdir(path) or zipfile.is_zipfile(path))  # path may be a str


def load_function(program: Program) -> Callable[..., Any]:
    """Import the program under its own name, to which its pickles refer; return its function.

    Raises:
        UsageError: There is no such function.
        BaseException: The import raised it.
    """
    if program.module:
        module = importlib.import_module(program.module)
    else:
        module = _import_file(program.file)
    function = getattr(module, program.function, None)
    if callable(function):
        return function  # type: ignore[no-any-return]  # a callable
    defined = [
        name
        for name, member in vars(module).items()
        if inspect.isfunction(member) and member.__module__ == module.__name__
    ]
    raise no_such_function(program, defined)


def _import_file(file: str) -> ModuleType:
    path = os.path.abspath(file)  # follows no links
    name = PurePath(path).stem
    if name in sys.modules:  # the name of a loaded module: random.py, torch.py
        name = f"{name}__"
    spec = importlib.util.spec_from_file_location(name, path, loader=SourceFileLoader(name, path))
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} can't be loaded", name=name, path=path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def no_such_function(program: Program, defined: Sequence[str]) -> UsageError:
    """Return the error for a name that is not a function of the program.

    Args:
        program: Program whose function was not found.
        defined: Names of the functions that it defines.
    """
    listed = f"defines: {', '.join(defined[:20])}" if defined else "defines no function"
    return UsageError(
        f"{program.name}: there is no such function.",
        f"{program.module or program.home} {listed}.",
        f"Try {program.home}:{defined[0]}." if defined else "Define it first.",
    )


MAX_VALUE_CHARS = 4_000


def value_text(value: object) -> str:
    """Return the ``repr`` of a program's value, shortened in the middle."""
    try:
        text = repr(value)
    except Exception as error:  # a user's __repr__ may raise anything
        return f"({type(value).__qualname__}: its text can't be shown: {type(error).__qualname__})"
    return cut(text, MAX_VALUE_CHARS)
