"""Loads torch as the command does, so that ranks can be forked from the tests' own process.

Imported by a test in the ordinary way it would leave a thread of NumPy's behind that nobody has
taken note of, and every world would take the slower start method.
"""

from __future__ import annotations

from distdemo.torch_import import load_torch

load_torch()
