"""The types of options: what they take, and how they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from distdemo.cli.types import (
    BadValue,
    file_to_write,
    one_of,
    parse_bytes,
    parse_dtype,
    parse_ranks,
    parse_seconds,
    parse_shape,
    parse_share,
    parse_sizes,
    ranks_to_show,
    whole,
)

GOOD: list[tuple[Callable[[Any], object], str, object]] = [
    (parse_bytes, "64K", 65536),
    (parse_bytes, "1.5 MiB", 3 << 19),
    (parse_bytes, "2gb", 2 << 30),
    (parse_sizes, "1K, 16M", (1024, 16 << 20)),
    (parse_seconds, "0.5s", 0.5),
    (parse_share, "5%", 0.05),
    (parse_share, "0.05", 0.05),
    (parse_ranks, "0,5-7", (0, 5, 6, 7)),
    (parse_ranks, "all", ()),
    (parse_shape, "4", (4,)),
    (parse_shape, "(2x3,)", (2, 3)),
    (parse_shape, "scalar", ()),
    (parse_dtype, "torch.bfloat16", "bfloat16"),
    (parse_dtype, "F32", "float32"),
    (one_of(("cpu", "cuda")), "CUDA", "cuda"),
    (whole(0), "1_000", 1000),
]
BAD: list[tuple[Callable[[Any], object], str, str]] = [
    (parse_bytes, "2Q", "2Q: not a number of bytes."),
    (parse_bytes, "9" * 30, f"{'9' * 30}: not a number of bytes."),
    (parse_bytes, "", "'': not a number of bytes."),
    (parse_seconds, "0", "0: not a positive number of seconds."),
    (parse_share, "1", "1: not a share between 0 and 1."),
    (parse_ranks, "3-1", "3-1: 3-1 runs backwards."),
    (parse_ranks, "1,²", "1,²: not a list of ranks."),
    (parse_shape, "2,0", "2,0: not a shape."),
    (one_of(("cpu", "cuda")), "cdua", "cdua: there is no such choice."),
    (whole(1), "2.5", "2.5: not a whole number."),
    (whole(1), "0", "0: the minimum is 1."),
    (whole(1, 9), "10", "10: the maximum is 9."),
    (file_to_write(".json"), "x.pdf", "x.pdf: unknown suffix."),
    (file_to_write(), "/no/such/x", "/no/such/x: it can't be written."),
]


def test_what_the_types_take_and_refuse() -> None:
    for parse, text, value in GOOD:
        assert parse(text) == value, text
        assert parse(value) == value, "defaults pass through the parser, too"
    for parse, text, what in BAD:
        with pytest.raises(BadValue) as caught:
            parse(text)
        assert caught.value.usage_error().what.strip() == what


def test_all_ranks_are_those_of_the_world() -> None:
    assert ranks_to_show(parse_ranks("all"), 3) == frozenset({0, 1, 2})
    assert ranks_to_show(None, 3) is None  # the view chooses
