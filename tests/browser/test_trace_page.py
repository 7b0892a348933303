"""The page of a traced run, in a real browser: what it shows, who can read it, what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from traces import real

from distdemo.launcher.records import Verdict
from distdemo.ops.spec import Mismatch, Verification
from distdemo.trace.records import HeldChunk, TraceReport
from distdemo.view.format import number

pytestmark = pytest.mark.processes
Page = Any
Open = Callable[..., Page]
RING = real("all_reduce", "ring", 4, 8)
WRONG = real("all_reduce", "ring", 4, 4, wrong_rank=2)
RUNS = {"ring": RING, "bruck": real("all_to_all", "bruck", 3, 2)}
PLAYED = """() => new Promise((done) => {
  const look = () => (trace.state().playing ? requestAnimationFrame(look) : done(trace.state()));
  trace.speed(1000);
  trace.play();
  look();
})"""
TABLES = """() => [...Array(trace.rounds + 1).keys()].map((k) => {
  trace.go(k);
  return trace.state().table;
})"""


def state(page: Page) -> dict[str, Any]:
    """The round, whether it plays, and the text of the picture and of the table."""
    return dict(page.evaluate("trace.state()"))


def caption(page: Page) -> str:
    """The sentence about the round."""
    return str(page.inner_text("#caption"))


def read(text: str) -> tuple[list[int], list[str], bool] | None:
    """Return a field's ranks whose data it contains, its values, and whether it is complete."""
    if text in ("—", "nothing"):
        return None
    values, _, who = text.partition("\nfrom ")
    ranks: list[int] = []
    for part in who.split():
        first, _, last = part.partition("–")
        ranks += range(int(first), int(last or first) + 1)
    return sorted(ranks), values.removesuffix(" ✓").split(), "✓" in values


def in_table(
    report: TraceReport, rank: int, cell: HeldChunk | None
) -> tuple[list[int], list[str], bool] | None:
    """Return the same of a cell of the report."""
    if cell is None:
        return None
    values = [each if isinstance(each, str) else number(each) for each in cell.values]
    return sorted(cell.ranks), values, cell.complete and cell.chunk in report.wanted[rank]


# ------------------------------------------------------------------------------- what it shows


@pytest.mark.parametrize("name", RUNS)
def test_it_plays_to_the_end_and_says_after_each_round_what_each_rank_holds(
    open_page: Open, name: str
) -> None:
    report = RUNS[name]
    page = open_page(report)
    after = page.evaluate(PLAYED)
    assert after["round"] == len(report.rounds)
    for rank, wanted in enumerate(report.wanted):
        assert all("✓" in after["table"][rank][chunk] for chunk in wanted)
    for table, held in zip(page.evaluate(TABLES), report.states(), strict=True):
        for rank, (row, cells) in enumerate(zip(table, held, strict=True)):
            held_cells = [in_table(report, rank, cells.get(chunk)) for chunk in range(len(row))]
            assert list(map(read, row)) == held_cells


def test_a_picture_shows_whole_values_and_no_other_number(open_page: Open) -> None:
    page = open_page(real("broadcast", "tree", 8, 8))
    cells = page.locator(".cell[data-rank]").all_inner_texts()
    assert [text.split() for text in cells] == [[*"01234567", "✓"], *[["nothing"]] * 7]
    page.evaluate("trace.go(1)")
    assert page.locator("#stage .arrived").all_inner_texts() == [cells[0]]
    overflows = "(cell) => cell.scrollWidth > cell.clientWidth"
    assert not any(value.evaluate(overflows) for value in page.locator(".value").all())


def test_chunks_have_numbers_only_where_they_are_held(open_page: Open) -> None:
    page = open_page(real("scatter", "flat", 3, 1))
    assert page.locator("#stage .cell").all_inner_texts() == [
        "0\n0\n✓",
        "1\n10",
        "2\n20",
        *["nothing"] * 2,
    ]


def test_the_legend_explains_the_signs_in_use_also_on_a_projector(open_page: Open) -> None:
    page = open_page(real("broadcast", "tree", 4, 4), 1920, 1080)
    page.click("#projector")
    explained = page.locator(".legend li:visible").all_inner_texts()
    assert any("copied" in text for text in explained)
    assert not any("reduced" in text or "not held" in text for text in explained)
    bottom = "document.querySelector('.legend').getBoundingClientRect().bottom"
    assert 0.85 * 1080 < page.evaluate(bottom) <= 1080


def test_a_message_names_the_version_of_a_chunk_that_is_not_the_one_held(open_page: Open) -> None:
    page = open_page(real("all_reduce", "naive-ring", 3, 3))
    labels = []
    for k in (1, 2):
        page.evaluate(f"trace.go({k})")
        labels.append(set(page.locator(".chip").all_text_contents()))
    assert labels == [{"own tensor"}, {"last tensor"}]


def test_messages_travel_from_rank_to_rank_and_say_what_they_do(open_page: Open) -> None:
    page = open_page(RING)
    page.evaluate("trace.play(); trace.pause(); trace.play(); trace.advance(1); trace.pause()")
    paths = "[...document.querySelectorAll('.chip')].map((each) => each.getAttribute('transform'))"
    begun = page.evaluate(paths)
    assert state(page)["moving"]
    page.evaluate("trace.play(); trace.advance(500); trace.pause()")
    later = page.evaluate(paths)
    assert len(begun) == len(later) == 4
    assert all(one != other for one, other in zip(begun, later, strict=True))
    assert page.locator(".chip.reduce").all_text_contents() == [
        f"chunk {chunk}" for chunk in (0, 1, 2, 3)
    ]
    page.evaluate("trace.go(4)")
    assert page.locator(".chip.copy").all_text_contents() == [
        f"chunk {chunk}" for chunk in (1, 2, 3, 0)
    ]
    assert page.get_attribute("#announcement", "aria-live") == "polite"
    page.evaluate("trace.go(3)")
    assert caption(page).startswith(
        "Round 3 of 6, reduce-scatter: rank 0 sends its chunk 2 to rank 1"
    )
    assert "Complete: 4 of 16 chunks" in caption(page)
    assert page.text_content("#announcement") == caption(page)


# ---------------------------------------------------------------------------------- who reads it


def test_all_of_it_can_be_done_by_keyboard(open_page: Open) -> None:
    page = open_page(RING)
    rounds = []
    for key in ("ArrowRight", ".", "End", "ArrowLeft", ",", "Home"):
        page.keyboard.press(key)
        rounds.append(state(page)["round"])
    assert rounds == [1, 2, 6, 5, 4, 0]
    speeds = []
    for key in ("+", "+", "-"):
        page.keyboard.press(key)
        speeds.append(page.inner_text("#speed"))
    assert speeds == ["2×", "4×", "2×"]
    page.keyboard.press(" ")
    assert state(page)["playing"]
    page.keyboard.press(" ")
    assert not state(page)["playing"]
    page.keyboard.press("Home")
    page.focus(".cell[tabindex='0']")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    focused = "(({ rank, chunk }) => [rank, chunk])(document.activeElement.dataset)"
    assert page.evaluate(focused) == ["1", "2"]
    assert state(page)["round"] == 0
    assert page.locator(".cell[tabindex='0']").count() == 1


# Each text on the page with its colour and what is behind it, as the browser computed them.


# ----------------------------------------------------------------------------- what may go wrong


def test_a_run_that_failed_says_so_and_has_no_picture(open_page: Open) -> None:
    assert RING.world
    verdict = Verdict("Rank 2 died.", "It was killed.", "Look at its memory.", (2,))
    world = replace(RING.world, verdict=verdict)
    page = open_page(replace(RING, start=(), rounds=(), verifications=(), world=world))
    assert "✗ Failed. Rank 2 died. It was killed." in page.inner_text("header")
    assert page.is_hidden("#play")


HOSTILE = "</script><script>window.hacked = 1</script><!--<script><img src=x onerror=hacked=1>"


def hostile() -> TraceReport:
    """A report in which whatever can be a text is one that wants to be a script."""
    nasty = HeldChunk(0, (0,), (HOSTILE,))
    mismatch = Mismatch(0, (0,), HOSTILE, "\ud800&amp;\u2028")
    wrong = Verification(False, 4, 1, mismatches=(mismatch,))
    return replace(
        WRONG,
        start=((nasty, *WRONG.start[0][1:]), *WRONG.start[1:]),
        chunk_names=(HOSTILE, "1", "2", "3"),
        algorithm=replace(WRONG.algorithm, name=HOSTILE, summary=HOSTILE, source=HOSTILE),
        versions={HOSTILE: HOSTILE},
        verifications=(wrong,) * 4,
    )


def test_no_value_breaks_out_and_the_page_may_do_only_what_it_came_with(
    open_page: Open, complaints: list[str]
) -> None:
    page = open_page(hostile())
    assert page.evaluate("window.hacked") is None
    assert (page.locator("script").count(), page.locator("img").count()) == (2, 0)
    assert HOSTILE in state(page)["table"][0][0]
    page.locator(".cell").first.hover()
    assert HOSTILE in page.inner_text("#tip")
    broken = page.evaluate(
        """async () => {
            const found = [];
            document.addEventListener("securitypolicyviolation",
                (event) => found.push(event.effectiveDirective));
            const script = document.createElement("script");
            script.textContent = "window.hacked = 1";
            document.body.append(script);
            await fetch("https://example.invalid/").catch(() => {});
            await new Promise((done) => { setTimeout(done, 0); });
            return [found, window.hacked];
        }"""
    )
    assert broken == [["script-src-elem", "connect-src"], None]
    assert complaints, "the browser says what it refused"
    complaints.clear()


def test_nothing_stands_beyond_the_edge(open_page: Open) -> None:
    for n, width in ((4, 360), (16, 400), (8, 1920)):
        page = open_page(real("all_reduce", "ring", n, n), width=width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        boxes = page.evaluate(
            """[...document.querySelectorAll(".rank")].map((each) => {
                const { left, right, top, bottom } = each.getBoundingClientRect();
                return [left, right, top, bottom];
            })"""
        )
        assert len(boxes) == n
        assert all(left >= 0 and right <= width for left, right, _, _ in boxes)
        assert not any(overlap(one, other) for at, one in enumerate(boxes) for other in boxes[:at])


LABELS = """() => [...Array(trace.rounds).keys()].map((k) => {
  trace.go(k + 1);
  const boxes = (selector) => [...document.querySelectorAll(selector)].map((each) => {
    const { left, right, top, bottom } = each.getBoundingClientRect();
    return [left, right, top, bottom];
  });
  return [boxes(".rank"), boxes(".chip rect")];
})"""


@pytest.mark.parametrize(("op", "algorithm"), [("all_reduce", "doubling"), ("all_gather", "bruck")])
def test_no_label_covers_a_rank_or_another_label(open_page: Open, op: str, algorithm: str) -> None:
    for n, (width, height) in product((4, 8, 16), ((1280, 800), (400, 800), (1920, 1080))):
        page = open_page(real(op, algorithm, n, n), width, height)
        for at, (ranks, labels) in enumerate(page.evaluate(LABELS), start=1):
            assert labels
            for place, label in enumerate(labels):
                others = [*ranks, *labels[:place]]
                assert not any(overlap(label, other) for other in others), (n, width, at)


def overlap(one: Sequence[float], other: Sequence[float]) -> bool:
    beside = one[1] <= other[0] or other[1] <= one[0]
    return not beside and one[2] < other[3] and other[2] < one[3]
