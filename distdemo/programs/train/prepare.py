"""What is done once, in the launcher, before ranks start: the data, and torch's slow imports."""

from __future__ import annotations

import gc
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from distdemo.programs.train.limits import check_samples, check_train

if TYPE_CHECKING:
    from distdemo.programs.train.data import Data
    from distdemo.training import TrainSpec

SLOW = ("torch._dynamo", "torch.nn.parallel", "torch.utils.data.distributed")
"""What training imports of torch. The first alone takes half as long as torch itself; the first
optimizer that is made imports it, and so does DistributedDataParallel. It starts no thread."""


def prepare(spec: TrainSpec, world_size: int) -> Data:
    """The data to train on; imports neither torch nor NumPy.

    Raises:
        UsageError: the settings or the data can't be used.
    """
    check_train(spec, world_size)
    data = _SOURCES[spec.dataset](spec)
    check_samples(spec, len(data.train), world_size)
    return data


def preload(device: str = "cpu") -> None:
    """Import what every rank will need, once for all that are forked.

    Args:
        device: of the ranks. Beside CUDA nothing more than torch itself is imported: whatever
            asks for a GPU in this process could keep forked ranks from theirs.
    """
    from distdemo.torch_compiler import without_traces
    from distdemo.torch_import import load_torch

    load_torch()
    was_enabled = gc.isenabled()
    gc.disable()  # it would walk through every new object of torch
    try:
        with without_traces():
            for module in SLOW if device == "cpu" else ():
                import_module(module)
            import_module("distdemo.programs.train.main")
    finally:
        if was_enabled:
            gc.enable()


def _generated(spec: TrainSpec) -> Data:
    from distdemo.programs.train.generated import generate

    return generate(spec.seed)


def _digits(_: TrainSpec) -> Data:
    from distdemo.programs.train.digits import read_digits

    return read_digits()


def _mnist(spec: TrainSpec) -> Data:
    from distdemo.programs.train.mnist import read_mnist

    return read_mnist(spec.data_dir)


_SOURCES: dict[str, Callable[[TrainSpec], Data]] = {
    "generated": _generated,
    "digits": _digits,
    "mnist": _mnist,
}
