"""``distdemo warm``: keep a process that has torch loaded, from which commands are forked."""
