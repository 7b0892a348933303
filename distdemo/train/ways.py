"""The one list of the ways to average gradients."""

from __future__ import annotations

from distdemo.train.averaging import Way
from distdemo.train.ddp import ddp
from distdemo.train.flat import flat
from distdemo.train.manual import manual
from distdemo.train.records import MODES, REFERENCE
from distdemo.train.single import single

WAYS: dict[str, Way] = {"manual": manual, "flat": flat, "ddp": ddp, REFERENCE: single}


def modes_of(mode: str) -> tuple[str, ...]:
    """Those that are run for ``--mode``, in order; the reference comes after them."""
    return MODES if mode == "compare" else (mode,)
