"""Fit the α–β model to bench files and predict other worlds."""
