"""The report as one page of HTML that needs nothing beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

from jinja2 import Environment, FunctionLoader, StrictUndefined

from mirror_assets.conformance.report import Growth, ReaderVerdict, Report
from mirror_assets.conformance.rulebook import families, rulebook
from mirror_assets.findings import Severity

_WIDTH: Final = 720
_HEIGHT: Final = 160
_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")
_THOUSAND: Final = 1000
_WORST_FIRST: Final = {severity: place for place, severity in enumerate(Severity)}


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


@dataclass(frozen=True, slots=True)
class FamilyRow:
    """How the rules of one family fared."""

    name: str
    about: str
    asked: int
    errors: int
    warnings: int
    infos: int


def html_page(report: Report, *, made_at: str) -> str:
    """The page; `made_at` is a time for the reader."""
    return render(
        "report.html.j2",
        made_at=made_at,
        title=report.table or report.location.rstrip("/").rpartition("/")[2],
        counts=report.counts(),
        families=list(_family_rows(report)),
        **parts_of(report),
    )


def parts_of(report: Report) -> dict[str, Any]:
    """What the parts of a page show of a report."""
    return {
        "report": report,
        "findings": sorted(report.findings, key=lambda finding: _WORST_FIRST[finding.severity]),
        "curves": _curves(report.growth),
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


def _family_rows(report: Report) -> list[FamilyRow]:
    book, found = families(), report.by_family()
    rows = []
    for name, findings in found.items():
        counts = [sum(f.severity is severity for f in findings) for severity in Severity]
        about = book[name].about if name in book else "the state of the mirror"
        asked = sum(rule.rpartition("-")[0] == name for rule in report.rules)
        rows.append(FamilyRow(name, about, asked, *counts))
    return rows


def _matrix(verdicts: Sequence[ReaderVerdict]) -> dict[int | None, dict[str, ReaderVerdict]]:
    """Versions down, readers across."""
    found: dict[int | None, dict[str, ReaderVerdict]] = {}
    for verdict in verdicts:
        found.setdefault(verdict.version, {})[verdict.reader] = verdict
    return found


def _curves(growth: Sequence[Growth]) -> list[Curve]:
    if len(growth) < 2:  # noqa: PLR2004 - a line has two ends
        return []
    files = [point.files for point in growth]
    sizes = [point.size_bytes for point in growth]
    versions = [point.version for point in growth]
    return [
        _curve("live files", versions, files, f"{max(files):,}"),
        _curve("bytes of live files", versions, sizes, in_units(max(sizes))),
    ]


def _curve(title: str, versions: Sequence[int], values: Sequence[int], largest: str) -> Curve:
    width, top = max(versions[-1] - versions[0], 1), max(*values, 1)
    points = [
        f"{(version - versions[0]) / width * _WIDTH:.1f},{_HEIGHT - value / top * _HEIGHT:.1f}"
        for version, value in zip(versions, values, strict=True)
    ]
    area = [f"0,{_HEIGHT}", *points, f"{_WIDTH},{_HEIGHT}"]
    return Curve(title, " ".join(points), " ".join(area), largest, versions[0], versions[-1])
