"""bench links: every pair of ranks, both ways, and which of them are slow."""

from __future__ import annotations

from distdemo.bench.links.measure import measure_links

__all__ = ["measure_links"]
