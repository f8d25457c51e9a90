"""What checks found becomes findings: a profile weighs each, and of many alike some are told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from mirror_assets.conformance.checks import Found
from mirror_assets.conformance.rulebook import Profile, rulebook
from mirror_assets.findings import Finding

#: findings of one rule that are told; the others are counted
_SHOWN: Final = 100


@dataclass
class Weighing:
    """The findings of one verification, as they come."""

    profile: Profile
    table: str | None
    findings: list[Finding] = field(default_factory=list)
    _told: Counter[str] = field(default_factory=Counter)

    def tell(self, founds: Iterable[Found]) -> None:
        """Take what checks found; a breach that the profile does not mind is dropped."""
        for found in founds:
            self._weigh(found)

    def more(self) -> dict[str, int]:
        """Rules with more findings than are told, and how many more."""
        return {rule: count - _SHOWN for rule, count in self._told.items() if count > _SHOWN}

    def _weigh(self, found: Found) -> None:
        rule = rulebook()[found.rule]
        severity = rule.severity(self.profile, found.at_most)
        if severity is None:
            return
        self._told[found.rule] += 1
        if self._told[found.rule] > _SHOWN:
            return
        self.findings.append(
            Finding(
                rule=found.rule,
                severity=severity,
                message=found.message,
                remedy=rule.remedy,
                table=self.table,
                version=found.version,
                file=found.file,
                line=found.line,
            )
        )
