"""doctor: what on this machine stands in the way of worlds. ``bench`` takes ``machine.share``."""
