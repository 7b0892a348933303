"""What every rank of ``run`` does: make the process look as the program expects it, and run it."""

from __future__ import annotations

import atexit
import bdb
import builtins
import functools
import importlib.util
import inspect
import multiprocessing
import os
import runpy
import sys
import threading
import weakref
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from multiprocessing import util
from pathlib import Path, PurePath
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from distdemo.errors import UsageError
from distdemo.run.records import Finished
from distdemo.run.source import bind, no_such_function
from distdemo.run.value import plain_value

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank
    from distdemo.run.records import Program
    from distdemo.sanitizer.records import Notes


def run_program(
    rank: Rank, program: Program, pdb: int | None = None, notes: Notes | None = None
) -> Finished:
    """Collective: run the program on this rank.

    Args:
        rank: this rank. Its default group is ready if it was asked for.
        program: which.
        pdb: the rank that a person debugs; None: none.
        notes: what to note of its calls; None: nothing.
    """
    if notes is None:
        return _run(rank, program, pdb)
    from distdemo.sanitizer.hooks import noting

    with noting(notes, rank.rank, rank.world_size):
        return _run(rank, program, pdb)


def _run(rank: Rank, program: Program, pdb: int | None) -> Finished:
    _pose_as(program)
    with _debugged(rank.rank, pdb), _to_the_end():
        if not program.function:
            made = _noting_groups()
            _run_whole(program)
            return Finished(made_group=bool(made))
        numbers = {
            "RANK": rank.rank,
            "LOCAL_RANK": rank.local_rank,
            "WORLD_SIZE": rank.world_size,
            "LOCAL_WORLD_SIZE": rank.local_size,
        }
        os.environ.update({name: str(number) for name, number in numbers.items()})
        if dist.is_initialized():
            rank.meet("everybody is connected")  # one that fails at once would be others' failure
        return Finished(*plain_value(_call_function(program, rank.rank, rank.world_size)))


def _pose_as(program: Program) -> None:
    """``sys.argv`` and ``sys.path[0]`` as Python's command line would set them for the program.

    And the start method of its own processes is still its to choose.
    """
    multiprocessing.set_start_method(None, force=True)
    sys.argv = [program.file or "-m", *program.arguments]
    if getattr(sys.flags, "safe_path", False):  # the user wants no such place there
        return
    home = Path.cwd()
    if program.file:
        path = Path(os.path.realpath(program.file))
        home = path if path.is_dir() else path.parent
    sys.path[0] = str(home)


# -------------------------------------------------------------------------------- a whole program


def _run_whole(program: Program) -> None:
    """As ``python FILE`` or ``python -m MODULE`` runs it."""
    if program.module:
        runpy.run_module(program.module, run_name="__main__", alter_sys=True)
        return
    path = os.path.abspath(program.file)  # noqa: PTH100 - as Python does, which follows no links here
    if Path(path).is_dir() or zipfile.is_zipfile(path):
        runpy.run_path(program.file, run_name="__main__")
        return
    # ``runpy.run_path`` leaves another ``__file__``, and takes the module away at its end.
    main = ModuleType("__main__")
    main.__dict__.update(
        __file__=path,
        __builtins__=builtins,
        __cached__=None,
        __loader__=SourceFileLoader("__main__", path),
    )
    sys.modules["__main__"] = main
    code = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
    exec(code, main.__dict__)  # noqa: S102 - the user's own program, which is what was asked for


def _noting_groups() -> list[bool]:
    """A list that is no longer empty once the program has made a process group, or uses RPC."""
    made: list[bool] = []

    def note(maker: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(maker)
        def noted(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - torch's own
            made.append(True)
            return maker(*args, **named)

        return noted

    dist.init_process_group = c10d.init_process_group = note(dist.init_process_group)
    rpc = sys.modules.get("torch.distributed.rpc")
    if rpc is not None and hasattr(rpc, "init_rpc"):
        rpc.init_rpc = note(rpc.init_rpc)  # type: ignore[attr-defined]  # a function of it
    return made


@contextmanager
def _to_the_end() -> Iterator[None]:
    """After the block do what Python does when a program has ended: a rank leaves without it.

    After a failure, which must be known first as threads may wait for ever, the exit functions are
    called when the process ends, by multiprocessing, within the time that any rank gets.
    """
    atexit._clear()  # noqa: SLF001 - what is there already is the launcher's, not the program's
    for each in weakref.finalize._registry:  # type: ignore[attr-defined]  # noqa: SLF001 - the same
        each.atexit = False
    atexit.register(weakref.finalize._exitfunc)  # type: ignore[attr-defined]  # noqa: SLF001 - it was cleared, too
    try:
        yield
    except BaseException as error:
        if not isinstance(error, SystemExit) or error.code not in (None, 0):
            util.Finalize(None, atexit._run_exitfuncs, exitpriority=1)  # noqa: SLF001 - as multiprocessing itself does
            raise
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - joins threads, and lets executors' threads go
    atexit._run_exitfuncs()  # noqa: SLF001 - as above


# ------------------------------------------------------------------------------------- a function


def _call_function(program: Program, rank: int, world_size: int) -> Any:  # noqa: ANN401 - the user's value
    """Import the program, not as the main module, and call its function.

    Raises:
        UsageError: there is no such function, or it can't be called so.
        BaseException: whatever the program raises.
    """
    module = importlib.import_module(program.module) if program.module else _load(program.file)
    function = getattr(module, program.function, None)
    if not callable(function):
        known = [
            name
            for name, each in vars(module).items()
            if inspect.isfunction(each) and each.__module__ == module.__name__
        ]
        where = program.name.partition(":")[0].removeprefix("-m ")
        raise no_such_function(program, "there is no such function", where, known)
    try:
        returned = function(*bound(function, rank, world_size, program.arguments))
    except ValueError as error:
        if "default process group twice" in str(error):
            raise UsageError(
                f"{program.function} makes a process group, and one is made for it already.",
                "The group of a function is ready when it is called.",
                "Add --own-group, or leave out init_process_group.",
            ) from error
        raise
    if inspect.isgenerator(returned) or inspect.isawaitable(returned):
        kind = type(returned).__name__
        raise TypeError(
            f"{program.function} did not run: it returned a {kind}, "
            "which has to be run by the program"
        )
    return returned


def _load(file: str) -> ModuleType:
    """The file as a module under its own name, which is what its pickles will speak of."""
    path = os.path.abspath(file)  # noqa: PTH100 - follows no links
    name = PurePath(path).stem
    if name in sys.modules:  # it is called as a module that is loaded: random.py, torch.py
        name = f"{name}__"
    spec = importlib.util.spec_from_file_location(name, path, loader=SourceFileLoader(name, path))
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} can't be loaded", name=name, path=path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def bound(
    function: Callable[..., Any], rank: int, size: int, arguments: Sequence[str]
) -> tuple[Any, ...]:
    """Return the values to call the function with.

    Raises:
        UsageError: it can't be called with these arguments.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some builtins
        return tuple(arguments)
    name = getattr(function, "__name__", repr(function))
    return bind(f"{name}{signature}", signature, rank, size, arguments)


# -------------------------------------------------------------------------------------- debugging


@contextmanager
def _debugged(rank: int, pdb: int | None) -> Iterator[None]:
    """Within the block ``breakpoint()`` stops the rank that a person debugs, and no other.

    If the block raises on that rank, the debugger looks at where it did. PYTHONBREAKPOINT holds as
    ever.

    Args:
        rank: this one.
        pdb: the one that is debugged; None: none, then ``breakpoint()`` raises.
    """

    def refuse(*_: object, **__: object) -> None:
        if pdb is None:
            raise RuntimeError("breakpoint() was reached: say which rank has the terminal, --pdb 0")

    if "PYTHONBREAKPOINT" not in os.environ and rank != pdb:
        sys.breakpointhook = refuse
    try:
        yield
    except bdb.BdbQuit:
        raise SystemExit("the debugger was quit") from None
    except Exception as error:
        if rank == pdb:
            import pdb as debugger  # noqa: T100 - this is what was asked for

            from distdemo.launcher.failures import excerpt
            from distdemo.view.foreign import write_message

            write_message(excerpt(error))
            debugger.post_mortem(error.__traceback__)
        raise
