"""What two recordings differ in beside their times: where, with what and on which machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import fmean, median

from distdemo.bench.comparing import Difference
from distdemo.bench.recorded import Recording

MACHINE = 0.20
"""Copies and streams of the machine itself that differ by more are another machine's."""
WEIGHTY = ("host", "processor", "cores", "gpu", "torch")
"""What makes two recordings hard to compare where it differs."""


def differences(old: Recording, new: Recording) -> tuple[Difference, ...]:
    """All that can be named, the weighty first."""
    found = [
        *_named(old.versions, new.versions),
        *_named(old.environment, new.environment),
        *_worlds(old, new),
    ]
    once: dict[str, Difference] = {}
    for each in found:  # torch's release may be in both
        once.setdefault(each.name, each)
    return tuple(sorted(once.values(), key=lambda each: not each.weighty))


def _named(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Difference]:
    for name in {**old, **new}:
        before, after = (each.get(name, "not set") for each in (old, new))
        if before != after:
            yield Difference(name, before, after, weighty=name in WEIGHTY)


def _worlds(old: Recording, new: Recording) -> Iterator[Difference]:
    """In series that both have: other devices, more ranks around the group, more groups at once."""
    before = {series.key: series for series in old.series}
    for series in new.series:
        same = before.get(series.key)
        if same is None:
            continue
        for name, one, other in (
            ("device", same.device, series.device),
            ("world size", same.world_size, series.world_size),
            ("groups at once", same.groups, series.groups),
        ):
            if one != other:
                yield Difference(f"{name} of {series.key.backend}", str(one), str(other), True)


def warnings(old: Recording, new: Recording, differ: tuple[Difference, ...]) -> tuple[str, ...]:
    """Why a change may be none of the code's, in sentences."""
    found = [
        f"{each.name}: {each.old} in the old file, {each.new} in the new one."
        for each in differ
        if each.weighty
    ]
    return (*found, *_machine(old, new))


def blocks(old: Recording, new: Recording) -> Iterator[str]:
    """Where an interval says less than it seems to, in sentences."""
    for word, recording in (("old", old), ("new", new)):
        if recording.blocks:
            yield (
                f"The {word} file's launches of {', '.join(recording.blocks)} are blocks of one "
                "world: the intervals are too narrow, for whole worlds differ by more."
            )


def _machine(old: Recording, new: Recording) -> Iterator[str]:
    """Copies and streams that the machine itself did at another speed."""
    before, after = _limits(old), _limits(new)
    for word, changed in (("slower", _falls), ("faster", _rises)):
        found = [
            f"{name} {before[name] / 1e9:.3g}, now {after[name] / 1e9:.3g} GB/s"
            for name in before
            if name in after and changed(after[name] / before[name])
        ]
        if found:
            yield f"The machine itself was {word} in the new run: {'; '.join(found)}."


def _falls(share: float) -> bool:
    return share < 1 / (1 + MACHINE)


def _rises(share: float) -> bool:
    return share > 1 + MACHINE


def _limits(recording: Recording) -> dict[str, float]:
    """Bandwidths by what was measured; of several links of one kind the median."""
    found: dict[str, list[float]] = {}
    for limit in recording.limits:
        how = "all ranks at once" if limit.at_once else "alone"
        found.setdefault(f"{limit.kind} ({how})", []).append(limit.bandwidth)
    return {name: median(each) if len(each) > 2 else fmean(each) for name, each in found.items()}
