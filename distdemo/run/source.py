"""A program's source, read but not run: its functions, and which of them make a process group.

By names alone: what a call is called is looked up among the functions, classes and methods of the
same file. No torch.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from distdemo.errors import UsageError
from distdemo.launcher.leading import RANK_NAMES

GROUP_MAKERS = ("init_process_group", "init_rpc")
STARTERS = ("spawn", "start_processes", "Process")
"""Of torch.multiprocessing: what starts processes that call a function which is named to it."""
LATER = (*STARTERS, "Thread", "Pool", "Timer", "submit", "map", "apply_async", "partial")
"""What is given a function that it does not call there and then, in this process."""

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(slots=True)
class Source:
    """What a file has at its top level.

    Attributes:
        functions: by name; a name that is bound to a lambda too.
        classes: by name.
        others: names that are imported or assigned.
        aliases: what imported names are called where they come from.
        top: the statements that run when the file does.
    """

    functions: dict[str, Function] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)
    aliases: dict[str, str] = field(default_factory=dict)
    top: list[ast.stmt] = field(default_factory=list)
    makes_group: bool = False

    @property
    def names(self) -> list[str]:
        """Of everything that might be called."""
        return [*self.functions, *self.classes, *sorted(self.others)]

    @property
    def idle(self) -> bool:
        """Whether it has functions, and nothing that runs when the file does."""
        still = (ast.Import, ast.ImportFrom, ast.Pass)
        running = [node for node in self.top if not isinstance(node, still)]
        acts = any(next(_calls(node), None) is not None for node in running)
        loops = any(isinstance(node, ast.For | ast.While | ast.With) for node in running)
        return bool(self.functions) and not (acts or loops)

    def reaches_group(self, name: str = "") -> bool:
        """Whether this function makes a process group, itself or through others of the file.

        Args:
            name: of the function; empty: what runs when the file does.
        """
        return any(called in GROUP_MAKERS for called, _ in self._reached(name))

    def starts_ranks(self, name: str = "") -> int:
        """The line that starts processes which make a group; 0: there is none.

        Args:
            name: as above.
        """
        for called, call in self._reached(name):
            if self.makes_group and called in STARTERS:
                targets = [self._name(each) for each in _arguments(call)]
                known = [each for each in targets if each in self.functions]
                if any(map(self.reaches_group, known)) or (called != "Process" and not known):
                    return call.lineno
        return 0

    def calls_at_import(self, name: str) -> bool:
        """Whether to import the file calls this function: nothing guards it from that."""
        free = (node for node in self.top if not _is_guard(node))
        return any(name in self._called(call) for node in free for call in _calls(node))

    def takes_rank(self, name: str) -> bool:
        """Whether the first parameter of this function is a rank."""
        node = self.functions.get(name)
        return node is not None and _first(node) in RANK_NAMES

    def rank_functions(self) -> list[str]:
        """The functions that take a rank and that no other calls, in the order of the file."""
        inner = {self._name(call.func) for node in self.functions.values() for call in _calls(node)}
        return [name for name in self.functions if self.takes_rank(name) and name not in inner]

    def _reached(self, name: str) -> Iterator[tuple[str, ast.Call]]:
        """Every call that is made, by this function or what it calls; each with its name."""
        waiting: list[ast.AST] = [self.functions[name]] if name in self.functions else []
        waiting += [] if name else self.top
        seen: set[int] = set()
        while waiting:
            node = waiting.pop(0)
            if id(node) in seen:
                continue
            seen.add(id(node))
            for call in _calls(node):
                for called in self._called(call):
                    yield called, call
                    waiting += self._bodies(called)

    def _called(self, call: ast.Call) -> Iterator[str]:
        """The names of what a call calls, as far as it can be told: ``record(main)()`` too."""
        name = self._name(call.func)
        yield name
        if name not in LATER and name not in self.functions:
            yield from (
                self._name(each) for each in call.args if self._name(each) in self.functions
            )

    def _name(self, node: ast.AST) -> str:
        if isinstance(node, ast.Attribute):
            return node.attr
        return self.aliases.get(node.id, node.id) if isinstance(node, ast.Name) else ""

    def _bodies(self, name: str) -> Iterator[ast.AST]:
        """What may run when something of this name is called."""
        if name in self.functions:
            yield self.functions[name]
        if name in self.classes:
            yield from _methods(self.classes[name])
        for each in self.classes.values():
            yield from (method for method in _methods(each) if method.name == name)


def is_generator(function: Function) -> bool:
    """Whether it yields itself; what yields within a function in it does not count."""
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, (*_SCOPES, ast.Lambda, ast.GeneratorExp)):
            waiting += ast.iter_child_nodes(node)
    return False


def read_source(text: bytes, file: str) -> Source:
    """The source of a file.

    Args:
        text: in the encoding that its first lines or its mark say, else UTF-8.
        file: its path, for the message.

    Raises:
        UsageError: it is no Python.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the program itself will say them
            tree = ast.parse(text, file)
    except SyntaxError as error:
        line = f", line {error.lineno}" if error.lineno else ""
        shown = (error.text or "").strip()
        raise UsageError(
            f"{file}{line}: {error.msg}.",
            f"Python can't read this: {shown[:120]}" if shown else "Python can't read it.",
            "Mend that line first.",
        ) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UsageError(
            f"{file} is no Python program.", f"{error}".capitalize() + ".", "Try a .py file."
        ) from None
    return _survey(tree)


def _survey(tree: ast.Module) -> Source:
    found = Source(top=[node for node in tree.body if not isinstance(node, _SCOPES)])
    for node in _statements(tree.body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.functions[node.name] = node
        elif isinstance(node, ast.ClassDef):
            found.classes[node.name] = node
        elif isinstance(node, ast.Assign):
            _note_assigned(found, node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                found.others.add(alias.asname or alias.name.partition(".")[0])
    for each in ast.walk(tree):
        if isinstance(each, ast.ImportFrom):
            found.aliases |= {alias.asname: alias.name for alias in each.names if alias.asname}
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    found.makes_group = any(found._name(call.func) in GROUP_MAKERS for call in calls)  # noqa: SLF001 - it is being made here
    return found


def _note_assigned(found: Source, node: ast.Assign) -> None:
    for target in node.targets:
        if isinstance(target, ast.Name) and isinstance(node.value, ast.Lambda):
            found.functions[target.id] = node.value
        elif isinstance(target, ast.Name):
            found.others.add(target.id)


def _statements(body: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    """The statements of a block, and of the blocks in it that are no scopes of their own."""
    for each in body:
        if isinstance(each, ast.stmt):
            yield each
        if isinstance(each, ast.stmt | ast.ExceptHandler) and not isinstance(each, _SCOPES):
            yield from _statements(ast.iter_child_nodes(each))


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    """The calls in a node; functions that are defined within one count as part of it."""
    nested = ast.iter_child_nodes(node)
    for child in nested:
        if isinstance(node, ast.stmt) and not isinstance(node, _SCOPES) and _is_scope(child):
            continue  # defined in a block of the top level: it runs where it is called
        if isinstance(child, ast.Call):
            yield child
        yield from _calls(child)


def _is_guard(node: ast.stmt) -> bool:
    """Whether it is ``if __name__ == "__main__":``, or its like."""
    names = ast.walk(node.test) if isinstance(node, ast.If) else ()
    return any(isinstance(each, ast.Name) and each.id == "__name__" for each in names)


def _is_scope(node: ast.AST) -> bool:
    return isinstance(node, _SCOPES)


def _methods(node: ast.ClassDef) -> list[ast.FunctionDef]:
    return [each for each in node.body if isinstance(each, ast.FunctionDef)]


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _first(node: Function) -> str:
    given = [*node.args.posonlyargs, *node.args.args]
    return given[0].arg if given else ""
