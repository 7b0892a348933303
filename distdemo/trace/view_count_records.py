"""Algorithms, counts and checks as parts of a JSON document; bytes as whole numbers."""

from __future__ import annotations

from collections.abc import Sequence

from distdemo.trace.scheduling import About, Checked, Counts, Misprint
from distdemo.trace.view_amounts import exact
from distdemo.view.document import Json

MANY = 64  # ranks up to which each is told
ENDS = 8  # ranks at each end that are told beyond


def about_entry(about: About) -> dict[str, Json]:
    """An algorithm in words, with its formulas."""
    return {
        "name": about.name,
        "summary": about.summary,
        "source": about.source,
        "formulas": dict(about.formulas),
    }


def counts_entry(counts: Counts) -> dict[str, Json]:
    """What was counted. Beyond ``MANY`` ranks only the first and the last are told."""
    return {
        "rounds": counts.rounds,
        "messages": counts.messages,
        "sent_bytes": per_rank(counts.sent),
        "received_bytes": per_rank(counts.received),
        "sent_most_bytes": counts.sent_most,
        "sent_least_bytes": counts.sent_least,
        "received_most_bytes": counts.received_most,
        "received_least_bytes": counts.received_least,
        "busiest_rank": counts.busiest_rank,
        "busiest_bytes": counts.busiest,
        "total_bytes": counts.total,
        "alpha_times": counts.alphas,
        "beta_bytes": counts.serial,
    }


def per_rank(values: Sequence[int]) -> Json:
    """A number a rank; of many ranks the first and the last, and how many are left out."""
    if len(values) <= MANY:
        return list(values)
    return {
        "ranks": len(values),
        "first": list(values[:ENDS]),
        "last": list(values[-ENDS:]),
        "left_out": len(values) - 2 * ENDS,
    }


def check_entry(check: Checked) -> dict[str, Json]:
    """A formula beside a count; not ``exact``: it is of equal chunks, and these are not."""
    return {
        "name": check.name,
        "formula": check.formula,
        "value": exact(check.value),
        "counted": check.counted,
        "same": check.same,
        "exact": check.exact,
    }


def misprint_entry(each: Misprint) -> dict[str, Json]:
    """Another formula for the bytes in all that is in print."""
    return {"formula": each.formula, "value": exact(each.value), "why": each.why}
