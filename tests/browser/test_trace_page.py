"""The page of a traced run, in a real browser."""

from __future__ import annotations

from typing import Any

import pytest
from pages import RING, SPOILED, Open, heard, said, state
from traces import paper

from distdemo import ops
from distdemo.ops.buffers import expected
from distdemo.trace.tracing import Cell
from distdemo.view.numbers import number

RUNS = {
    "ring": RING,
    "binary-tree": paper("all_reduce", "binary-tree", 7, 4, real=True),
    "halving-doubling": paper("all_reduce", "halving-doubling", 6, 12, real=True),
    "bruck": paper("all_to_all", "bruck", 5, 2),
    "chain": paper("broadcast", "chain", 3, 6, root=1),
    "scatter": paper("scatter", "tree", 5, 1, root=2),
}
# All that is to be seen after a step: what the page says of itself, the picture and the times.
STEPPED = """([by, times]) => {
  const found = [];
  for (let at = 0; at <= times; at += 1) {
    if (at) trace.step(by);
    const parts = ["stage", "times"].map((id) => document.getElementById(id).innerHTML);
    found.push(JSON.stringify([trace.state(), document.body.innerText, ...parts]));
  }
  return found;
}"""
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
# After each round the chunks that the picture shows as held, and by which signs as complete.
PICTURES = """() => [...Array(trace.rounds + 1).keys()].map((k) => {
  trace.go(k);
  return [...document.querySelectorAll("#stage .cell:not(.absent)")].map((cell) => [
    [Number(cell.dataset.rank), Number(cell.dataset.chunk)],
    [cell.classList.contains("complete"), cell.innerText.includes("✓"),
      cell.getAttribute("aria-label").includes("✓ Complete.")],
  ]);
})"""

Field = tuple[list[int], list[str], bool]


def in_table(cell: Cell | None) -> Field | None:
    """Whose contributions a field says, which numbers, and whether it is complete."""
    if cell is None:
        return None
    return sorted(cell.ranks), [_written(v) for v in cell.values], cell.complete


def _written(value: Any) -> str:
    return value if isinstance(value, str) else number(value)


def read(text: str) -> Field | None:
    """The same, out of a field of the table."""
    if text == "·":
        return None
    who, _, values = text.partition("\n")
    ranks: list[int] = []  # "+2": that of rank 2 once more
    for part in who.replace("✓", "").split():
        first, _, last = part.partition("–")
        ranks += range(int(first), int(last or first) + 1)
    return sorted(ranks), values.split(), "✓" in who


# ------------------------------------------------------------------------------- what it shows


@pytest.mark.parametrize("name", RUNS)
def test_it_plays_to_the_end_where_all_have_what_the_op_promises(
    open_page: Open, name: str
) -> None:
    report = RUNS[name]
    after = open_page(report).evaluate(PLAYED)
    assert after["round"] == len(report.rounds)
    spec = report.spec.op
    for rank, wanted in enumerate(report.wanted):
        pieces = expected(ops.REGISTRY[spec.op], rank, spec) or []
        promised = [number(v) for each in pieces for v in each.tensor.flatten().tolist()]
        fields = [after["table"][rank][chunk] for chunk in wanted]
        assert all("✓" in field for field in fields)
        assert [v for field in fields for v in field.partition("\n")[2].split()] == promised


@pytest.mark.parametrize("name", RUNS)
def test_after_each_round_the_table_says_what_each_rank_holds(open_page: Open, name: str) -> None:
    report = RUNS[name]
    tables = open_page(report).evaluate(TABLES)
    for table, held in zip(tables, report.states(), strict=True):
        for row, cells in zip(table, held, strict=True):
            assert list(map(read, row)) == [in_table(cells.get(at)) for at in range(len(row))]


@pytest.mark.parametrize("name", ["ring", "scatter"])
def test_after_each_round_the_picture_marks_what_is_complete(open_page: Open, name: str) -> None:
    report = RUNS[name]
    pictures = open_page(report).evaluate(PICTURES)
    for picture, held in zip(pictures, report.states(), strict=True):
        assert {tuple(place): signs for place, signs in picture} == {
            (rank, chunk): [cell.complete] * 3
            for rank, cells in enumerate(held)
            for chunk, cell in cells.items()
        }


@pytest.mark.parametrize("layout", ["circle", "row"])
def test_stepping_back_and_forth_shows_the_same(open_page: Open, layout: str) -> None:
    page = open_page(RING)
    page.select_option("#layout", layout)
    forth = page.evaluate(STEPPED, [1, len(RING.rounds)])
    back = page.evaluate(STEPPED, [-1, len(RING.rounds)])
    assert len(set(forth)) == len(forth) == len(RING.rounds) + 1
    assert back[::-1] == forth
    page.evaluate("trace.play(); trace.advance(2000); trace.pause(); trace.go(5)")
    assert page.evaluate(STEPPED, [1, 0]) == [forth[5]]


def test_messages_travel_from_rank_to_rank_and_say_what_they_do(open_page: Open) -> None:
    page = open_page(RING)
    page.evaluate("trace.play(); trace.pause(); trace.play(); trace.advance(1); trace.pause()")
    way = "[...document.querySelectorAll('.chip')].map((each) => each.getAttribute('transform'))"
    begun = page.evaluate(way)
    assert state(page)["moving"]
    page.evaluate("trace.play(); trace.advance(500); trace.pause()")
    later = page.evaluate(way)
    assert len(begun) == len(later) == 4
    assert all(one != other for one, other in zip(begun, later, strict=True))
    assert page.locator(".chip.reduce").all_text_contents() == ["+0", "+1", "+2", "+3"]
    page.evaluate("trace.go(4)")
    assert page.locator(".chip.copy").all_text_contents() == ["1", "2", "3", "0"]
    assert "all-gather: rank 0 sends chunk 1 to rank 1, which keeps it" in said(page)


def test_each_round_is_said_to_those_who_do_not_see(open_page: Open) -> None:
    page = open_page(RING)
    assert page.get_attribute("#heard", "aria-live") == "polite"
    page.evaluate("trace.go(3)")
    assert said(page).startswith("Round 3 of 6, reduce-scatter: rank 0 sends chunk 2 to rank 1")
    assert "Complete now: 4 of 16 wanted chunks; new: chunk 1 on rank 0" in said(page)
    assert heard(page) == said(page)


def test_all_speak_of_the_round_that_is_under_way(open_page: Open) -> None:
    page = open_page(RING)
    page.evaluate("trace.go(2); trace.play(); trace.advance(500); trace.pause()")
    assert page.inner_text("#place").startswith("Round 3 of 6")
    assert said(page).startswith("Round 3 of 6, reduce-scatter, under way: rank 0 sends chunk 2")
    assert "Complete now" not in said(page)
    page.evaluate("trace.play(); trace.advance(700); trace.pause()")
    assert page.inner_text("#place") == "Round 3 of 6"
    assert said(page).startswith("Round 3 of 6, reduce-scatter: rank 0 sends chunk 2")


# What is announced while it plays, in many small steps.
ANNOUNCED = """() => new Promise((done) => {
  const found = [];
  const heard = document.getElementById("heard");
  const watch = new MutationObserver((all) => found.push(...all.map(() => heard.textContent)));
  watch.observe(heard, { childList: true, characterData: true, subtree: true });
  trace.play();
  const step = () => {
    if (!trace.state().playing) return done(found);
    trace.advance(200);
    queueMicrotask(step);
  };
  step();
})"""


def test_each_round_is_announced_once(open_page: Open) -> None:
    told = open_page(RING).evaluate(ANNOUNCED)
    assert [text.split(",")[0] for text in told] == [f"Round {at} of 6" for at in range(1, 7)]


def test_a_chunk_says_what_it_holds_on_hover_and_on_focus(open_page: Open) -> None:
    page = open_page(RING)
    page.evaluate("trace.go(1)")
    cell = page.locator(".cell[data-rank='1'][data-chunk='0']")
    cell.hover()
    told = page.inner_text("#tip")
    assert "contributions of 0 1" in told
    assert "Numbers: 10 12" in told
    page.keyboard.press("Escape")
    assert page.is_hidden("#tip")
    cell.focus()
    assert page.inner_text("#tip") == told
    page.keyboard.press(".")
    assert "after round 2" in page.inner_text("#tip")


def test_the_time_line_jumps_and_follows(open_page: Open) -> None:
    page = open_page(RING)
    needle = "document.querySelector('.needle').getAttribute('x1')"
    start = page.evaluate(needle)
    page.locator(".busy rect[data-round='2']").first.click()
    assert state(page)["round"] == 2
    assert float(page.evaluate(needle)) > float(start)
    assert page.locator(".busy.now rect").count() == 4
    page.click(".jump[data-round='5']")
    assert state(page)["round"] == 5
    assert page.get_attribute(".jump[aria-current]", "data-round") == "5"


def test_without_a_run_there_are_no_times(open_page: Open) -> None:
    page = open_page(RUNS["bruck"])
    assert page.is_visible("#no-times")
    assert page.is_hidden("#times")
    assert "nothing was verified" in page.inner_text("header")
    assert page.is_disabled("#pace")


def test_a_wrong_chunk_is_marked_by_a_sign_and_by_words(open_page: Open) -> None:
    page = open_page(SPOILED)
    assert "rank 1's message of round 2 is left out" in page.inner_text("header")
    assert "element 0: got 50, expected 60; without ranks 0 and 1" in page.inner_text("header")
    wrong = next(each for each in SPOILED.wrong if each.rank == 2)
    assert wrong.round
    page.evaluate(f"trace.go({wrong.round - 1})")
    field = page.locator("#state tbody tr").nth(2).locator("td").nth(wrong.chunk)
    assert "✗" not in field.inner_text()
    page.evaluate(f"trace.go({wrong.round})")
    assert "✗" in field.inner_text()
    cell = page.locator(f".cell[data-rank='2'][data-chunk='{wrong.chunk}']")
    assert "Wrong" in (cell.get_attribute("aria-label") or "")
    assert cell.inner_text().count("✗") == 1
    assert "Spoiled on purpose" in said(page)
