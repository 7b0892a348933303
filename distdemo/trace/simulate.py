"""``trace --simulate``: what algorithms do on so many ranks, on paper; no process is started."""

from __future__ import annotations

from distdemo import ops
from distdemo.ops.spec import OpSpec
from distdemo.trace.contending import Arena, CompareReport, ContestSpec
from distdemo.trace.paper import Paper
from distdemo.versions import versions

NO_LINK = (
    "No times are predicted, as nobody has said what a message costs: give --alpha and --beta, or "
    "--fit with a file of bench."
)


def simulate(spec: ContestSpec) -> CompareReport:
    """Count all algorithms at all sizes, and predict their times where the link is known.

    Args:
        spec: of its world only the number of ranks counts, which its ops have, too.

    Raises:
        UsageError: the op has no such algorithm.
    """
    paper = Paper(spec)
    n = spec.ops[0].group_size
    missing = [NO_LINK] if spec.link is None and n > 1 else []
    return CompareReport(
        n=n,
        arenas=tuple(_arena(paper, op) for op in spec.ops),
        link=spec.link,
        crossovers=paper.crossovers(spec.link),
        simulated=True,
        notes=(*spec.notes, *missing),
        versions=versions(),
    )


def _arena(paper: Paper, op: OpSpec) -> Arena:
    contenders = paper.contenders(op, paper.spec.link)
    return Arena(op, ops.REGISTRY[op.op].traffic(op), contenders)
