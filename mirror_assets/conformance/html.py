"""The report as one page of HTML that needs nothing beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

from jinja2 import Environment, FunctionLoader, StrictUndefined

from mirror_assets.conformance.page_parts import STATES, coverage, family_rows, groups_of
from mirror_assets.conformance.report import Growth, ReaderVerdict, Report
from mirror_assets.conformance.rulebook import rulebook
from mirror_assets.findings import Severity

_WIDTH: Final = 720
_HEIGHT: Final = 160
_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")
_THOUSAND: Final = 1000


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of a chart, in its own scale."""

    title: str
    points: str
    #: the same, closed along the bottom
    area: str
    largest: str
    first: int
    last: int
    #: where versions with errors are
    marks: tuple[str, ...]


def html_page(report: Report, *, made_at: str) -> str:
    """The page; `made_at` is a time for the reader."""
    rows = family_rows(report)
    return render(
        "report.html.j2",
        made_at=made_at,
        title=report.table or report.location.rstrip("/").rpartition("/")[2],
        counts=report.counts(),
        families=rows,
        coverage=coverage(rows),
        states=STATES,
        broken=len({f.rule for f in report.findings if f.severity is Severity.ERROR}),
        **parts_of(report),
    )


def parts_of(report: Report) -> dict[str, Any]:
    """What the parts of a page show of a report."""
    return {
        "report": report,
        "groups": groups_of(report),
        "curves": _curves(report.growth, _broken_versions(report)),
        "matrix": _matrix(report.readers),
    }


def render(template: str, **values: Any) -> str:
    """A page from a template of this package; every value is escaped."""
    page = _environment().get_template(template)
    return page.render(rules=rulebook(), width=_WIDTH, height=_HEIGHT, **values)


def in_units(count: int) -> str:
    """A number of bytes for people."""
    value, unit = float(count), 0
    while value >= _THOUSAND and unit < len(_UNITS) - 1:
        value, unit = value / _THOUSAND, unit + 1
    return f"{value:.3g} {_UNITS[unit]}"


@cache
def _environment() -> Environment:
    folder = resources.files(__package__)
    return Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        loader=FunctionLoader(lambda name: folder.joinpath(name).read_text("utf-8")),
    )


def _broken_versions(report: Report) -> set[int]:
    errors = (f.version for f in report.findings if f.severity is Severity.ERROR)
    return {version for version in errors if version is not None}


def _matrix(verdicts: Sequence[ReaderVerdict]) -> dict[int | None, dict[str, ReaderVerdict]]:
    """Versions down, readers across."""
    found: dict[int | None, dict[str, ReaderVerdict]] = {}
    for verdict in verdicts:
        found.setdefault(verdict.version, {})[verdict.reader] = verdict
    return found


def _curves(growth: Sequence[Growth], broken: set[int]) -> list[Curve]:
    if len(growth) < 2:  # noqa: PLR2004 - a line has two ends
        return []
    files = [point.files for point in growth]
    sizes = [point.size_bytes for point in growth]
    versions = [point.version for point in growth]
    span = range(versions[0], versions[-1] + 1)
    marks = tuple(f"{_across(version, span):.1f}" for version in sorted(broken & set(span)))
    return [
        _curve("live files", versions, files, f"{max(files):,}", marks),
        _curve("bytes of live files", versions, sizes, in_units(max(sizes)), marks),
    ]


def _curve(
    title: str,
    versions: Sequence[int],
    values: Sequence[int],
    largest: str,
    marks: tuple[str, ...],
) -> Curve:
    first, last, top = versions[0], versions[-1], max(*values, 1)
    span = range(first, last + 1)
    points = [
        f"{_across(version, span):.1f},{_HEIGHT - value / top * _HEIGHT:.1f}"
        for version, value in zip(versions, values, strict=True)
    ]
    area = [f"0,{_HEIGHT}", *points, f"{_WIDTH},{_HEIGHT}"]
    return Curve(title, " ".join(points), " ".join(area), largest, first, last, marks)


def _across(version: int, span: range) -> float:
    return (version - span.start) / max(len(span) - 1, 1) * _WIDTH
