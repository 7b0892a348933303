"""Run one operation on every rank, verify it, show it; ``hello``, ``ops`` and ``explain``.

Other features use: ``records`` (``Verification``), ``part`` (which rank does what in which group),
``rank`` (``run_op``, ``run_part``, ``verify_part``), ``verify``, and ``values`` (the user's own
numbers).
"""
