"""Run one operation on every rank, verify it, show it; ``hello``, ``ops`` and ``explain``.

Other features use: ``records`` (``Verification``), ``part`` (the role of each rank and its group),
``rank`` (``run_op``, ``run_part``, ``verify_part``), ``verify``, and ``values`` (user-supplied
input values).
"""
