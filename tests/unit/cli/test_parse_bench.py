"""From the flags of ``bench`` to what is measured, and what is refused before any rank starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from distdemo import ops
from distdemo.bench.bench_options import SECOND_WORDS
from distdemo.bench.parse_bench import BenchRequest, parse_bench
from distdemo.bench.parse_measure import FULL_MESH, OUTER_LIMIT
from distdemo.cli import files, options
from distdemo.cli.parse_sizes import parse_bytes
from distdemo.errors import UsageError

DEFAULTS: dict[str, Any] = {
    name: None if name == "root" else options.ALL[name][1] for name in options.BENCH
}
TORCHRUN = {
    "RANK": "0",
    "WORLD_SIZE": "3",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "3",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "x",
}


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No engine has started this process."""
    monkeypatch.setattr("os.environ", {})


def request(*names: str, **flags: Any) -> BenchRequest:
    return parse_bench(DEFAULTS | {"bench_ops": list(names) or None} | flags)


def refused(*names: str, **flags: Any) -> UsageError:
    with pytest.raises(UsageError) as caught:
        request(*names, **flags)
    assert caught.value.why
    assert caught.value.hint
    return caught.value


# ---------------------------------------------------------------------------------------- series


def test_by_default_all_reduce_on_two_ranks_from_8_bytes_to_64_mebibytes() -> None:
    asked = request()
    (series,) = asked.spec.series
    assert (series.command, series.form, series.backend) == ("all-reduce", "tensor", "gloo")
    assert series.world.world_size == 2
    assert [point.size for point in series.points] == [8 * 4**power for power in range(12)]
    assert [point.specs[0].shape for point in series.points][:2] == [(2,), (8,)]
    assert series.in_place
    assert not series.both
    assert asked.notes == ()


def test_several_ops_each_once_and_all_of_them() -> None:
    named = request("all_reduce,broadcast", "all-reduce").spec.series
    assert [series.command for series in named] == ["all-reduce", "broadcast"]
    every = request("all").spec.series
    assert {series.command for series in every} == {op.command for op in ops.REGISTRY.values()}
    assert all(series.points for series in every)


def test_what_has_both_is_measured_out_of_place_and_in_place() -> None:
    out, within = request("all-gather").spec.series
    assert (out.in_place, within.in_place) == (False, True)
    assert out.both
    assert within.both
    assert not out.points[0].specs[0].in_place
    assert within.points[0].specs[0].in_place


@pytest.mark.parametrize(("where", "in_place"), [("out", False), ("in", True)])
def test_or_in_one_of_both(where: str, in_place: bool) -> None:
    series = request("all-gather", "all-reduce", placement=where).spec.series
    assert [(each.command, each.in_place, each.both) for each in series] == [
        ("all-gather", in_place, False),
        ("all-reduce", True, False),
    ]


def test_the_variant_is_a_single_tensor_unless_a_list_is_asked_for() -> None:
    assert request("all-gather").spec.series[0].form == "single"
    assert request("all-gather", bench_variant="list").spec.series[0].calls == "all_gather"
    assert request("scatter").spec.series[0].form == "list"


def test_the_settings_of_the_op() -> None:
    (series,) = request("reduce", bench_reduce_op="MAX", root="1", bench_dtype="i64").spec.series
    spec = series.points[0].specs[0]
    assert (spec.reduce_op, spec.root, spec.dtype) == ("max", 1, "int64")
    assert not spec.async_op


@pytest.mark.parametrize("flags", [{"bench_async": True}, {"overlap": True}])
def test_non_blocking_calls(flags: dict[str, Any]) -> None:
    series = request("all-reduce", "p2p", **flags).spec.series
    assert all(each.points[0].specs[0].async_op for each in series)
    assert series[1].calls == "isend/irecv"


def test_p2p_by_its_pattern() -> None:
    (series,) = request("p2p", bench_pattern="ring", bench_size="3").spec.series
    assert series.form == "ring"
    (pair,) = request("p2p", src="1", dst="0").spec.series
    assert (pair.points[0].specs[0].src, pair.points[0].specs[0].dst) == (1, 0)


def test_groups_run_at_once() -> None:
    (series,) = request(bench_size="4", split="2").spec.series
    specs = series.points[0].specs
    assert [spec.members for spec in specs] == [(0, 1), (2, 3)]
    assert {spec.group_size for spec in specs} == {2}
    (named,) = request(group="1,3").spec.series
    assert named.world.world_size == 4
    assert named.points[0].specs[0].members == (1, 3)


def test_the_barrier_has_one_point() -> None:
    (series,) = request("barrier").spec.series
    assert [(point.size, point.specs[0].shape) for point in series.points] == [(0, ())]


def test_a_size_that_was_moved_is_said() -> None:
    asked = request("all-gather", bench_size="3")
    assert "12 bytes" in asked.notes[0]
    assert len(asked.notes) == 1
    assert all(point.size % 12 == 0 for point in asked.spec.series[0].points)


def test_several_backends_a_series_each(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = request("all-reduce", "barrier", bench_backends="gloo,mpi, gloo,auto")
    assert [(each.backend, each.command) for each in asked.spec.series] == [
        ("gloo", "all-reduce"),
        ("gloo", "barrier"),
        ("mpi", "all-reduce"),
        ("mpi", "barrier"),
    ]
    assert [world.backend for world in asked.worlds] == ["gloo", "mpi"]


def test_what_a_backend_does_not_take_stands_among_the_others_with_the_reason() -> None:
    reduced, moved = request("all-reduce", "barrier", bench_dtype="int16").spec.series
    assert not reduced.points
    assert "gloo can't do all-reduce" in reduced.refused
    assert moved.points


def test_an_op_for_more_ranks_stands_among_the_others_with_the_reason() -> None:
    series = request("all", bench_size="1").spec.series
    assert [each.command for each in series if each.refused] == ["p2p"]
    assert "itself" in next(each.refused for each in series if each.refused)


def test_all_that_is_refused_is_an_error() -> None:
    assert "gloo can't do all-reduce" in refused(bench_dtype="int16").what
    assert "float32" in refused("all-reduce", "broadcast", bench_dtype="int16").hint


# ---------------------------------------------------------------------------------------- worlds


def test_the_world_goes_on_as_long_as_it_moves() -> None:
    asked = request(bench_timeout="7", bench_size="3")
    world = asked.spec.series[0].world
    assert (world.deadline, world.stall) == (OUTER_LIMIT, 7.0)
    assert asked.worlds[0].deadline == 7.0
    assert world.capture
    assert request().spec.series[0].world.stall == 30.0


@pytest.mark.parametrize(
    ("name", "ranks", "lazy"),
    [
        ("all-reduce", FULL_MESH, False),
        ("all-reduce", FULL_MESH + 1, True),
        ("p2p", FULL_MESH + 1, False),
    ],
)
def test_ranks_are_connected_beforehand_unless_there_are_many(
    name: str, ranks: int, lazy: bool
) -> None:
    assert request(name, bench_size=str(ranks)).spec.series[0].world.lazy is lazy


def test_in_a_world_of_others_it_has_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", TORCHRUN)
    asked = request()
    assert asked.seat is not None
    assert asked.worlds[0].world_size == 3
    assert "--world-size 2" in refused(bench_size="2").what


def test_a_world_of_others_has_one_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", TORCHRUN)
    error = refused(bench_backends="gloo,mpi")
    assert "here it is one" in error.what
    assert "--launcher local" in error.hint
    assert len(request(bench_backends="gloo,mpi", launcher="local").worlds) == 2


@pytest.mark.parametrize(("rank", "writes"), [("0", True), ("1", False)])
def test_in_a_world_of_others_rank_0_alone_writes(
    rank: str, writes: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("os.environ", TORCHRUN | {"RANK": rank, "LOCAL_RANK": rank})
    folder = tmp_path if writes else tmp_path / "another host's"
    asked = request(bench_output=str(folder / "a.json"))
    assert (asked.output is not None) == writes


# ---------------------------------------------------------------------------------------- effort


def test_how_long_and_how_often() -> None:
    spec = request(
        iters="40", warmup="0", launches="8", precision="2%", check_every="10", no_limits=True
    ).spec
    assert (spec.iters, spec.warmup, spec.launches, spec.check_every) == (40, 0, 8, 10)
    assert spec.precision == 0.02
    assert not spec.limits
    free = request(budget="2.5", precision="0.2", skew=True, profile=True).spec
    assert (free.iters, free.budget, free.precision) == (None, 2.5, 0.2)
    assert free.skew
    assert free.profile
    assert free.limits


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8", 8),
        ("64K", 1 << 16),
        ("64k", 1 << 16),
        ("1KiB", 1024),
        ("1KB", 1024),
        ("1.5M", 3 << 19),
        ("2 G", 2 << 30),
        ("1T", 1 << 40),
        ("12B", 12),
        ("0", 0),
    ],
)
def test_numbers_of_bytes_as_people_write_them(text: str, size: int) -> None:
    assert parse_bytes("-b", text) == size


@pytest.mark.parametrize(
    "text", ["8Q", "", "K", "-8", "1e3", "8.5", "0.3K", "1 000", "٨", "8KK", "9" * 400, "1MiBi"]
)
def test_what_is_no_number_of_bytes(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_bytes("-b", text)
    assert f"-b {text}" in caught.value.what
    assert "-b 64K" in caught.value.hint


# ---------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("names", "flags", "what", "hint"),
    [
        (["all-reduec"], {}, "'all-reduec'", "distdemo bench all-reduce"),
        (["lnks"], {}, "'lnks'", "distdemo bench links"),
        ([], {"min_bytes": "10"}, "-b 10", "-b 8 or -b 12"),
        ([], {"max_bytes": "1K", "min_bytes": "2K"}, "-b 2K -e 1K", "-b 1K -e 2K"),
        ([], {"step_factor": "2", "step_bytes": "8"}, "-f and -i", "Take one"),
        ([], {"step_factor": "two"}, "-f two", "-f 2"),
        ([], {"step_bytes": "0"}, "-i 0", "-i 4"),
        ([], {"step_bytes": "8"}, "sizes", "-i "),
        (["all-gather"], {"max_bytes": "8", "bench_size": "4"}, "no size of all-gather", "-e 16"),
        (["barrier"], {"min_bytes": "8"}, "-b means nothing to barrier", "Leave"),
        (["barrier"], {"bench_dtype": "f32"}, "--dtype means nothing to barrier", "Leave"),
        (["all-gather"], {"root": "1"}, "--root means nothing to all-gather", "Leave"),
        (["barrier"], {"bench_reduce_op": "max"}, "--reduce-op means nothing", "Leave"),
        ([], {"bench_variant": "list"}, "--variant means nothing to all-reduce", "Leave"),
        ([], {"bench_pattern": "ring"}, "--pattern means nothing to all-reduce", "Leave"),
        ([], {"src": "1"}, "--src means nothing", "Leave"),
        ([], {"placement": "in"}, "--placement means nothing to all-reduce", "Leave"),
        (["all-gather"], {"placement": "inn"}, "'inn'", "--placement in"),
        (["all-gather"], {"bench_variant": "lst"}, "'lst'", "--variant list"),
        ([], {"bench_reduce_op": "maxx"}, "'maxx'", "--reduce-op max"),
        ([], {"bench_dtype": "flaot32"}, "'flaot32'", "--dtype float32"),
        (["p2p"], {"bench_pattern": "ring", "src": "0"}, "--src and --pattern ring", "Leave"),
        (["p2p"], {"bench_size": "1"}, "--world-size 1", "--world-size 2"),
        (["reduce"], {"root": "2"}, "--root 2", "--world-size 3"),
        ([], {"bench_size": "0"}, "--world-size 0", "--world-size 2"),
        ([], {"bench_backends": "glo"}, "'glo'", "gloo"),
        ([], {"bench_backends": ","}, "--backend names nothing", "gloo"),
        ([], {"bench_backends": "nccl"}, "--backend nccl needs a GPU", "gloo"),
        ([], {"iters": "0"}, "--iters 0", "--iters 10"),
        ([], {"iters": "many"}, "--iters many", "--iters 10"),
        ([], {"iters": "99999999999"}, "--iters 99999999999", "--iters 10"),
        ([], {"iters": "3", "budget": "2"}, "--budget and --iters", "Take one"),
        ([], {"iters": "3", "launches": "6"}, "less than --launches 6", "--iters 6"),
        ([], {"warmup": "-1"}, "--warmup -1", "--warmup 10"),
        ([], {"launches": "0"}, "--launches 0", "--launches 10"),
        ([], {"launches": "5000"}, "--launches 5000", "--launches 12"),
        ([], {"check_every": "0"}, "--check-every 0", "--check-every 10"),
        ([], {"budget": "0"}, "--budget 0", "--budget 8"),
        ([], {"budget": "long"}, "--budget long", "--budget 8"),
        ([], {"precision": "0"}, "--precision 0", "5%"),
        ([], {"precision": "120%"}, "--precision 120%", "5%"),
        ([], {"precision": "fine"}, "--precision fine", "5%"),
        ([], {"precision": "nan"}, "--precision nan", "5%"),
        ([], {"bench_timeout": "0"}, "--timeout 0", "--timeout 30"),
        ([], {"bench_format": "csvv"}, "'csvv'", "--format csv"),
        ([], {"bench_output": "result"}, "--output result", "--output result.json"),
        ([], {"bench_output": "result.xml"}, "its ending", "--output result.json"),
        ([], {"bench_output": ""}, "--output ''", "--output bench.json"),
        ([], {"bench_output": "-"}, "--output -", "--output bench.json"),
        ([], {"bench_output": "no/such/folder/a.csv"}, "can't be written", "--output bench.json"),
        ([], {"bench_plot": "a.gif"}, "--plot a.gif", "--plot a.png"),
        ([], {"bench_plot": " "}, "--plot ''", "--plot plot.png"),
        ([], {"bench_plot": "no/such/folder/a.svg"}, "can't be written", "--plot plot.png"),
        ([], {"group": "0,1", "split": "2"}, "--group and --split", "Take one"),
    ],
    ids=str,
)
def test_it_is_refused_with_what_why_and_what_to_try(
    names: list[str], flags: dict[str, Any], what: str, hint: str
) -> None:
    error = refused(*names, **flags)
    assert what in error.what
    assert hint in error.hint


def test_a_plot_without_matplotlib_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "find_spec", {}.get)
    assert "pip install 'distdemo[plot]'" in refused(bench_plot="a.html").hint


def test_a_site_that_draws_nothing_needs_no_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "find_spec", {}.get)
    last = {"RANK": "2", "LOCAL_RANK": "2"}
    monkeypatch.setattr("os.environ", TORCHRUN | last)
    assert request(bench_plot="a.html").plot is None
    monkeypatch.setattr("os.environ", TORCHRUN)
    assert "matplotlib is not installed" in refused(bench_plot="a.html").what


def test_a_largest_size_beyond_memory_is_refused_with_one_that_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("distdemo.launcher.limits._available", lambda: 1 << 30)
    error = refused("all-gather", max_bytes="4G")
    assert "all-gather of 2G bytes needs" in error.what
    assert "the largest size that fits is" in error.why
    word = error.hint.split()[2].removesuffix(",")
    assert 100 << 20 < parse_bytes("-e", word) < 1 << 30
    request("all-gather", max_bytes=word)


def test_where_no_size_fits_fewer_ranks_are_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distdemo.launcher.limits._available", lambda: 20 << 20)
    assert "Try fewer ranks." in refused().hint


def test_the_machine_has_to_hold_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distdemo.launcher.limits._available", lambda: 45 * 2**20)
    assert "5 ranks" in refused(bench_size="5").what


def test_the_words_that_follow_bench_are_those_that_are_registered() -> None:
    from distdemo.cli.app import app

    names = [str(command.name).partition(" ") for command in app.registered_commands]
    assert {second for first, _, second in names if first == "bench" and second} == set(
        SECOND_WORDS
    )
