"""bench: any op on any backend, timed, verified, and held against what the machine can do."""
