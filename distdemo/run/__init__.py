"""``distdemo run``: run a user's function, script or module on every rank."""
