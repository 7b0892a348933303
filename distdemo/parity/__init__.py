"""``distdemo parity``: the same program on one rank and on N, and the first tensor that differs."""
