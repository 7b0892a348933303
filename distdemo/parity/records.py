"""Records of ``parity``: the settings of a run, and the report. Frozen; no torch, no Rich."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from distdemo.calls.records import Finding, Gap
from distdemo.encoding import derived
from distdemo.launcher.program import Program
from distdemo.launcher.records import WorldReport

EVALUATION = -1
"""Step of tensors that are computed without gradients."""
KINDS = ("start", "initial", "input", "output", "loss", "gradient", "clipped", "parameter")
GRADIENTS = ("gradient", "clipped")


class TensorId(NamedTuple):
    """Kind, step from 0, and name of a tensor; the kind is one of ``KINDS``."""

    kind: str
    step: int
    name: str

    @property
    def number(self) -> int:
        """Step as reports count them: from 1, as `run` does, or 0 without gradients."""
        return self.step + 1

    @property
    def initial(self) -> TensorId:
        """The same parameter at the start."""
        return TensorId("initial", 0, self.name)


Reason = Literal[
    "nothing",
    "untrained",
    "steps",
    "absent",
    "gradient",
    "hidden",
    "extra",
    "unread",
    "unrecorded",
    "limit",
    "shape",
    "start",
    "tolerance",
]
"""Reason why a tensor can't be compared.

nothing: No tensor of the question was recorded.
untrained: The reference has no gradient but zeros, and changes no parameter.
steps: The ranks make another number of steps than the reference.
absent: Only the reference has it.
gradient: Only the reference has a gradient of it that isn't zero.
hidden: Its gradient differs, and the parameter after the step doesn't.
extra: Only the ranks have it.
unread: It has no values that can be read, such as a fake tensor, or one of ``torch.func``.
unrecorded: An error ended the recording of a call.
limit: Too many tensors to record.
shape: In no placement do the ranks' pieces have its shape.
start: It could not be given the reference's initial values.
tolerance: A tensor that is a tenth smaller would agree, too.
"""
LIMITS = ("random", "norm", "reproducible", "finite", "nothing")
"""Causes of which it isn't known that the program makes a mistake: it can't be compared."""


@dataclass(frozen=True, slots=True)
class Recording:
    """Settings of one recorded run.

    Attributes:
        steps: Number of training steps to record; then the program is stopped.
        seed: Seed for torch, NumPy and random on every rank, or None.
        start: ``save`` the initial parameters, ``copy`` them from those that were saved, copy them
            and ``move`` each by one unit in the last place, or ``keep`` the program's own.
        run: Name of the run: ``reference``, ``moved``, ``again`` or ``ranks``.
        folder: Temporary folder of the command, which holds the runs' files.
        epsilon: Smallest relative move of a parameter, that of the coarsest type of the outputs.
        excluded: Patterns of names of tensors that are not asked about.
    """

    steps: int = 2
    seed: int | None = None
    start: str = "copy"
    run: str = "ranks"
    folder: str = ""
    epsilon: float = 0.0
    excluded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Axis:
    """Dimension of the mesh of ranks."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """A tensor of the ranks, compared with the reference's.

    Attributes:
        kind: One of ``KINDS``.
        step: Number of the training step, from 1; 0 for what is computed without gradients.
        name: Name of the module or parameter.
        placement: Placement per axis: ``R``, ``S(batch)``, ``S(1)``, ``P``, ``mean``, ``@0``; of
            an unexplained tensor, that of the nearest explanation, or empty.
        explained: True if the placement explains the values.
        factor: Factor by which the ranks' tensor is larger than the reference.
        deviation: Largest difference, as a multiple of what is tolerated.
        tolerance: Tolerated difference, relative to the tensor's norm.
        reordered: True if columns are in another order.
        line: The user's line.
        incomparable: Reason why it can't be compared, whatever the other fields say; or empty.
    """

    kind: str
    step: int
    name: str
    placement: tuple[str, ...] = ()
    explained: bool = True
    factor: float = 1.0
    deviation: float = 0.0
    tolerance: float = 0.0
    reordered: bool = False
    line: str = ""
    incomparable: Reason | Literal[""] = ""


@dataclass(frozen=True, slots=True)
class Uncompared:
    """Tensors that were asked about and could not be compared.

    Attributes:
        reason: Reason.
        count: Number of tensors; of ``steps``, how many more steps than the reference the ranks
            make, negative if they make fewer.
        names: Names of the parameters, or else of the modules.
        what: Of ``unread``, what they are; of ``unrecorded``, the errors.
    """

    reason: Reason
    count: int = 0
    names: tuple[str, ...] = ()
    what: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """First cause of what differs.

    Attributes:
        cause: ``data``, ``seeds``, ``start``, ``forward``, ``loss``, ``gradient``, ``parameter``,
            ``random``, ``reproducible`` or ``nothing``.
        what: Sentence that names tensor, step, ranks, axis and factor.
        facts: More lines.
        hint: Usual reason, and what to do.
        kind: Kind of the tensor.
        name: Name of the tensor; empty if there is none.
        step: Number of its step, from 1; 0 for what is computed without gradients.
        axis: Name of the axis.
        ranks: Ranks at fault; empty if all are.
        factor: Factor by which the ranks' tensor is larger than the reference.
        line: The user's line.
    """

    cause: str
    what: str
    facts: tuple[str, ...] = ()
    hint: str = ""
    kind: str = ""
    name: str = ""
    step: int = 0
    axis: str = ""
    ranks: tuple[int, ...] = ()
    factor: float = 1.0
    line: str = ""


@dataclass(frozen=True, slots=True)
class ParityReport:
    """Comparison of a program on N ranks with the same program on fewer.

    Attributes:
        reference_size: Number of ranks of the reference.
        steps: Number of compared training steps.
        axes: Axes of the mesh that explains the most tensors.
        tensors: Compared tensors: by step, outputs in forward order, gradients in backward order.
        difference: First cause of what differs, or None.
        gaps: What could not be compared.
        excluded: Names of the tensors that were not asked about.
        stopped: Reason why the comparison of the N ranks' calls stopped early; or empty.
        unseen: What the sanitizer couldn't look at on the N ranks.
        copied: Number of initial parameters that were replaced by the reference's.
        notes: Remarks about what was compared.
        failed_run: Name of the run whose world failed: ``reference``, ``ranks``; empty if none did.
        world: Report on the world that failed, or on that of the N ranks.
        warnings: Possible errors in the calls of the N ranks.
    """

    program: Program | None
    world_size: int
    reference_size: int = 1
    steps: int = 0
    axes: tuple[Axis, ...] = ()
    tensors: tuple[Comparison, ...] = ()
    difference: Difference | None = None
    gaps: tuple[Uncompared, ...] = ()
    excluded: tuple[str, ...] = ()
    stopped: str = ""
    unseen: tuple[Gap, ...] = ()
    copied: int = 0
    notes: tuple[str, ...] = ()
    failed_run: str = ""
    world: WorldReport | None = None
    warnings: tuple[Finding, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    @derived
    def unexplained(self) -> int:
        """Number of tensors that no placement explains."""
        return sum(not tensor.explained and not tensor.incomparable for tensor in self.tensors)

    @derived
    def verdict(self) -> Literal["agrees", "differs", "incomplete", "failed"]:
        """Verdict; ``incomplete`` if the tensors could not all be compared."""
        if self.failed_run:
            return "failed"
        if self.difference is not None and self.difference.cause not in LIMITS:
            return "differs"
        return "agrees" if self.difference is None and self.is_complete else "incomplete"

    @property
    def is_complete(self) -> bool:
        """True if all tensors and calls that were asked about could be compared."""
        return not (self.gaps or self.stopped or self.unseen)

    @property
    def ok(self) -> bool:
        """True if the program computes on N ranks what the reference computes."""
        verdict: str = self.verdict
        return verdict == "agrees"
