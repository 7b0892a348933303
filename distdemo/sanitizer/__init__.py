"""Which rank made another call than the others, and on which line.

Every rank notes each call of ``torch.distributed`` before it makes it; the launcher compares the
notes while the ranks run. ``records`` holds what is found, ``notes`` the texts that ranks write,
``hooks`` and ``kernels`` what is put around torch's calls in a rank, ``calls`` what of a call is
noted, ``matching`` the comparison, ``waiting`` who waits for whom, and ``inspector`` brings them
together for a world.

Others use ``inspector.Inspector``, ``hooks.install`` and ``records.Finding``.
"""
