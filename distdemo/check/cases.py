"""A case of ``check``: one op in one form with one setting of everything, and its command line."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from distdemo.ops.contract import Form, Op
from distdemo.ops.spec import OpSpec

Each = TypeVar("Each")


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to try.

    Attributes:
        op: what to run.
        specs: one a group that runs it at once, as for the demo.
        world_size: ranks of the world.
    """

    op: Op
    specs: tuple[OpSpec, ...]
    world_size: int

    @property
    def spec(self) -> OpSpec:
        """Of the first group."""
        return self.specs[0]

    @property
    def form(self) -> Form:
        """Which form of the op."""
        return self.op.form(self.spec)

    @property
    def dtype(self) -> str:
        """The element type; ``object`` or ``none`` where there are no elements."""
        if self.op.meets:
            return "none"
        return "object" if self.spec.objects else self.spec.dtype

    @property
    def id(self) -> str:
        """Its name, made of all that tells it from other cases."""
        return "/".join(_words(self))

    def command(self, backend: str = "gloo", device: str = "") -> str:
        """A command line that runs this case alone.

        Args:
            backend: the one that it runs on.
            device: where its tensors are; empty for the backend's own choice.
        """
        flags = list(_by_name(self) if _has_no_command(self) else _flags(self))
        if backend != "gloo":
            flags += ["--backend", backend]
        if device:
            flags += ["--device", device]
        return shlex.join(["distdemo", *flags])


def _words(case: Case) -> Iterator[str]:
    spec = case.spec
    yield case.op.name
    yield case.form.name.replace(" ", "-")
    if spec.reduce_op is not None:
        yield spec.reduce_op
    yield case.dtype
    yield f"n{case.world_size}"
    if not (case.op.meets or spec.objects):
        yield _shape(spec)
    if spec.objects_json is not None:
        yield "nested"
    if spec.root is not None:
        yield f"root{spec.root}"
    if spec.src is not None:
        yield f"{spec.src}to{spec.dst}"
    if spec.straggler is not None:
        yield f"late{spec.straggler}"
    if spec.members is not None:
        yield "groups" + "+".join(".".join(map(str, each.members or ())) for each in case.specs)
    if spec.async_op:
        yield "async"
    if spec.inference:
        yield "inference"


def _shape(spec: OpSpec) -> str:
    if spec.sizes is not None:
        return "sizes" + ",".join(map(str, spec.sizes))
    if spec.splits is not None:
        return f"splits{sum(map(sum, spec.splits))}"
    if spec.shape == ():
        return "scalar"
    return "x".join(map(str, spec.shape)) if spec.numel else "empty"


def _has_no_command(case: Case) -> bool:
    """Whether an op's own command refuses it: there would be no element to show."""
    return not any(spec.objects or _elements(spec) for spec in case.specs)


def _elements(spec: OpSpec) -> int:
    """How many the longest tensor of a rank has."""
    lengths = spec.sizes if spec.splits is None else tuple(map(sum, spec.splits))
    return spec.numel if lengths is None else max(lengths)


def _by_name(case: Case) -> Iterator[str]:
    """``check`` and the case's name; it knows only cases of the world sizes that it was given."""
    yield from ("check", "--case", case.id, "-n", str(case.world_size))


def _flags(case: Case) -> Iterator[str]:
    """The op's command and its flags."""
    op, spec = case.op, case.spec
    yield op.command
    yield from case.form.flags.replace("--splits", "").split()
    yield from ("-n", str(case.world_size))
    yield from _data(case)
    if spec.reduce_op is not None:
        yield from ("--reduce-op", spec.reduce_op)
    if spec.root is not None:
        yield from ("--root", str(spec.root))
    if spec.src is not None:
        yield from ("--src", str(spec.src), "--dst", str(spec.dst))
    if spec.straggler is not None:
        yield from ("--straggler", f"{spec.straggler}:{spec.straggler_delay_s:g}")
    yield from _groups(case)
    if spec.async_op and "--nonblocking" not in case.form.flags:
        yield "--nonblocking" if "nonblocking" in op.takes else "--async"
    if spec.inference:
        yield "--inference-mode"


def _data(case: Case) -> Iterator[str]:
    spec = case.spec
    if case.op.meets:
        return
    if spec.objects:
        shares = [each.objects_json for each in case.specs if each.objects_json is not None]
        for thing in _in_order(case, shares) if shares else ():
            yield from ("--values", thing or "null")
        return
    yield from ("--dtype", spec.dtype)
    if spec.sizes is not None:
        sizes = _in_order(case, [each.sizes or () for each in case.specs])
        yield from ("--sizes", ",".join(map(str, sizes)))
    elif spec.splits is not None:
        for row in _in_order(case, [each.splits or () for each in case.specs]):
            yield from ("--splits", ",".join(map(str, row)))
    else:
        yield from ("--shape", ",".join(map(str, spec.shape)) or "scalar")
    if spec.seed is not None:
        yield from ("--seed", str(spec.seed))


def _in_order(case: Case, shares: list[tuple[Each, ...]]) -> list[Each]:
    """What the groups hold a rank, in the order of the ranks that take part."""
    pairs = [
        (rank, each)
        for spec, share in zip(case.specs, shares, strict=True)
        for rank, each in zip(spec.members or range(len(share)), share, strict=True)
    ]
    return [each for _, each in sorted(pairs, key=lambda pair: pair[0])]


def _groups(case: Case) -> Iterator[str]:
    if case.spec.members is None:
        return
    if len(case.specs) == 1:
        yield from ("--group", ",".join(map(str, case.spec.members)))
        return
    neighbours = case.spec.members == tuple(range(case.spec.group_size))
    yield from ("--split", ("" if neighbours else "%") + str(len(case.specs)))
