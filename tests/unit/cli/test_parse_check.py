"""From the flags of ``check`` to its plan, and what is refused before any rank starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from distdemo.backends import capabilities
from distdemo.check import matrix
from distdemo.check.parse_check import CheckRequest, parse_check
from distdemo.cli import options
from distdemo.cli.files import writable
from distdemo.cli.writing import write_file
from distdemo.errors import DistdemoError, UsageError
from distdemo.launcher import limits

DEFAULTS: dict[str, Any] = {name: options.ALL[name][1] for name in options.CHECK}


def request(**flags: Any) -> CheckRequest:
    """What ``distdemo check`` makes of these flags."""
    assert set(flags) <= set(DEFAULTS)
    return parse_check(DEFAULTS | flags)


@pytest.fixture
def quick_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were no full matrix, which takes its time to make."""
    monkeypatch.setattr(matrix, "full", lambda *_, **__: [])


def refused(**flags: Any) -> UsageError:
    """The refusal, which has three lines: what, why and what to try."""
    with pytest.raises(UsageError) as caught:
        request(**flags)
    error = caught.value
    for line in (error.what, error.why, error.hint):
        assert line.strip()
        assert "\n" not in line
        assert len(line) < 400, "more than anybody reads"
    return error


# ------------------------------------------------------------------------------------ what is run


def test_by_default_it_is_the_quick_matrix_over_gloo() -> None:
    asked = request()
    assert [case.id for case in asked.cases] == [case.id for case in matrix.quick()]
    assert (asked.scope, asked.seed, asked.junit) == ("quick", 0, None)
    assert (asked.fail_fast, asked.isolate) == (False, False)
    assert (asked.world.backend, asked.world.device) == ("gloo", "cpu")
    assert asked.world.stall == 10
    assert asked.view.format == "table"


def test_everything_is_taken_over(tmp_path: Path) -> None:
    asked = request(
        full=True,
        order="7",
        only_sizes="2",
        only_ops=["barrier"],
        case_timeout="2.5s",
        start_method="spawn",
        backend="gloo",
        device="cpu",
        fail_fast=True,
        isolate=True,
        junit=str(tmp_path / "report.xml"),
        format="json",
        quiet=True,
    )
    assert (asked.scope, asked.seed, asked.junit) == ("full", 7, tmp_path / "report.xml")
    assert (asked.fail_fast, asked.isolate) == (True, True)
    assert (asked.world.stall, asked.world.start_method) == (2.5, "spawn")
    assert (asked.view.format, asked.view.quiet) == ("json", True)
    assert request(quick=True).scope == "quick"


@pytest.mark.parametrize(
    ("named", "found"),
    [
        (["all-gather"], {"all_gather"}),
        (["all_gather"], {"all_gather"}),
        (["all-gather", "scatter"], {"all_gather", "scatter"}),
        (["all-gather,scatter", " p2p "], {"all_gather", "scatter", "p2p"}),
        (["all-gather/single"], {"all_gather"}),
    ],
)
def test_operations_are_chosen_by_their_names(named: list[str], found: set[str]) -> None:
    assert {case.op.name for case in request(only_ops=named).cases} == found


def test_a_form_is_chosen_by_its_name() -> None:
    asked = request(only_ops=["all-gather/single", "p2p/ring-nonblocking"])
    forms = {(case.op.name, case.form.name) for case in asked.cases}
    assert forms == {("all_gather", "single"), ("p2p", "ring nonblocking")}


@pytest.mark.parametrize("text", ["bf16,int8", "BFLOAT16,torch.int8"])
def test_dtypes_are_chosen_by_any_of_their_names(text: str) -> None:
    asked = request(only_dtypes=[text])
    assert {case.dtype for case in asked.cases} == {"bfloat16", "int8"}


@pytest.mark.parametrize(
    ("text", "sizes"), [("3", {3}), ("2,5", {2, 5}), (" 4 , 4 ", {4}), ("7", {7})]
)
def test_world_sizes_are_chosen_by_number(text: str, sizes: set[int]) -> None:
    assert {case.world_size for case in request(only_sizes=text).cases} == sizes


def test_the_machine_has_to_hold_the_largest_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_available", lambda: 45 * 2**20)
    assert "5 ranks" in refused().what
    assert request(only_sizes="4").world.world_size == 4
    made: list[int] = []
    monkeypatch.setattr(matrix, "quick", lambda *_: made.append(1))
    assert "1,000,000,000 ranks" in refused(only_sizes="1000000000").what
    assert not made, "no case is made for ranks that nobody can start"


def test_a_case_is_chosen_by_its_name_whichever_scope_it_is_of() -> None:
    quick = {case.id: case for case in matrix.quick(sizes=(2,))}
    full = {case.id: case for case in matrix.full(sizes=(2,))}
    alone = next(iter(set(full) - set(quick)))
    for name in (next(iter(quick)), alone):
        (case,) = request(only_case=name, only_sizes="2").cases
        assert case.id == name
        assert case == full.get(name, quick.get(name))


@pytest.mark.usefixtures("quick_alone")
def test_a_quick_case_is_known_by_its_name_also_if_it_is_no_full_one() -> None:
    for case in matrix.quick()[::300]:
        assert [each.id for each in request(only_case=case.id).cases] == [case.id]


# ------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("flags", "what", "hint"),
    [
        ({"only_ops": ["all-reduec"]}, "'all-reduec'", "--op all-reduce"),
        ({"only_ops": ["broadcast,scater"]}, "'scater'", "--op scatter"),
        ({"only_ops": ["all-gather/singel"]}, "all-gather/singel", "--op all-gather/single"),
        ({"only_ops": ["p2p/ring nonblocking"]}, "p2p/ring", "--op p2p/ring-nonblocking"),
        ({"only_ops": [","]}, "--op names nothing", "Leave out --op"),
        ({"only_ops": [""]}, "--op names nothing", "Leave out --op"),
        ({"only_dtypes": ["flaot32"]}, "'flaot32'", "--dtype float32"),
        ({"only_dtypes": [""]}, "--dtype names nothing", "Leave out --dtype"),
        ({"quick": True, "full": True}, "--quick and --full", "Take one"),
        ({"only_ops": ["barrier"], "only_dtypes": ["int8"]}, "No case is left", "Leave one"),
        ({"only_ops": ["p2p"], "only_sizes": "1"}, "No case is left", "Leave one"),
        ({"only_sizes": "0"}, "--world-size 0", "--world-size 2"),
        ({"only_sizes": "2,-1"}, "--world-size -1", "--world-size 2"),
        ({"only_sizes": "two"}, "--world-size two", "--world-size 2"),
        ({"only_sizes": ""}, "--world-size", "--world-size 2"),
        ({"only_sizes": "2,"}, "--world-size", "--world-size 2"),
        ({"order": "first"}, "--seed first", "--seed 1"),
        ({"order": "1.5"}, "--seed 1.5", "--seed 1"),
        ({"order": "-1"}, "--seed -1", "Try 1"),
        ({"order": str(2**31)}, "--seed 2147483648", "Try 1"),
        ({"case_timeout": "0"}, "--timeout 0", "--timeout 30"),
        ({"case_timeout": "soon"}, "--timeout soon", "--timeout 30"),
        ({"case_timeout": "inf"}, "--timeout inf", "--timeout 30"),
        ({"backend": "nccl"}, "--backend nccl needs a GPU", "--backend gloo"),
        ({"backend": "glo"}, "'glo'", "--backend gloo"),
        ({"device": "cuda"}, "--device cuda needs a GPU", "Leave out --device"),
        ({"device": "cpu", "backend": "nccl"}, "don't go together", "Leave out --device"),
        ({"start_method": "frok"}, "'frok'", "fork"),
        ({"format": "jsn"}, "'jsn'", "--format json"),
        ({"junit": "no/such/folder/report.xml"}, "can't be written", "--junit-xml report.xml"),
        ({"junit": "/"}, "can't be written", "--junit-xml report.xml"),
    ],
    ids=str,
)
def test_it_is_refused_with_what_why_and_what_to_try(
    flags: dict[str, Any], what: str, hint: str
) -> None:
    error = refused(**flags)
    assert what in error.what
    assert hint in error.hint


@pytest.mark.usefixtures("quick_alone")
def test_a_case_that_nobody_knows_is_refused_with_a_near_one() -> None:
    error = refused(only_case="broadcast/tensor/int32/n2/7/rot0", only_sizes="2")
    assert "'broadcast/tensor/int32/n2/7/rot0'" in error.what
    assert "--case broadcast/tensor/int32/n2/7/root0" in error.hint
    assert "Try --case " in refused(only_case="?", only_sizes="1").hint


@pytest.mark.usefixtures("quick_alone")
def test_a_case_is_not_run_where_another_flag_excludes_it() -> None:
    name = "broadcast/tensor/int32/n2/7/root0"
    chosen = {"only_case": name, "only_sizes": "2"}
    assert request(**chosen, only_ops=["broadcast"], only_dtypes=["i32"]).cases[0].id == name
    assert "No case is left" in refused(**chosen, only_ops=["scatter"]).what
    assert "No case is left" in refused(**chosen, only_dtypes=["int8"]).what
    assert "no case" in refused(only_case=name, only_sizes="3").what


def test_what_the_backend_does_not_take_is_no_error_but_left_to_the_report() -> None:
    assert capabilities.capabilities("gloo") is not None
    assert {case.dtype for case in request(only_dtypes=["float8_e5m2"]).cases} == {"float8_e5m2"}


# ------------------------------------------------------------------------------------------ files


def test_a_file_that_can_be_written_is_left_as_it_is(tmp_path: Path) -> None:
    new, old = tmp_path / "new.xml", tmp_path / "old.xml"
    old.write_text("old")
    assert writable("--junit-xml", str(new), "report.xml") == new
    assert writable("--junit-xml", str(old), "report.xml") == old
    assert writable("--junit-xml", None, "report.xml") is None
    assert not new.exists()
    assert old.read_text() == "old"


@pytest.mark.parametrize("flag", ["--junit-xml", "--write"])
def test_a_file_that_nobody_may_make_is_refused(flag: str) -> None:
    with pytest.raises(UsageError) as caught:
        writable(flag, "/proc/report.xml", "report.xml")  # not even root can
    assert f"{flag} /proc/report.xml" in caught.value.what
    assert caught.value.why.endswith(".")
    assert caught.value.hint == f"Try {flag} report.xml."


def test_a_pipe_is_not_opened_before_there_is_something_to_write(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert (
        writable("--junit-xml", str(pipe), "report.xml") == pipe
    )  # opening it would wait for its reader
    assert writable("--junit-xml", os.devnull, "report.xml") == Path(os.devnull)


def test_a_file_that_can_no_longer_be_written_is_an_error_and_no_usage_error(
    tmp_path: Path,
) -> None:
    write_file("--write", tmp_path / "map.json", "ünïcode")
    assert (tmp_path / "map.json").read_text(encoding="utf-8") == "ünïcode"
    with pytest.raises(DistdemoError) as caught:
        write_file("--write", Path("/dev/full"), "x")
    assert not isinstance(caught.value, UsageError)
    assert "--write /dev/full" in caught.value.what
    assert "No space left" in caught.value.why
