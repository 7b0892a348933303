"""``check``, the test matrix for CI, and ``backends``, the list of available backends."""
