"""Record the calls of a rank: hooks, kernels, notes."""
