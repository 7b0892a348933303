"""From bounds to sizes, and from a size to an op of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from distdemo import ops
from distdemo.bench.sizes import (
    MOST,
    SizeRange,
    check_range,
    cut_notes,
    of_size,
    part_bytes,
    range_sizes,
    series_sizes,
    size_text,
)
from distdemo.dtypes import DTYPES
from distdemo.errors import UsageError
from distdemo.ops.spec import OpSpec

MOVING = [op for op in ops.REGISTRY.values() if not op.meets]


def template(name: str, n: int, dtype: str = "float32") -> OpSpec:
    op = ops.REGISTRY[name]
    return OpSpec(
        name,
        n,
        dtype,
        (1,),
        reduce_op="sum" if "reduce_op" in op.takes else None,
        root=0 if "root" in op.takes else None,
        src=0 if "src" in op.takes else None,
        dst=1 if "dst" in op.takes else None,
        pattern="pair" if "pattern" in op.takes else None,
        variant="single" if "variant" in op.takes else None,
    )


def refused(asked: SizeRange, dtype: str = "float32") -> UsageError:
    with pytest.raises(UsageError) as caught:
        check_range(asked, dtype)
    assert caught.value.why
    return caught.value


# --------------------------------------------------------------------------------------- ranges


def test_by_a_factor_the_bounds_hold_but_the_upper_one_need_not_be_met() -> None:
    assert range_sizes(SizeRange(8, 1 << 10, 4)) == [8, 32, 128, 512]
    assert range_sizes(SizeRange(8, 512, 4)) == [8, 32, 128, 512]
    assert range_sizes(SizeRange(8, 511, 4)) == [8, 32, 128]
    assert range_sizes(SizeRange(4, 40, 1.5)) == [4, 6, 9, 13, 20, 30]


def test_by_a_step() -> None:
    assert range_sizes(SizeRange(8, 40, step=16)) == [8, 24, 40]
    assert range_sizes(SizeRange(8, 39, step=16)) == [8, 24]


def test_one_size_is_a_range() -> None:
    assert range_sizes(SizeRange(64, 64)) == [64]
    assert range_sizes(SizeRange(64, 64, step=8)) == [64]


@given(some.integers(1, 1 << 40), some.integers(0, 40), some.sampled_from((2.0, 3.0, 4.0, 10.0)))
def test_every_power_of_the_factor_is_there(first: int, growths: int, factor: float) -> None:
    last = min(first * int(factor) ** growths, 1 << 60)
    sizes = range_sizes(SizeRange(first, last, factor))
    whole, size = [], first
    while size <= last:
        whole.append(size)
        size *= int(factor)
    if last < 1 << 50:  # beyond, a float rounds what nobody has
        assert sizes == whole


@pytest.mark.parametrize(
    ("asked", "dtype", "what", "hint"),
    [
        (SizeRange(10, 64), "float32", "-b 10 ", "-b 8 or -b 12"),
        (SizeRange(8, 66), "float32", "-e 66 ", "-e 64 or -e 68"),
        (SizeRange(8, 64, step=3), "float32", "-i 3 ", "Try -i 4."),
        (SizeRange(0, 64), "float32", "-b 0 ", "Try -b 4."),
        (SizeRange(8, 64, step=0), "float32", "-i 0 ", "Try -i 4."),
        (SizeRange(8, 64), "complex128", "-b 8 ", "Try -b 16."),
        (SizeRange(0, 64), "int8", "-b 0 ", "Try -b 1."),
        (SizeRange(8, 64, 1.0), "float32", "-f 1:", "-f 2"),
        (SizeRange(8, 64, 0.5), "float32", "-f 0.5", "-f 2"),
        (SizeRange(8, 64, -2.0), "float32", "-f -2", "-f 2"),
        (SizeRange(8, 64, float("nan")), "float32", "-f nan", "-f 2"),
        (SizeRange(8, 64, float("inf")), "float32", "-f inf", "-f 2"),
        (SizeRange(1024, 64), "float32", "-b 1K -e 64", "-b 64 -e 1K"),
    ],
)
def test_a_range_that_makes_no_sense_is_refused(
    asked: SizeRange, dtype: str, what: str, hint: str
) -> None:
    error = refused(asked, dtype)
    assert what in error.what
    assert hint in error.hint


@pytest.mark.parametrize(
    "asked", [SizeRange(8, 1 << 20, step=8), SizeRange(8, 1 << 20, 1.01), SizeRange(4, 804, step=4)]
)
def test_more_sizes_than_anybody_reads_are_refused_with_a_way_that_has_fewer(
    asked: SizeRange,
) -> None:
    words = refused(asked).hint.removesuffix(" say.").split()
    flag, size = words[-2:]
    if flag == "-f":
        better = SizeRange(asked.first, asked.last, float(size))
    else:
        number = int(size[:-1]) << 10 if size.endswith("K") else int(size)
        better = SizeRange(asked.first, asked.last, step=number)
    check_range(better, "float32")
    assert len(range_sizes(better)) <= MOST


# ---------------------------------------------------------------------------------------- parts


def test_a_part_is_an_element_or_one_for_each_rank() -> None:
    parts = {op.name: part_bytes(op, template(op.name, 3)) for op in MOVING}
    assert parts == {
        "broadcast": 4,
        "reduce": 4,
        "all_reduce": 4,
        "scatter": 12,
        "gather": 12,
        "all_gather": 12,
        "reduce_scatter": 12,
        "all_to_all": 12,
        "p2p": 4,
    }


@given(
    some.sampled_from([op.name for op in MOVING]),
    some.integers(2, 9),
    some.sampled_from(sorted(DTYPES)),
    some.integers(0, 20),
    some.integers(0, 12),
)
def test_whatever_the_op_its_size_is_what_algbw_counts(
    name: str, n: int, dtype: str, low: int, growths: int
) -> None:
    op, base = ops.REGISTRY[name], template(name, n, dtype)
    first = DTYPES[dtype].itemsize << low
    asked = SizeRange(first, max(first << growths, n * DTYPES[dtype].itemsize), 2)
    try:
        sizes, _ = series_sizes(op, base, asked)
    except UsageError:
        part = part_bytes(op, base)
        assert asked.last // part * part < asked.first
        return
    assert sizes == sorted(set(sizes))
    assert asked.first <= sizes[0]
    assert sizes[-1] <= asked.last
    for size in sizes:
        assert op.traffic(of_size(op, base, size)).payload_bytes == size


def test_sizes_are_cut_down_to_whole_parts_and_the_first_is_rounded_up() -> None:
    op = ops.REGISTRY["all_gather"]
    sizes, part = series_sizes(op, template("all_gather", 3), SizeRange(8, 1024, 2))
    assert sizes == [12, 24, 60, 120, 252, 504, 1020]  # 8 and 16 have become one
    assert part == 12
    assert of_size(op, template("all_gather", 3), 60).shape == (5,)


def test_the_ops_whose_sizes_were_cut_down_alike_share_a_sentence() -> None:
    cut = {0: ["broadcast"], 12: ["gather", "scatter", "gather"], 24: ["all-to-all"]}
    end = "of float32: sizes were cut down to one."
    assert list(cut_notes(cut, 3, "float32")) == [
        f"gather, scatter on 3 ranks move a multiple of 12 bytes {end}",
        f"all-to-all on 3 ranks moves a multiple of 24 bytes {end}",
    ]


def test_sizes_that_fit_are_left_alone_and_nothing_is_said() -> None:
    op = ops.REGISTRY["all_gather"]
    assert series_sizes(op, template("all_gather", 2), SizeRange(8, 512)) == ([8, 32, 128, 512], 0)


def test_the_first_may_be_rounded_up_beyond_the_last_of_the_series_but_not_of_the_range() -> None:
    op = ops.REGISTRY["all_gather"]
    assert series_sizes(op, template("all_gather", 3), SizeRange(8, 12))[0] == [12]


@pytest.mark.parametrize(
    ("asked", "hint"), [(SizeRange(4, 8), "Try -e 12."), (SizeRange(16, 20), "Try -b 12.")]
)
def test_a_range_without_a_whole_part_is_refused_with_the_nearest(
    asked: SizeRange, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        series_sizes(ops.REGISTRY["gather"], template("gather", 3), asked)
    assert caught.value.hint == hint
    assert "12 bytes" in caught.value.why


def test_an_op_without_data_has_one_point_of_size_0() -> None:
    barrier = ops.REGISTRY["barrier"]
    base = OpSpec("barrier", 2, shape=())
    assert series_sizes(barrier, base, SizeRange(8, 1024)) == ([0], 0)
    assert of_size(barrier, base, 0).shape == ()


def test_a_single_rank_is_allowed() -> None:
    op = ops.REGISTRY["all_gather"]
    assert series_sizes(op, template("all_gather", 1), SizeRange(8, 32))[0] == [8, 32]


def test_sizes_as_they_are_typed() -> None:
    assert [size_text(size) for size in (0, 8, 1023, 1024, 1536, 1 << 20, 3 << 30)] == [
        "0",
        "8",
        "1023",
        "1K",
        "1536",
        "1M",
        "3G",
    ]
