"""Fit the α–β model to bench files and predict other worlds.

``trace`` uses α and β from ``fit.fit``.
"""
