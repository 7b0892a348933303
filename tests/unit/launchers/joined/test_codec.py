from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from dataclasses import dataclass, fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdemo.check import check
from distdemo.demo import holdings, reports
from distdemo.launcher import records
from distdemo.launcher.joined import codec
from distdemo.launcher.joined.codec import decode, encode
from distdemo.launcher.records import WorldSpec
from distdemo.launcher.watch import End
from distdemo.ops.contract import Traffic
from distdemo.ops.spec import OpSpec

# ------------------------------------------------------------------------------- what goes round

SIMPLE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**200), 2**200),
    st.floats(),
    st.complex_numbers(),
    st.text(st.characters()),  # lone surrogates too
    st.binary(),
    st.builds(range, st.integers(), st.integers(), st.integers().filter(bool)),
    st.sampled_from(End),
)
HASHABLE = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple), st.frozensets(inner, max_size=3)
    ),
    max_leaves=6,
)
VALUES = st.recursive(
    HASHABLE,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.sets(HASHABLE, max_size=3),
        st.dictionaries(HASHABLE, inner, max_size=3),
        st.builds(holdings.Thing, inner, st.integers(), st.integers()),
    ),
    max_leaves=12,
)


def sent() -> st.SearchStrategy[Any]:
    """Every record that a rank sends, with made-up contents of the right types."""
    number = st.one_of(st.booleans(), st.integers(), st.floats(), st.complex_numbers())
    piece = st.builds(
        holdings.Piece, st.lists(st.integers()).map(tuple), st.lists(number).map(tuple)
    )
    thing = st.builds(holdings.Thing, VALUES, st.integers(), st.integers())
    holding = st.builds(holdings.Holding, st.lists(piece | thing, max_size=3).map(tuple))
    kinds = [holdings.Mismatch, holdings.Attendance, reports.Introduction, reports.CaseResult]
    kinds += [check.Finding, records.Phase, records.Where, records.Verdict]
    kinds += [records.Died, records.Stopped, records.TimedOut, records.Raised]
    kinds += [OpSpec, Traffic, WorldSpec, holdings.Verification]
    plain = st.one_of(*(st.builds(kind) for kind in kinds))
    event = st.builds(holdings.Event, holds=holding)
    step = st.builds(holdings.Step, holds=holding)
    record = st.builds(
        holdings.RankRecord,
        before=holding,
        after=holding,
        expected=holding,
        events=st.lists(event, max_size=2).map(tuple),
        steps=st.lists(step, max_size=2).map(tuple),
        attendance=st.none() | st.builds(holdings.Attendance),
    )
    returned = st.builds(records.Returned, value=plain | record)
    return st.one_of(plain, record, returned)


def form(value: Any) -> str:
    """Types and contents throughout, as text: NaN is like NaN, −0.0 is not like 0.0."""
    if isinstance(value, (set, frozenset)):
        inside = sorted(map(form, value))
    elif isinstance(value, (list, tuple)):
        inside = list(map(form, value))
    elif isinstance(value, dict):
        inside = [form(pair) for pair in value.items()]
    elif hasattr(value, "__dataclass_fields__"):
        inside = [form(getattr(value, each.name)) for each in fields(value)]
    elif isinstance(value, int):
        inside = [hex(value)]
    else:
        inside = [repr(value)]
    return f"{type(value).__qualname__}({', '.join(inside)})"


def alike(one: Any, other: Any) -> bool:
    """Whether they are equal and of the same types throughout."""
    return form(one) == form(other)


@given(VALUES)
def test_any_value_comes_back_as_it_was(value: Any) -> None:
    text = encode(value)
    assert text.isascii()
    assert alike(decode(text), value), text


@given(sent())
def test_any_record_that_a_rank_sends_comes_back_as_it_was(record: Any) -> None:
    assert alike(decode(encode(record)), record)


@pytest.mark.parametrize(
    "value",
    [
        -0.0,
        2**63 - 1,
        -(2**63),
        pytest.param(10**5000, id="longer than what Python reads as decimal text"),
        "\ud800\udc00",  # two lone surrogates, not the one character that JSON makes of them
        {"dict": [1]},
        {"record": "distdemo.demo.records:Piece", "fields": {}},
        {1: "int", "1": "text", (1,): "tuple", None: "none"},
        {True: 1, 2.5: float("nan")},
        [[[]], (), set(), frozenset(), {}],
    ],
)
def test_what_could_be_mixed_up_is_not(value: Any) -> None:
    assert alike(decode(encode(value)), value)


# --------------------------------------------------------------------------- what does not travel


@dataclass(frozen=True)
class Foreign:
    """Frozen, but of another package."""

    x: int = 1


def test_only_what_can_be_given_back_is_written() -> None:
    for value in (Foreign(), object(), len, os, Foreign, 1j.__class__, bytearray(b"x"), os.environ):
        with pytest.raises(ValueError, match=r"does not travel|no class of a loaded module"):
            encode([value])


def test_a_child_of_a_number_or_text_is_no_number_or_text() -> None:
    class Shouting(str):
        __slots__ = ()

    with pytest.raises(ValueError, match="Shouting does not travel"):
        encode(Shouting("x"))


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="nested more than"):
        encode(loop)


def test_nesting_up_to_the_limit_travels_both_ways() -> None:
    value: Any = 1
    for _ in range(codec.DEEPEST):
        value = (value,)
    assert decode(encode(value)) == value
    with pytest.raises(ValueError, match="nested more than"):
        encode([value])
    with pytest.raises(ValueError, match="nested too deeply"):
        decode(f"[{encode(value)}]")


# --------------------------------------------------------------------------------- hostile texts


def record(name: str, **given_fields: Any) -> str:
    return json.dumps({"record": name, "fields": given_fields})


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A module of the package with things that must not be built, and a list of what was."""
    built: list[str] = []
    module = types.ModuleType("distdemo.planted")

    @dataclass(frozen=True)
    class Watched:
        x: int

        def __post_init__(self) -> None:
            built.append("watched")

    @dataclass
    class Thawed:
        x: int

    class Plain:
        def __init__(self, **given_fields: Any) -> None:
            built.append("plain")

    @dataclass(frozen=True)
    class Parent:
        x: int

    class Child(Parent):
        def __init__(self, **given_fields: Any) -> None:
            built.append("child")

    for kind in (Watched, Thawed, Plain, Parent, Child):
        kind.__module__, kind.__qualname__ = module.__name__, kind.__name__
        setattr(module, kind.__name__, kind)
    module.Alias = Parent  # type: ignore[attr-defined]
    module.system = os.system  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return built


def test_a_planted_record_is_built_but_nothing_else(planted: list[str]) -> None:
    parent = decode(record("distdemo.planted:Parent", x=3))
    assert (type(parent).__name__, parent.x) == ("Parent", 3)
    for name in ("Watched", "Thawed", "Plain", "Child", "Alias", "system", "Parent.__init__"):
        with pytest.raises(ValueError, match=r"distdemo\.planted"):
            decode(record(f"distdemo.planted:{name}", x=3))
    assert planted == []


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "subprocess:Popen",
        "builtins:eval",
        "distdemo",
        "distdemo:launch",
        "distdemo.launcher.api:launch",
        "distdemo.launcher.joined.codec:decode",
        "distdemo.launcher.joined.codec:sys",
        "distdemo.launcher.channel:Sender",
        "distdemo.errors:UsageError",
        "distdemo.demo.records:Piece.__init__",
        "distdemo.demo.records:__builtins__",
        "distdemo.demo.records:Nothing",
        "distdemo.demo.records.Piece:__class__",
        "distdemo.demo.reports:Piece",
        "distdemo..os:system",
        "os.path:join",
        "",
        ":",
        7,
        None,
        ["distdemo.demo.records", "Piece"],
    ],
)
def test_a_name_of_anything_but_a_record_builds_nothing(name: Any) -> None:
    for text in (record(name), json.dumps({"member": name, "name": "x"})):
        with pytest.raises(ValueError, match=r"no class of a loaded|neither a frozen"):
            decode(text)


def test_a_module_that_is_not_loaded_is_not_imported() -> None:
    name = "distdemo.check.view_junit"
    script = (
        f"import sys; from distdemo.launcher.joined.codec import decode\n"
        f'try: decode(\'{{"record": "{name}:Anything", "fields": {{}}}}\')\n'
        f"except ValueError: print({name!r} in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    "given_fields",
    [
        {},
        {"shape": None},
        {"shape": [], "head": [], "tail": [], "source": None, "__class__": 1},
        {"shape": [], "head": [], "tail": [], "__dict__": {"dict": []}},
        [1, 2],
        "shape",
    ],
)
def test_a_record_takes_its_own_fields_and_no_others(given_fields: Any) -> None:
    text = json.dumps({"record": "distdemo.demo.records:Piece", "fields": given_fields})
    with pytest.raises(ValueError, match="not made of these fields"):
        decode(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nope",
        "NaN",
        "-Infinity",
        "[1,]",
        "{}",
        '{"tuple": 1}',
        '{"tuple": [1], "list": [2]}',
        '{"pickle": "gASV"}',
        '{"set": [[1], [2]]}',
        '{"set": [1, 1]}',
        '{"frozenset": [1, true]}',
        '{"dict": [[[1], 2]]}',
        '{"dict": [[1, 2], [1, 3]]}',
        '{"dict": [[1]]}',
        '{"dict": ["ab"]}',
        '{"int": "zz"}',
        '{"int": 3}',
        '{"float": "1e5"}',
        '{"float": "nan(0x1)"}',
        '{"complex": [1.0]}',
        '{"complex": [1, 2]}',
        '{"complex": ["1.0", "2.0"]}',
        '{"bytes": "a"}',
        '{"bytes": "YWJj!"}',
        '{"text": "//8="}',
        '{"range": [0, 1, 0]}',
        '{"range": [0, 1.0, 1]}',
        '{"member": "distdemo.launcher.watch:End", "name": "__class__"}',
        '{"member": "distdemo.launcher.watch:End", "name": ["x"]}',
        '{"member": "distdemo.demo.records:Piece", "name": "shape"}',
        '{"record": "distdemo.launcher.watch:End", "fields": {}}',
        "1" * 5000,
    ],
)
def test_what_is_no_encoded_value_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(text)


@given(st.text(max_size=60) | VALUES.map(encode).map(lambda text: text[: len(text) // 2]))
def test_any_other_text_is_a_value_or_a_value_error(text: str) -> None:
    try:
        decode(text)
    except ValueError:
        return
    assert json.loads(text) is not Ellipsis  # it was JSON


@pytest.mark.parametrize("unit", ["[", '{"tuple":[', '{"dict":[[', '{"a":'])
def test_a_text_nested_without_end_is_refused_at_once(unit: str) -> None:
    with pytest.raises(ValueError, match=r"nested|Expecting"):
        decode(unit * 200_000)
    closing = {"[": "]", "{": "}"}
    ends = "".join(closing[each] for each in reversed(unit) if each in closing)
    with pytest.raises(ValueError, match=r"nested|keys"):
        decode(unit * 400 + "1" + ends * 400)


def test_a_huge_text_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "LONGEST", 1000)
    assert decode("[" + "1," * 400 + "1]") == [1] * 401
    with pytest.raises(ValueError, match="too long"):
        decode("[" + "1," * 500 + "1]")
