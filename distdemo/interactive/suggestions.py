"""Names in torch.distributed that a failed cell probably means. A rank looks for them."""

from __future__ import annotations

import difflib
import re

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from distdemo import ops, words
from distdemo.ops.reduction import NAMES, REDUCTIONS

WORD = re.compile(r"[\w-]+")  # also all-reduce, which Python reads as a difference
INVOKED = "Invoked with: "  # of pybind11: the arguments that it refused
LIKENESS = 0.8  # of a typo and the name, from 0 to 1


def suggestion(error: BaseException, source: str) -> str:
    """Return what an undefined name or a wrong ``op`` probably means; empty if unknown.

    Only the letters of a name count, and the names of MPI and NCCL are understood, as on the
    command line: ``allreduce``, ``MPI_Allreduce``, ``torch.all_reduce``, ``dist.bcast``.

    Args:
        error: Exception of a cell.
        source: Code of the cell.
    """
    if isinstance(error, TypeError):
        return _reduction(str(error))
    if isinstance(error, AttributeError):
        may_mean = error.obj is dist or error.obj is torch or isinstance(error.obj, torch.Tensor)
    else:
        may_mean = isinstance(error, NameError)
    name = getattr(error, "name", None)
    if not may_mean or not name:
        return ""
    typed = [word for word in WORD.findall(source) if name in word.split("-")]
    found = next(filter(None, map(_functions, (*typed, name))), ())
    return " or ".join(f"dist.{function}" for function in found)


def _reduction(message: str) -> str:
    """Return the ``op`` that the message of a refused one means: of ``'max'``, ``op=...MAX``."""
    before, _, given = message.partition(INVOKED)
    names = [name.lower() for name in WORD.findall(given)] if "ReduceOp" in before else []
    reductions = [REDUCTIONS[NAMES[name]] for name in names if name in NAMES]
    return f"op=dist.ReduceOp.{reductions[-1].torch_name}" if reductions else ""


def _functions(name: str) -> tuple[str, ...]:
    """Return the functions of torch.distributed that a name means."""
    letters = words.letters(words.without_prefix(name))
    for function in distributed_c10d.__all__:
        if words.letters(function) == letters:
            return (function,)
    meant = ops.resolve(name)
    if meant is None:
        typos = difflib.get_close_matches(letters, map(words.letters, ops.NAMES), 1, LIKENESS)
        return _functions(typos[0]) if typos else ()
    _, form = meant
    return tuple(dict.fromkeys(form.functions))
