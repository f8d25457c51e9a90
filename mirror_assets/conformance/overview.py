"""All tables on one page: how each stands in the mirror, and what its log looks like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mirror_assets.conformance.html import in_units, parts_of, render
from mirror_assets.conformance.report import Report
from mirror_assets.errors import MirrorAssetsError
from mirror_assets.metastore.mirror_state import MirrorState

_NOTHING: Final = {"error": 0, "warning": 0, "info": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One table: its mirror, and what verifying its log brought, or why that failed."""

    mirror: MirrorState
    location: str
    num_files: int
    size_bytes: int
    report: Report | None = None
    error: MirrorAssetsError | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Findings by severity."""
        return dict(_NOTHING) if self.report is None else self.report.counts()

    @property
    def is_well(self) -> bool:
        """Whether nothing needs to be done about the log."""
        return self.report is not None and not self.report.has_errors


def totals(standings: Sequence[Standing]) -> dict[str, int]:
    """What the page says first."""
    found: Counter[str] = Counter(_NOTHING)
    for standing in standings:
        found.update(standing.counts)
    return {
        "tables": len(standings),
        "failed": sum(standing.error is not None for standing in standings),
        **found,
        "behind": sum(standing.mirror.lag_versions > 0 for standing in standings),
        "stopped": sum(standing.mirror.is_stopped for standing in standings),
    }


def overview_page(standings: Sequence[Standing], *, metastore: str, made_at: str) -> str:
    """The page; `metastore` names where the tables are registered, without secrets."""
    return render(
        "overview.html.j2",
        metastore=metastore,
        made_at=made_at,
        totals=totals(standings),
        tables=[
            (standing, in_units(standing.size_bytes), standing.report and parts_of(standing.report))
            for standing in standings
        ],
    )
