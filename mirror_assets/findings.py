"""A finding: one thing a rule noticed about a log, with the way out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One named rule, where it was met, what was found, and what to do."""

    rule: str
    severity: Severity
    message: str
    remedy: str = ""
    table: str | None = None
    version: int | None = None
    file: str | None = None
    line: int | None = None

    def as_dict(self) -> dict[str, str | int | None]:
        """The finding as the `--json` document shows it."""
        return asdict(self)


def errors_of(findings: list[Finding]) -> list[Finding]:
    """The findings that forbid going on."""
    return [finding for finding in findings if finding.severity is Severity.ERROR]
