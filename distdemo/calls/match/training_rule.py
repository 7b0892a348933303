"""Judge what the ranks train: parameters, gradients, steps and samplers."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from distdemo.calls.match.ledger import Ledger
from distdemo.calls.match.matcher import Matcher, Rule
from distdemo.calls.match.rules import ranks_by_value
from distdemo.calls.match.state import CallSet, Entry, Group
from distdemo.calls.match.training import (
    CheckSet,
    GradientCheck,
    StepCheck,
    equal_data_finding,
    sampler_findings,
    shifted_finding,
    untrained_findings,
)
from distdemo.calls.notes import (
    Check,
    Gradients,
    GroupNote,
    Loss,
    Note,
    SamplerNote,
    Samples,
    TensorNote,
    TrainingNote,
)
from distdemo.calls.records import Finding, LedgerReport

MAX_TRAINED = 100_000  # optimizers, or samplers, of all ranks


class TrainingRule(Rule):
    """Compares what the ranks train. What differs follows from an error in the calls, if any.

    Attributes:
        ledger: Parameters and optimizers of all ranks.
        samplers: Sampler by rank and its number there.
    """

    follows_errors = True
    takes = (TensorNote, TrainingNote, SamplerNote, Samples, GroupNote)

    def __init__(self, matcher: Matcher) -> None:
        super().__init__(matcher)
        self.ledger = Ledger()
        self.samplers: dict[tuple[int, int], SamplerNote] = {}
        self._steps: defaultdict[Group, StepCheck] = defaultdict(StepCheck)
        self._gradients: defaultdict[Group, GradientCheck] = defaultdict(GradientCheck)
        self._checks: defaultdict[Group, CheckSet] = defaultdict(CheckSet)
        self._has_drifted = False

    def add(self, rank: int, note: Note, entry: Entry | None) -> None:
        """Add facts about a rank's tensors, optimizers, samplers or gradients."""
        match note:
            case TensorNote():
                self.ledger.describe(rank, note)
            case TrainingNote():
                self.matcher.shown.remember(note.source_line)
                if len(self.ledger.training) < MAX_TRAINED:
                    self.ledger.training[rank, note.number] = note
            case SamplerNote():
                if len(self.samplers) < MAX_TRAINED:
                    self.samplers[rank, note.number] = note
            case Samples():
                self._add_samples(rank, note)
            case GroupNote(values=Check() | Gradients()):
                self._add_checksums(rank, note)

    def _add_samples(self, rank: int, note: Samples) -> None:
        split = self.ledger.add(rank, note)
        if split is not None and not self._has_drifted:
            self._has_drifted = True
            finding = self.ledger.finding([split], self.matcher.shown.line)
            self.matcher.report(rank, finding, settled=range(self.matcher.world_size))

    def _add_checksums(self, rank: int, note: GroupNote) -> None:
        group = self.matcher.group(note.group)
        size = len(group.members)
        values = note.values
        if isinstance(values, Loss) or rank not in group.numbers or size < 2:
            return
        self.matcher.shown.remember(values.source_line)
        if isinstance(values, Gradients):
            self._gradients[group].add(rank, values, size)
        elif isinstance(values, Check):
            difference = self._checks[group].add(rank, values, size, self.matcher.shown.line)
            if difference is not None:
                self.matcher.report(rank, difference, settled=group.members)

    def agreed(self, entries: CallSet) -> None:
        """Compare the training steps before a call."""
        steps = {rank: entry.step for rank, entry in entries.items()}
        if max(steps.values()) < 0:
            return
        shifted = self._steps[entries.group].compare(steps)
        if shifted is not None:
            finding = shifted_finding(shifted, steps, entries.by_rank, self.matcher.shown.line)
            entry = entries[finding.ranks[0]]
            finding = self.matcher.with_cause(finding, entries, ranks_by_value(shifted))
            self.matcher.report(entry.rank, finding, entry)

    def repeats(self, group: Group, *, has_step: bool) -> bool:
        """Return True unless steps would be compared that have begun at different numbers."""
        return not has_step or self._steps[group].is_even

    def findings(self) -> list[Finding]:
        """Return what is wrong with the training, the cause first."""
        size = self.matcher.world_size
        line = self.matcher.shown.line
        mixed = [check.finding(line) for check in self._gradients.values()]
        errors = [replace(finding, level=self.ledger.level) for finding in mixed if finding]
        errors += self.ledger.findings(line)
        errors += sampler_findings(self.samplers, size, line)
        checks = [(group.members, check) for group, check in self._gradients.items()]
        if equal := equal_data_finding(checks, line):
            errors.append(replace(equal, level=self.ledger.level))
        return [*errors, *untrained_findings(self.ledger.training, size, line)]

    def report(self) -> LedgerReport:
        """Return which tensors were compared."""
        return self.ledger.report(sum(checks.compared for checks in self._checks.values()))
