"""A breakpoint on every rank."""


def run(rank, size):
    secret = 40 + rank
    breakpoint()  # noqa: T100 - that is what it is for
    return secret
