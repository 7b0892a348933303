"""A case's name tells it from all others, and its command line makes it again."""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import typer
from matrices import every, supported

from distdemo import ops
from distdemo.check import matrix, run_check
from distdemo.check.cases import Case
from distdemo.check.matrix import Setting, make_case
from distdemo.check.parse_check import CheckRequest, parse_check
from distdemo.cli.app import app
from distdemo.cli.main import _rewritten
from distdemo.demo import execute
from distdemo.demo.parse_op import Request, parse_op
from distdemo.ops.contract import Op
from distdemo.ops.spec import OpSpec

Parsed = Request | CheckRequest
Typed = Callable[[str], Parsed]


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Typed:
    """What the command line, typed at a shell, asks for; everything but the run itself is real."""
    parsed: list[Parsed] = []

    def instead_of_running(parse: Callable[..., Parsed]) -> Callable[..., None]:
        def parse_and_stop(*given: Any) -> None:
            parsed.append(parse(*given))
            raise typer.Exit

        return parse_and_stop

    monkeypatch.setattr(execute, "parse_op", instead_of_running(parse_op))
    monkeypatch.setattr(run_check, "parse_check", instead_of_running(parse_check))
    command = typer.main.get_command(app)

    def asked(line: str) -> Parsed:
        name, *words = shlex.split(line)
        assert name == "distdemo"
        command.main(args=_rewritten(words), prog_name=name, standalone_mode=False)
        return parsed.pop()

    return asked


# ---------------------------------------------------------------------------------------- names


def test_two_cases_of_one_name_are_the_same_case() -> None:
    made: dict[str, Case] = {}
    sizes = matrix.FULL_SIZES
    quick = matrix._along_axes(matrix.QUICK_SIZES)
    settings = (*quick, *matrix._along_axes(sizes), *matrix._across(sizes))
    for case in matrix._cases(settings):
        assert made.setdefault(case.id, case) == case


@pytest.mark.parametrize("name", ["quick", "full"])
def test_no_name_comes_twice(name: str) -> None:
    names = [case.id for case in every(name)]
    assert len(set(names)) == len(names)


def case_of(name: str, form: str, setting: Setting) -> Case:
    """The case that this setting makes."""
    op = ops.REGISTRY[name]
    made = make_case(op, next(each for each in op.all_forms if each.name == form), setting)
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("name", "form", "setting", "expected"),
    [
        ("broadcast", "tensor", Setting(3), "broadcast/tensor/float32/n3/7/root0"),
        (
            "reduce",
            "tensor",
            Setting(4, "int8", "max", (3, 5), -1, async_op=True),
            "reduce/tensor/max/int8/n4/3x5/root3/async",
        ),
        ("all_reduce", "tensor", Setting(1, shape=()), "all_reduce/tensor/sum/float32/n1/scalar"),
        ("gather", "list", Setting(2, shape=(0,)), "gather/list/float32/n2/empty/root0"),
        ("all_gather", "uneven", Setting(3), "all_gather/uneven/float32/n3/sizes3,0,7"),
        ("all_to_all", "uneven", Setting(2), "all_to_all/uneven/float32/n2/splits6"),
        (
            "p2p",
            "nonblocking",
            Setting(3, root=-1, inference=True),
            "p2p/nonblocking/float32/n3/7/2to0/async/inference",
        ),
        ("scatter", "objects", Setting(2, "int8"), "scatter/objects/object/n2/root0"),
        (
            "all_gather",
            "objects",
            Setting(4, shape=(3, 5), layout="ends"),
            "all_gather/objects/object/n4/nested/groups0.2.3",
        ),
        (
            "barrier",
            "monitored",
            Setting(4, root=1, layout="strided"),
            "barrier/monitored/none/n4/late1/groups0.2+1.3",
        ),
    ],
)
def test_a_name_says_all_that_a_case_is(
    name: str, form: str, setting: Setting, expected: str
) -> None:
    assert case_of(name, form, setting).id == expected


# --------------------------------------------------------------------------------- command lines


def essence(specs: Sequence[OpSpec]) -> list[OpSpec]:
    """The specs without what makes no difference to what runs."""
    return [essential(spec) for spec in specs]


def essential(spec: OpSpec) -> OpSpec:
    things = tuple(map(normal, spec.objects_json)) if spec.objects_json is not None else None
    return replace(
        spec,
        objects_json=things,
        monitor_timeout_s=0,  # the longest wait for a rank that is late
        variant=None if spec.objects else spec.variant,  # objects come as a list anyway
        shape=() if spec.sizes is not None else spec.shape,  # the sizes tell
    )


def normal(thing: str | None) -> str:
    return json.dumps(json.loads(thing or "null"))


def differences(cases: Sequence[Case], typed: Typed) -> dict[str, str]:
    """The command lines that make something else than their case."""
    odd = {}
    for case in cases:
        request = typed(case.command())
        assert isinstance(request, Request)
        same = request.world.world_size == case.world_size
        if not same or essence(request.specs) != essence(case.specs):
            odd[case.command()] = f"{request.specs}, not {case.specs}"
    return odd


def of_commands(cases: Sequence[Case]) -> list[Case]:
    """Those that an op's own command runs."""
    return [case for case in cases if "--case" not in case.command()]


def by_name(cases: Sequence[Case]) -> list[Case]:
    """Those that only ``check`` runs."""
    return [case for case in cases if "--case" in case.command()]


def test_every_quick_case_is_what_its_command_line_makes(typed: Typed) -> None:
    cases = of_commands(supported("quick"))
    assert len(cases) > 1000
    forms = {(op, form.name) for op in ops.REGISTRY.values() for form in op.all_forms}
    assert {(case.op, case.form.name) for case in cases} == forms - {
        (ops.REGISTRY["all_to_all"], "uneven list")  # which gloo has not
    }
    assert differences(cases, typed) == {}


def test_full_cases_are_what_their_command_lines_make(typed: Typed) -> None:
    cases = random.Random(0).sample(of_commands(supported("full")), 300)
    grouped = [case for case in of_commands(supported("full")) if len(case.specs) > 1]
    uneven = [case for case in grouped if case.form.uneven or case.spec.objects_json]
    assert differences([*cases, *random.Random(0).sample(uneven, 50)], typed) == {}


def test_only_cases_without_an_element_are_run_by_their_name() -> None:
    named = by_name(supported("full"))
    assert {case.op.name for case in named} >= {"all_reduce", "all_gather", "all_to_all", "p2p"}
    for case in named:
        assert not case.spec.objects
        assert not case.op.meets
        assert case.spec.numel == 0
        line = f"distdemo check --case {case.id} -n {case.world_size}"
        assert shlex.split(case.command()) == line.split()


@pytest.mark.parametrize("size", [2, 5])
def test_a_case_that_is_run_by_its_name_is_in_a_check_of_its_world_size(size: int) -> None:
    known = {case.id for case in (*matrix.quick(sizes=(size,)), *matrix.full(sizes=(size,)))}
    named = {case.id for case in by_name(supported("full")) if case.world_size == size}
    assert len(named) > 20
    assert named <= known


def test_check_finds_a_case_by_its_name(typed: Typed) -> None:
    few = [case for case in by_name(supported("full")) if case.world_size in (1, 3)]
    for case in few[:2]:
        request = typed(case.command())
        assert isinstance(request, CheckRequest)
        assert [each.id for each in request.cases] == [case.id]
        assert essence(request.cases[0].specs) == essence(unseeded(case).specs)
        assert request.world.world_size == case.world_size


def unseeded(case: Case) -> Case:
    """As the default seed makes it: of no element nothing is mixed."""
    specs = (spec if spec.seed is None else replace(spec, seed=0) for spec in case.specs)
    return replace(case, specs=tuple(specs))


@pytest.mark.parametrize("shape", [(7,), (0,)], ids=["op's command", "check --case"])
def test_backend_and_device_are_named_where_they_are_not_the_usual_ones(
    shape: tuple[int, ...],
) -> None:
    case = case_of("all_reduce", "tensor", Setting(2, shape=shape))
    assert "--backend" not in case.command()
    assert "--device" not in case.command()
    assert case.command("nccl").endswith(" --backend nccl")
    assert case.command("gloo", "cuda").endswith(" --device cuda")


def test_a_name_with_a_blank_in_it_does_not_come_up() -> None:
    """It would have to be quoted, and an id is typed and copied."""
    for case in supported("quick"):
        assert shlex.quote(case.id).strip("'") == case.id
        assert not set(case.id) & set(" '\"\\$`")


def test_the_element_type_of_objects_and_of_a_barrier_is_none_that_a_tensor_has() -> None:
    def dtype(op: Op, form: str) -> str:
        return case_of(op.name, form, Setting(2, "int8")).dtype

    assert dtype(ops.REGISTRY["gather"], "objects") == "object"
    assert dtype(ops.REGISTRY["barrier"], "plain") == "none"
    assert dtype(ops.REGISTRY["gather"], "list") == "int8"
