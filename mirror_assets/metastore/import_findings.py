"""The findings of an import: a few of each rule, and how many there were."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from mirror_assets.errors import ImportRefusedError
from mirror_assets.findings import Finding, Severity

#: findings of one rule that are kept; the others are counted
_KEPT: Final = 3


class FindingLog:
    """What was found in one table's log."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._kept: defaultdict[tuple[str, Severity], list[Finding]] = defaultdict(list)
        self._counts: Counter[tuple[str, Severity]] = Counter()

    def add(self, finding: Finding) -> None:
        key = (finding.rule, finding.severity)
        self._counts[key] += 1
        if len(self._kept[key]) < _KEPT:
            self._kept[key].append(replace(finding, table=self._table))

    def take(self, findings: Iterable[Finding]) -> None:
        """Add them all; ImportRefusedError if one of them refuses the import."""
        for finding in findings:
            self.add(finding)
        self.refuse()

    def note(
        self,
        rule: str,
        severity: Severity,
        message: str,
        *,
        version: int | None = None,
        file: str | None = None,
        line: int | None = None,
        remedy: str = "",
    ) -> None:
        self.add(
            Finding(
                rule=rule,
                severity=severity,
                message=message,
                version=version,
                file=file,
                line=line,
                remedy=remedy,
            )
        )

    @property
    def errors(self) -> list[Finding]:
        """Those that refuse the import."""
        return [finding for finding in self.all() if finding.severity is Severity.ERROR]

    def refuse(self) -> None:
        """Raise ImportRefusedError if there is a finding that refuses the import."""
        if errors := self.errors:
            first = errors[0]
            where = "".join(f" ({part})" for part in (first.file,) if part)
            more = f", and {len(errors) - 1} findings more" if len(errors) > 1 else ""
            raise ImportRefusedError(
                f"{first.message}{where}{more}",
                findings=self.all(),
                table=self._table,
                version=first.version,
                rule=first.rule,
                remedy=f"{first.remedy}; nothing was imported" if first.remedy else None,
            )

    def all(self) -> list[Finding]:
        """Errors first, then warnings; a rule that was met more often is closed by its count."""
        found: list[Finding] = []
        for severity in Severity:
            for key, kept in self._kept.items():
                if key[1] is severity:
                    found += kept
                    if more := self._counts[key] - len(kept):
                        message = f"the same {more} times more"
                        found.append(replace(kept[-1], message=message, version=None, line=None))
        return found
