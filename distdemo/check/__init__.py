"""The matrix for CI (``check``); which backends are here and what one takes (``backends``)."""
