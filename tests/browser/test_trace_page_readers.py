"""The page of a traced run for whoever reads it, however large, and whatever is in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pages import RING, SPOILED, Open, state
from traces import paper

from distdemo.launcher.records import Verdict
from distdemo.trace.scheduling import Fault
from distdemo.trace.tracing import Cell, TraceReport

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


def test_keys_go_from_chunk_to_chunk_and_the_focus_is_seen(open_page: Open) -> None:
    page = open_page(RING)
    page.focus(".cell[tabindex='0']")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    focused = "(({ rank, chunk }) => [rank, chunk])(document.activeElement.dataset)"
    assert page.evaluate(focused) == ["1", "1"]
    assert state(page)["round"] == 0
    assert page.locator(".cell[tabindex='0']").count() == 1
    width = "parseFloat(getComputedStyle(document.activeElement).outlineWidth)"
    assert page.evaluate(width) >= 2
    page.focus("#play")
    page.keyboard.press("Tab")
    assert page.evaluate(width) >= 2


def test_where_less_movement_is_wanted_nothing_moves(open_page: Open) -> None:
    page = open_page(RING, reduced_motion="reduce")
    still = page.inner_html("#stage")
    page.evaluate("trace.play(); trace.advance(300); trace.pause()")
    assert not state(page)["moving"]
    assert page.inner_html("#stage") == still
    page.evaluate("trace.play(); trace.advance(1400); trace.pause()")
    assert state(page)["round"] == 1
    assert page.locator("#stage .way").count() == 4
    assert page.evaluate("document.getAnimations().length") == 0


# Each text on the page with its colour and what is behind it, as the browser computed them.
TEXTS = """() => {
  const found = [];
  const back = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if (colour !== "rgba(0, 0, 0, 0)") return colour;
    }
    return getComputedStyle(document.documentElement).backgroundColor;
  };
  for (const each of document.querySelectorAll("body *")) {
    const text = [...each.childNodes].filter((n) => n.nodeType === 3 && n.data.trim());
    if (!text.length || !each.checkVisibility()) continue;
    if (each.closest(":disabled, script")) continue;
    const style = getComputedStyle(each);
    const colour = each.namespaceURI.endsWith("svg") ? style.fill : style.color;
    found.push([text[0].data.trim(), colour, back(each)]);
  }
  return found;
}"""


def luminance(colour: str) -> float:
    """WCAG 2.2, relative luminance of rgb(r, g, b)."""
    parts = [int(each) / 255 for each in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    red, green, blue = (
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_is_told_from_what_is_behind_it(open_page: Open, scheme: str) -> None:
    page = open_page(SPOILED, color_scheme=scheme)
    page.evaluate("trace.go(4)")
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    page.locator(".cell.wrong").first.hover()
    texts = page.evaluate(TEXTS)
    assert len(texts) > 100
    poor = [each for each in texts if contrast(*each[1:]) < 4.5]
    assert poor == []


def test_light_and_dark_are_the_systems_or_the_readers(open_page: Open) -> None:
    page = open_page(RING, color_scheme="dark")
    behind = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(behind)
    page.emulate_media(color_scheme="light")
    light = page.evaluate(behind)
    assert luminance(dark) < 0.05
    assert luminance(light) > 0.9
    page.select_option("#theme", "dark")
    assert page.evaluate(behind) == dark


CONTROLS = {"button", "slider", "combobox", "region", "table", "image", "status"}


def test_whatever_can_be_used_has_a_name(open_page: Open) -> None:
    page = open_page(SPOILED)
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    session.detach()  # or it would hold the page to its media
    told = [
        (each["role"]["value"], each.get("name", {}).get("value", ""))
        for each in nodes
        if not each.get("ignored") and each.get("role", {}).get("value") in CONTROLS
    ]
    assert {role for role, _ in told} >= {"button", "slider", "combobox", "region", "table"}
    assert [role for role, name in told if not name.strip()] == []
    buttons = {name for role, name in told if role == "button"}
    assert {"Restart", "Step back", "Play", "Step forward", "To the end"} <= buttons


def test_on_paper_there_are_no_buttons_to_press(open_page: Open) -> None:
    page = open_page(RING, media="print")
    assert page.is_hidden("#play")
    assert page.is_visible("#state")


# ----------------------------------------------------------------------------- what may go wrong


def test_a_rank_alone_has_nothing_to_play(open_page: Open) -> None:
    page = open_page(paper("all_reduce", "ring", 1, 4, real=True))
    assert page.is_disabled("#play")
    assert page.inner_text("#said") == "No round is needed. Complete now: 1 of 1 wanted chunk."
    assert page.inner_text("#no-times") == "No rank sent a message, so there are no times."


def test_what_is_in_a_chunk_twice_says_so(open_page: Open) -> None:
    page = open_page(paper("all_reduce", "ring", 4, 4, fault=Fault("twice", 1, 2), real=True))
    page.evaluate("trace.go(6)")
    wrong = page.locator(".cell.wrong").first
    assert wrong.locator(".who").inner_text() == "0–3 +2"
    assert "too much of rank 2" in (wrong.get_attribute("aria-label") or "")
    assert "of 0 1 2 3, 2 once more" in (wrong.get_attribute("aria-label") or "")


def test_a_run_that_failed_says_so_and_has_no_picture(open_page: Open) -> None:
    assert RING.world
    verdict = Verdict("Rank 2 died.", "It was killed.", "Look at its memory.", (2,))
    world = replace(RING.world, verdict=verdict)
    page = open_page(replace(RING, start=(), rounds=(), handed=(), verifications=(), world=world))
    assert "✗ Failed. Rank 2 died. It was killed." in page.inner_text("header")
    assert page.is_hidden("#play")
    assert "nobody knows what the ranks held" in page.inner_text("main")


HOSTILE = "</script><script>window.hacked = 1</script><!--<script><img src=x onerror=hacked=1>"


def hostile() -> TraceReport:
    """A report in which whatever can be a text is one that wants to be a script."""
    nasty = Cell(0, (0,), (HOSTILE,), wanted=True)
    wrong = replace(SPOILED.wrong[0], got=HOSTILE, expected="\ud800&amp;\u2028")
    return replace(
        SPOILED,
        start=((nasty, *SPOILED.start[0][1:]), *SPOILED.start[1:]),
        chunk_names=(HOSTILE, "1", "2", "3"),
        about=replace(SPOILED.about, name=HOSTILE, summary=HOSTILE, source=HOSTILE),
        checks=(replace(SPOILED.checks[0], formula=HOSTILE),),
        notes=(HOSTILE, '" onload="hacked=1'),
        versions={HOSTILE: HOSTILE},
        wrong=(wrong,),
    )


def test_no_value_breaks_out_of_its_place(open_page: Open) -> None:
    page = open_page(hostile())
    assert page.evaluate("window.hacked") is None
    assert page.locator("script").count() == 2
    assert page.locator("img").count() == 0
    assert HOSTILE in state(page)["table"][0][0]
    assert page.inner_text("h1").count(HOSTILE) == 1
    page.locator(".cell").first.hover()
    assert HOSTILE in page.inner_text("#tip")


def test_the_page_may_do_only_what_it_came_with(open_page: Open, complaints: list[str]) -> None:
    page = open_page(RING)
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


def test_the_file_is_whole_in_itself(open_page: Open, tmp_path: Path) -> None:
    open_page(RING)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    links = [part.split('"')[0] for part in text.split('href="')[1:] + text.split('src="')[1:]]
    assert links == ["data:,"]
    assert "http:" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https:" not in text
