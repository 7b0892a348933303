"""The lesson: steps to try, common mistakes to run, and exercises to solve.

The programs in ``steps``, ``mistakes`` and ``exercises`` begin with a header. It is the only place
where a program is listed and documented; ``catalogue`` reads it.
"""
