"""Checks of the tests. Their messages name the rank and the formula."""

import torch

FEW = 4  # elements of a wrong tensor that is shown whole


def check_result(rank, actual, expected):
    """Compare the returned value of a rank."""
    __tracebackhide__ = True
    if actual != expected:
        raise AssertionError(f"Rank {rank} returned {actual}, expected {expected}.")


def check_values(rank, actual, expected, name="the result"):
    """Compare the tensor of a rank: dtype, shape and values, up to rounding."""
    __tracebackhide__ = True
    if not isinstance(actual, torch.Tensor):
        raise AssertionError(f"Rank {rank}: {name} is {actual!r}, expected a tensor.")
    if (actual.shape, actual.dtype) != (expected.shape, expected.dtype):
        raise AssertionError(
            f"Rank {rank}: {name} is {kind_of(actual)}, expected {kind_of(expected)}."
        )
    wrong = (~torch.isclose(actual, expected, rtol=1e-4, atol=1e-5)).nonzero().tolist()
    if wrong and actual.numel() <= FEW:
        raise AssertionError(
            f"Rank {rank}: {name} is {text_of(actual)}, expected {text_of(expected)}."
        )
    if wrong:
        first = tuple(wrong[0])
        raise AssertionError(
            f"Rank {rank}: {name} is wrong at {wrong[0]}: {actual[first]:g}, expected "
            f"{expected[first]:g}. {len(wrong)} of {actual.numel()} elements are wrong."
        )


def check_calls(rank, used, *expected):
    """Compare the names of the collective calls of a rank, in any order."""
    __tracebackhide__ = True
    names = [call.op.removesuffix("_single") for call in used.calls]
    if sorted(names) != sorted(expected):
        wanted = ", ".join(expected) or "no collective call, just send and recv"
        raise AssertionError(f"Rank {rank} called {', '.join(names) or 'none'}, expected {wanted}.")


def check_sent(rank, used, formula, limit):
    """Check the bytes that a rank sent in point-to-point messages."""
    __tracebackhide__ = True
    _check_bytes(f"Rank {rank} sent", used.sent_bytes, formula, limit)


def check_total(used, formula, limit):
    """Check the bytes that all ranks sent in point-to-point messages."""
    __tracebackhide__ = True
    _check_bytes("All ranks together sent", used.total_bytes, formula, limit)


def check_payload(rank, used, formula, limit):
    """Check the bytes of a rank's collective calls."""
    __tracebackhide__ = True
    payload = sum(call.payload_bytes for call in used.calls)
    _check_bytes(f"The collective calls of rank {rank} moved", payload, formula, limit)


def check_rounds(used, formula, limit):
    """Check the rounds: in each, a rank can send one message and receive one."""
    __tracebackhide__ = True
    if used.rounds > limit:
        raise AssertionError(
            f"The messages took {used.rounds} rounds, expected at most {formula} = {limit}. "
            "In a round, a rank can send one message and receive one."
        )


def _check_bytes(what, count, formula, limit):
    __tracebackhide__ = True
    if count > limit:
        raise AssertionError(f"{what} {count} B, expected at most {formula} = {limit} B.")


def kind_of(tensor):
    """Return ``float32[2, 3]``."""
    return f"{tensor.dtype}".removeprefix("torch.") + str([*tensor.shape])


def text_of(tensor):
    """Return the numbers, rounded."""
    if tensor.ndim == 0:
        return f"{tensor:g}"
    return f"[{', '.join(map(text_of, tensor))}]"
