"""Initial parameters of the reference: written by its rank, and copied into the ranks.

With shards that are drawn separately, nearly every program starts from different values on N ranks.
A parameter is found by its name. The split dimension follows from the shapes, and the piece of this
rank from its groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from distdemo.observe.memory import local_part, why_unreadable

SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
MAX_SECTIONS = 4  # of a packed parameter: gate and up, or q, k and v
MODEL_AXES = ("tp", "model", "mp", "tensor", "ep", "pp")
"""Names of mesh dimensions along which parameters are split by hand."""


class UnreadableError(TypeError):
    """A tensor has no values that can be read.

    Attributes:
        what: What it is, such as the name of its class.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a tensor, as a plain tensor without history.

    Raises:
        UnreadableError: It has no values here: those of a subclass of torch.Tensor are its own
            business, and a fake or freed tensor has none.
    """
    part = local_part(tensor).detach()
    part = part.trigger_wait() if hasattr(part, "trigger_wait") else part  # of a collective
    part = part.to_dense() if part.layout in SPARSE else part
    if why := why_unreadable(part):
        raise UnreadableError(why)
    if part.is_quantized:
        raise UnreadableError(f"a tensor of {part.dtype}")
    return part


class Start:
    """Initial parameters of the reference, in files.

    Args:
        folder: Folder of the command.

    Attributes:
        model_lines: Ranks of the lines of device meshes along the ``MODEL_AXES``.
    """

    def __init__(self, folder: Path) -> None:
        self.model_lines: set[tuple[int, ...]] = set()
        self._folder = folder
        self._wholes: dict[str, torch.Tensor] = {}

    def save(self, parameters: Mapping[str, torch.Tensor]) -> None:
        """Write parameters into one more file."""
        number = len(list(self._folder.glob("start-*.pt")))
        tensors = {}
        for name, parameter in parameters.items():
            with suppress(UnreadableError):
                part = local(parameter)
                is_view = part.untyped_storage().nbytes() != part.nbytes  # whose base is written
                tensors[name] = part.clone() if is_view else part.cpu()
        torch.save(tensors, self._folder / f"start-{number}.pt")

    def load(self) -> None:
        """Open the files that the reference has written."""
        for file in self._folder.glob("start-*.pt"):
            self._wholes |= torch.load(file, map_location="cpu", mmap=True, weights_only=True)

    def place(self, name: str, parameter: torch.Tensor) -> bool | None:
        """Copy the reference's values into a parameter, unless it has them.

        Returns:
            True if they were copied, False if it had them, None if they can't be placed.
        """
        if name not in self._wholes:
            return None
        whole = self._wholes[name]
        part = local(parameter)
        if hasattr(parameter, "placements"):
            pieces = _of_dtensor(whole, parameter)
        else:
            pieces = _of_shape(whole, part, self.model_lines)
        pieces = [
            piece.to(part.device, part.dtype) for piece in pieces if piece.shape == part.shape
        ]
        if not pieces:
            return None
        if any(torch.equal(piece, part) for piece in pieces):
            return False
        part.data.copy_(pieces[0])  # of which autograd doesn't know: it changes no version counter
        return True


def _of_dtensor(whole: torch.Tensor, parameter: Any) -> list[torch.Tensor]:
    """Return this rank's shard by its placements; a strided one is split last."""
    mesh = parameter.device_mesh
    position = mesh.get_coordinate()
    axes = list(enumerate(parameter.placements))
    axes.sort(key=lambda axis: "Strided" in type(axis[1]).__name__)
    for axis, placement in axes:
        if position is None or placement.is_partial():
            return []
        if hasattr(placement, "dim"):
            pieces = torch.chunk(whole, mesh.size(axis), placement.dim)
            index = position[axis]
            empty = whole.narrow(placement.dim, 0, 0)
            whole = pieces[index] if index < len(pieces) else empty
    return [whole]


def _of_shape(
    whole: torch.Tensor, part: torch.Tensor, lines: AbstractSet[tuple[int, ...]]
) -> list[torch.Tensor]:
    """Return the pieces that this rank may hold along the dimensions in which the shapes differ.

    The first one is copied. The others are those of a program that has cut out its heads of packed
    q, k and v, or every n-th row, itself.
    """
    if whole.dim() != part.dim():
        return []
    pieces = [whole]
    for dim, (length, held) in enumerate(zip(whole.shape, part.shape, strict=True)):
        if held == 0 or length % held:
            return []
        if length != held:
            count = length // held
            pieces = [
                piece
                for larger in pieces
                for piece in _split(larger, dim, count, _position(count, lines))
            ]
    return pieces


def _split(whole: torch.Tensor, dim: int, count: int, index: int) -> Iterator[torch.Tensor]:
    """Yield the ways in which one of ``count`` ranks may have cut out its piece."""
    length = whole.shape[dim]
    for sections in range(1, MAX_SECTIONS + 1):
        if length % (sections * count) == 0:
            parts = [section.chunk(count, dim)[index] for section in whole.chunk(sections, dim)]
            yield torch.cat(parts, dim)
    numbers = torch.arange(index, length, count, device=whole.device)
    yield whole.index_select(dim, numbers)


def _position(count: int, preferred: AbstractSet[tuple[int, ...]]) -> int:
    """Return this rank's position among the ``count`` that hold the pieces of a parameter.

    They are the ranks of one of its groups: a preferred one, or else the one that spans the fewest
    ranks.
    """
    if not dist.is_initialized():
        return 0
    rank = dist.get_rank()
    groups = [tuple(sorted(group)) for group in c10d._world.pg_group_ranks.values()]
    groups = [group for group in groups if len(group) == count and rank in group]
    if not groups:
        return rank % count
    best = min(groups, key=lambda group: (group not in preferred, group[-1] - group[0]))
    return best.index(rank)
