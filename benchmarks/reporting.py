"""Results: a goal, what was measured, and whether the ratio keeps within its bound.

Every subject leaves its results in `.bench/<subject>.json`; `docs/benchmarks.md` shows those of
all subjects between its markers. A quick run leaves the page alone.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from math import log10
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

_SMALL: Final = 0.2
ROOT: Final = Path(__file__).resolve().parents[1]
BEGIN: Final = "<!-- results: written by `make bench` -->"
END: Final = "<!-- end of results -->"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Ours against a peer, a floor or a limit."""

    goal: str
    what: str
    unit: str
    ours: float
    against: str
    theirs: float
    #: of ours / theirs; None: told for comparison, not a goal
    bound: float | None = None
    at_least: bool = False

    @property
    def ratio(self) -> float:
        """Ours over theirs."""
        if self.ours == self.theirs == 0:
            return 0.0
        return self.ours / self.theirs if self.theirs else float("inf")

    @property
    def is_met(self) -> bool | None:
        """None where there is no bound."""
        if self.bound is None:
            return None
        return self.ratio >= self.bound if self.at_least else self.ratio <= self.bound

    def cells(self) -> list[str]:
        """One line of the table."""
        sign = "≥" if self.at_least else "≤"
        return [
            self.goal,
            self.what,
            f"{_number(self.ours)} {self.unit}".strip(),
            f"{_number(self.theirs)} {self.unit} ({self.against})".replace("  ", " "),
            _fraction(self.ratio),
            "" if self.bound is None else f"{sign} {_fraction(self.bound)}",
            {None: "", True: "yes", False: "**no**"}[self.is_met],
        ]


_COLUMNS: Final = ("goal", "what", "ours", "peer, floor or limit", "ratio", "target", "met?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The results of one subject in one run."""

    subject: str
    began: str
    seconds: int
    load_before: float
    load_after: float
    results: Sequence[Result]


def report(subject: str, began: datetime, load_before: float, results: Iterable[Result]) -> Report:
    """Collect the results, which are measured while they are collected."""
    collected = list(results)
    return Report(
        subject=subject,
        began=began.strftime("%Y-%m-%d %H:%M UTC"),
        seconds=round((datetime.now(UTC) - began).total_seconds()),
        load_before=load_before,
        load_after=os.getloadavg()[0],
        results=collected,
    )


def show(report: Report) -> None:
    """Print one subject's table."""
    load = f"load average {report.load_before:.1f} before and {report.load_after:.1f} after"
    title = f"{report.subject}: {report.seconds} s, {load}"
    table = Table(*_COLUMNS, title=title, title_justify="left")
    for result in report.results:
        table.add_row(*(cell.replace("**", "") for cell in result.cells()))
    Console(width=None if os.isatty(1) else 160).print(table)


def save(report: Report, *, quick: bool) -> None:
    """Keep the results as JSON and, unless the run was quick, write the page anew."""
    directory = ROOT / ".bench"
    folder = directory / "quick" if quick else directory
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{report.subject}.json").write_text(json.dumps(asdict(report), indent=2))
    if not quick:
        _write_page(_load(path) for path in sorted(directory.glob("*.json")))


def _load(path: Path) -> Report:
    fields: dict[str, Any] = json.loads(path.read_text())
    return Report(**fields | {"results": [Result(**r) for r in fields["results"]]})


def _write_page(reports: Iterable[Report]) -> None:
    reports = list(reports)
    results = sorted((r for report in reports for r in report.results), key=_order)
    lines = [_line(_COLUMNS), _line("---" for _ in _COLUMNS), *(_line(r.cells()) for r in results)]
    runs = [
        f"{r.subject}: {r.began}, {r.seconds} s, load average {r.load_before:.1f} before and "
        f"{r.load_after:.1f} after."
        for r in reports
    ]
    body = "\n".join([*lines, "", f"Measured on {_machine()}.", "", *(f"- {r}" for r in runs)])
    page = ROOT / "docs" / "benchmarks.md"
    before, _, rest = page.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(f"{before}{BEGIN}\n\n{body}\n\n{END}{after}")


def _machine() -> str:
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    system = f"{platform.system()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} cores with {gigabytes:.0f} GB of memory, {system}"


def _order(result: Result) -> tuple[int, bool]:
    return int(result.goal), result.bound is None


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _number(value: float) -> str:
    if value == 0:
        return "0"
    digits = max(0, 2 - int(log10(max(1, abs(value)))))
    return f"{value:,.{digits}f}"


def _fraction(ratio: float) -> str:
    """Small ratios read better as 1/n."""
    if 0 < ratio < _SMALL:
        return f"1/{1 / ratio:.0f}"
    return f"{ratio:.2f}".rstrip("0").rstrip(".")
