"""Sketches of NumPy arrays, as ranks make them of tensors."""

from __future__ import annotations

import numpy as np

from distdemo.parity.sketches import Sketch


def sketch(array, dims=None):
    """Return the sketch of an array that keeps these dimensions: all by default."""
    dims = tuple(range(array.ndim) if dims is None else dims)
    rows = [np.moveaxis(array, dim, -1).reshape(-1, array.shape[dim]) for dim in dims]
    sums = tuple(own.sum(0) for own in rows)
    return Sketch(dims, sums, tuple((own**2).sum(0) for own in rows))
