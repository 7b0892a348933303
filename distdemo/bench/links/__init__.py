"""bench links: every pair of ranks, both ways, and which links or ranks are slow."""
