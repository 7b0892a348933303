"""``distdemo postmortem``: judge what the ranks of a hung or crashed job left behind."""
