"""bench fit: the α–β model of what was measured, and what other worlds would take by it.

``trace`` takes α and β from ``fit.fit``.
"""
