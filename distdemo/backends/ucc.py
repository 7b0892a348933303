"""ucc: collectives over UCX, in builds of torch that include it."""

from __future__ import annotations

from distdemo.backends.contract import COMMON_DTYPES, Backend


class Ucc(Backend):
    """The UCC backend, which is experimental in torch and not in the wheels on PyPI."""

    name = "ucc"
    summary = "CPU and GPU tensors over UCX; only in builds of torch that include it."
    devices = ("cpu", "cuda")
    how_to_install = "Build torch from source with USE_UCC=1 on a machine with UCC and UCX."
    dtypes = COMMON_DTYPES

    def missing(self) -> str | None:
        """Return the reason this torch can't use UCC, or None if it can."""
        return super().missing() and "This torch was built without UCC, like the wheels on PyPI."
