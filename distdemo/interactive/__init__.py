"""Ranks that stay: they run one cell after another, for ``distdemo shell`` and notebooks."""
