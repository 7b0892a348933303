"""Numbers, sizes, times and lists as text."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from distdemo.view import foreign
from distdemo.view import format as fmt

CASES: dict[Callable[..., object], list[tuple[Any, object]]] = {
    fmt.number: [
        (3, "3"),
        (3.0, "3"),
        (True, "True"),
        (0.1 + 0.2, "0.3"),
        (1e20, "1e+20"),
        (1 - 2j, "1-2j"),
        (math.nan, "nan"),
    ],
    fmt.duration: [
        (0.0, "0 µs"),
        (0.85e-3, "850 µs"),
        (0.0123, "12.3 ms"),
        (1.2, "1.20 s"),
        (7020.0, "1.95 h"),
        (math.inf, "—"),
    ],
    fmt.exact_size: [(8, "8 B"), (65536, "64 KiB"), (65532, "65,532 B"), (3 << 19, "1.5 MiB")],
    fmt.short_size: [(1000, "1000 B"), (1024, "1 KiB"), (2_050_000_000, "1.91 GiB")],
    fmt.decimal_size: [(16, "16 B"), (10.6667, "10.67 B"), (2_500_000, "2.5 MB")],
    fmt.rate: [(3.9e9, "3.90 GB/s"), (12, "12 B/s"), (250e6, "250 MB/s")],
    fmt.percent: [(0.62, "62%"), (0.001, "<1%"), (0.0, "0%")],
    fmt.plus_minus: [(0.031, "±3.1%"), (0.5, "±50%"), (3.0, ">±100%")],
    fmt.times: [(1.214, "1.21×"), (340.2, "340×"), (math.inf, "—")],
    fmt.digits: [(123.4, "123"), (0.0012, "0.0012"), (0.0, "0.00")],
    fmt.ranks_text: [([], ""), ([3], "3"), ([0, 2, 3, 5, 4], "0, 2-5")],
    fmt.listing: [(["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")],
    foreign.lines_of: [
        ("a\r\nb\n", ["a", "b"]),
        ("10%\r20%\r", ["20%"]),
        ("\x1b[31mred\x1b[0m\x07", ["red\\x07"]),
        ("", []),
    ],
}


def test_format() -> None:
    for function, cases in CASES.items():
        for value, text in cases:
            assert function(value) == text, (function, value)


def test_distinct() -> None:
    assert fmt.distinct(1.0, 2.0) == ("1", "2")
    assert fmt.distinct(0.1, 0.10000001) == ("0.1", "0.10000001")
    assert fmt.distinct("a", 1) == ("a", "1")
