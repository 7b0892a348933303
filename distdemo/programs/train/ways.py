"""The one list of the ways to average gradients."""

from __future__ import annotations

from distdemo.programs.train.averaging import Way
from distdemo.programs.train.ddp import ddp
from distdemo.programs.train.flat import flat
from distdemo.programs.train.manual import manual
from distdemo.programs.train.single import single
from distdemo.training import MODES, REFERENCE

WAYS: dict[str, Way] = {"manual": manual, "flat": flat, "ddp": ddp, REFERENCE: single}


def modes_of(mode: str) -> tuple[str, ...]:
    """Those that are run for ``--mode``, in order; the reference comes after them."""
    return MODES if mode == "compare" else (mode,)
