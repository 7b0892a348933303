"""Sketches of NumPy arrays, as ranks make them of tensors."""

from __future__ import annotations

import numpy as np

from distdemo.parity.sketches import Sketch


def sketch(array, dims=None):
    """Return the sketch of an array that keeps these dimensions: all by default."""
    columns = []
    for dim in range(array.ndim) if dims is None else dims:
        rows = np.moveaxis(array, dim, -1).reshape(-1, array.shape[dim])
        columns.append(np.stack([rows.sum(0), (rows**2).sum(0)]))
    return Sketch(tuple(range(array.ndim)) if dims is None else tuple(dims), tuple(columns))
