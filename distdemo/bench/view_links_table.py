"""Every pair of ranks as people read it: two maps, the slow pairs by name, the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.console import Console, Group, RenderableType
from rich.text import Text

from distdemo.bench.linking import Link, LinksReport
from distdemo.bench.view_links_heat import SLOW, block_size, heat_maps
from distdemo.bench.view_marks import marks, spelled
from distdemo.bench.view_numbers import rate_text, short_size
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.frame import heading
from distdemo.view.grid import NARROW
from distdemo.view.numbers import duration, plural

FEW = 16  # links that are named
FOUND = "yellow"  # something that is no failure, but has to be looked at


def links_table(report: LinksReport, console: Console) -> Group:
    """All pairs, or as many as were measured; the verdict comes last.

    Why a world failed is not in it but for the verdict: ``failure`` shows that.
    """
    sign = signs(console)
    parts: list[RenderableType] = [heading(_title(report, sign))]
    if report.links and console.width >= NARROW:
        parts += heat_maps(report, console)
        parts.append(_legend(report, console))
    parts += _worst(report, console)
    parts += _below(report, sign)
    return Group(*parts, links_verdict_line(report, sign))


def links_verdict_line(report: LinksReport, sign: Signs) -> Text:
    """Whether all pairs were measured and right, and which ranks or links are slow."""
    if not report.ok:
        return Text(f"{sign.wrong} {links_verdict(report)}", style=colours.WRONG)
    if report.suspects or report.slow:
        return Text(f"{marks(sign).named} {links_verdict(report)}", style=FOUND)
    return Text(f"{sign.right} {links_verdict(report)}", style=colours.RIGHT)


def links_verdict(report: LinksReport) -> str:
    """The same without its sign."""
    ranks = report.spec.world.world_size
    due, got = ranks * (ranks - 1), len(report.links)
    whole = plural(got, "link") if got == due else f"{got:,} of {plural(due, 'link')} measured"
    middle = f"median {duration(report.latency)} and {rate_text(report.bandwidth)}" if got else ""
    found = ", ".join(filter(None, [whole, middle, _wrong(report)]))
    return f"{_trouble(report)}{_blame(report)}{found}; {_slow(report)}."


def _trouble(report: LinksReport) -> str:
    parts = []
    if report.failure is not None and report.failure.verdict is not None:
        parts.append(f"{report.failure.verdict.what} ")
    if report.interrupted:
        parts.append("Interrupted: ")
    return "".join(parts)


def _wrong(report: LinksReport) -> str:
    wrong = sum(link.wrong for link in report.links)
    return plural(wrong, "wrong element") if wrong else ""


def _slow(report: LinksReport) -> str:
    if report.suspects:
        count = len(report.slow)
        return f"{count} of the other links slow" if count else "none of the other links is slow"
    return f"{len(report.slow)} slow" if report.slow else "none is slow"


def _blame(report: LinksReport) -> str:
    """Which ranks are to be looked at; their links are not named."""
    if not report.suspects:
        return ""
    where = "it, its core and its host" if len(report.suspects) == 1 else "them and their hosts"
    return f"{slow_ranks(report)}, so look at {where}, not at the links: "


def slow_ranks(report: LinksReport) -> str:
    """Which ranks are slow themselves, as a sentence without its end; empty if none is."""
    if not report.suspects:
        return ""
    *first, last = map(str, report.suspects)
    if not first:
        return f"Rank {last} is slow with all others"
    return f"Ranks {', '.join(first)} and {last} are slow with all others"


def _title(report: LinksReport, sign: Signs) -> str:
    world, spec = report.spec.world, report.spec
    sizes = f"{short_size(spec.small)} and {short_size(spec.large)}"
    parts = ("links", plural(world.world_size, "rank"), world.backend, world.device, sizes)
    return f" {sign.dot} ".join(parts)


def _legend(report: LinksReport, console: Console) -> Text:
    step = block_size(report.spec.world.world_size)
    blocks = f"Each figure is the worst of {step} by {step} ranks. " if step > 1 else ""
    slow = f"{SLOW} slow: beyond {report.spec.factor:g} times the median. " if report.slow else ""
    wrong = "x wrong elements. " if any(link.wrong for link in report.links) else ""
    shaded = console.color_system is not None and not console.no_color
    dark = "The darker, the slower." if shaded else ""
    return Text(f"{blocks}{slow}{wrong}{dark}".rstrip(), style=colours.QUIET)


def _worst(report: LinksReport, console: Console) -> Iterator[RenderableType]:
    """The slow links by name; where maps have no room or only blocks, the slowest in any case."""
    mapped = console.width >= NARROW and block_size(report.spec.world.world_size) == 1
    named = sorted(report.slow, key=_badness(report), reverse=True)
    title = "Slow links"
    if not named and not mapped:
        named = sorted(report.links, key=_badness(report), reverse=True)[:3]
        title = "The slowest links" + ", none of them slow" * (not report.suspects)
    if not named:
        return
    yield Text()
    yield heading(title)
    sign = signs(console)
    yield from (Text(_line(link, sign)) for link in named[:FEW])
    if len(named) > FEW:
        more = f"{sign.more} {len(named) - FEW:,} more; --format json has them all"
        yield Text(more, style=colours.QUIET)


def _badness(report: LinksReport) -> Callable[[Link], float]:
    """How many times the median a link's latency is, or the median its bandwidth."""

    def times(link: Link) -> float:
        slow = link.latency / report.latency if report.latency > 0 else 0.0
        return max(slow, report.bandwidth / link.bandwidth if link.bandwidth > 0 else slow)

    return times


def _line(link: Link, sign: Signs) -> str:
    lead = f"{marks(sign).named} " if link.slow else ""
    figures = f"{duration(link.latency)}, {rate_text(link.bandwidth)}"
    why = f" ({spelled(link.slow, sign)})" if link.slow else ""
    return f"{lead}{link.src} to {link.dst}: {figures}{why}"


def _below(report: LinksReport, sign: Signs) -> Iterator[Text]:
    """Notes, time and versions."""
    yield from (Text(spelled(note, sign)) for note in report.notes)
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    told = "\n".join(filter(None, [duration(report.seconds), versions]))
    yield Text(told, style=colours.QUIET)
