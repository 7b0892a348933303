"""A program of the user on every rank: a function, or a whole script or module."""
