from __future__ import annotations

import pytest

from distdemo.doctor.parse_link import parse_link
from distdemo.errors import UsageError


def parsed(alpha, beta):
    found = parse_link({"alpha": alpha, "beta": beta, "link_file": None}, "all_reduce")
    return None if found is None else (found.link.alpha, found.link.beta)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5us", 5e-6), ("5µs", 5e-6), ("0.5 ms", 5e-4), ("1e-6 s", 1e-6), (".2NS", 2e-10), ("0", 0.0)],
)
def test_times_are_read_with_their_unit(text, seconds):
    assert parsed(text, "1ns")[0] == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0.1ns", 1e-10),
        ("0.1ns/B", 1e-10),
        ("10GB/s", 1e-10),
        ("10 GiB/s", 1 / (10 * 2**30)),
        ("100Gbit/s", 8e-11),
        ("100Gbps", 8e-11),
        ("500MB/s", 2e-9),
        ("0", 0.0),
    ],
)
def test_a_byte_costs_a_time_or_the_inverse_of_a_bandwidth(text, seconds):
    assert parsed("1us", text)[1] == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "us", "-5us", "5h", "nan", "inf", "1e9s"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(UsageError, match="no time"):
        parsed(text, "1ns")


@pytest.mark.parametrize("text", ["", "GB/s", "10gb/s", "10GB", "0GB/s", "-1ns"])
def test_what_is_no_bandwidth_is_refused(text):
    with pytest.raises(UsageError, match="neither"):
        parsed("1us", text)


@pytest.mark.parametrize("text", ["5", "1e-6", ".5"])
def test_a_number_without_a_unit_is_refused(text):
    with pytest.raises(UsageError, match=f"--alpha {text} has no unit") as alpha:
        parsed(text, "1ns")
    with pytest.raises(UsageError, match=f"--beta {text} has no unit") as beta:
        parsed("1us", text)
    assert alpha.value.hint == "Try --alpha 5us."
    assert beta.value.hint == "Try --beta 0.1ns or --beta 10GB/s."


def test_nothing_given_is_nothing():
    assert parsed(None, None) is None
