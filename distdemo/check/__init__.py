"""The matrix for CI (``check``), and the backends: which are here, what one takes (``backends``)."""
