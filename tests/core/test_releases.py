"""What changed from release to release, by the maps and by the names of torch's calls."""

from __future__ import annotations

from dataclasses import replace

from maps import fold
from release_changes import ReleaseChange, changes_of, page, release_changes

from distdemo.backends.capabilities import WRONG, CapabilityMap, Note

OLD = CapabilityMap(
    backend="gloo",
    torch="2.8",
    device="cpu",
    dtypes=("float32", "int32"),
    findings=("", "raises ValueError: no", WRONG),
    rows={
        "reduce_scatter/list max": (2, 2),
        "reduce_scatter/single max": (2, 2),
        "reduce_scatter/list band": (2, 0),  # of floats it has no meaning, whatever comes out
        "all_reduce/tensor min": (0, 1),
        "scatter/list": (2, 1),
    },
    shapes={},
)
NEW = replace(
    OLD,
    torch="2.9",
    rows={
        "reduce_scatter/list max": (0, 0),
        "reduce_scatter/single max": (0, 0),
        "reduce_scatter/list band": (1, 0),
        "all_reduce/tensor min": (1, 0),
        "scatter/list": (2, 1),
        "gather/list": (0, 0),
    },
)


def test_what_changed_alike_stands_together_and_what_fails_in_another_way_is_no_change() -> None:
    note = Note(("reduce_scatter/",), "2.9", "PyTorch issue 1", "https://example.org/1")
    found = changes_of(fold([OLD, NEW, replace(NEW, torch="2.10")], (note,)))
    forms, both = ("reduce_scatter/list", "reduce_scatter/single"), ("float32", "int32")
    minimum = (("all_reduce/tensor",), ("min",))
    assert sorted(found, key=repr) == sorted(
        (
            ReleaseChange("2.8", "gloo", "wrong", forms, ("max",), both),
            ReleaseChange(
                "2.9", "gloo", "fixed", forms, ("max",), both, "", note.source, note.link
            ),
            ReleaseChange("2.9", "gloo", "fails", *minimum, ("float32",), OLD.findings[1]),
            ReleaseChange("2.9", "gloo", "works", *minimum, ("int32",)),
            ReleaseChange("2.9", "gloo", "works", ("gather/list",), (), both),
        ),
        key=repr,
    )


def test_the_page_has_what_is_known_in_the_order_of_the_releases() -> None:
    found = release_changes()
    releases = [(*map(int, each.release.split(".")),) for each in found]
    assert releases == sorted(releases)
    seen = {(each.release, each.about, each.change) for each in found}
    assert seen >= {
        ("2.8", "gloo", "wrong"),
        ("2.9", "gloo", "fixed"),
        ("2.12", "gloo", "works"),
        ("2.13", "torch.distributed", "renamed"),
        ("2.14", "torch.distributed", "new"),
        ("2.15", "nccl", "meaning"),
    }
    rows = [line for line in page().splitlines() if line.startswith("| 2.")]
    assert all(row.count("|") == 5 for row in rows), "a bar ends a cell"
    assert any("](https://github.com/pytorch/" in row for row in rows)
