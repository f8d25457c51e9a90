"""What a page shows of a report: findings that are alike as one, and the rules as a map."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from mirror_assets.conformance.report import Report
from mirror_assets.conformance.rulebook import Rule, rulebook
from mirror_assets.findings import Finding, Severity

_WORST_FIRST: Final = {severity: place for place, severity in enumerate(Severity)}
#: what may become of a rule, in words
STATES: Final = {
    "error": "broken",
    "warning": "with warnings",
    "info": "with remarks",
    "kept": "asked, and kept",
    "ours": "held by the way our writers work",
    "unasked": "not asked: not told by a log, or not by this profile",
}
#: messages that one group tells before the others fold away
_TOLD: Final = 3


@dataclass(frozen=True, slots=True)
class Group:
    """The findings of one rule that weigh the same."""

    rule: str
    severity: Severity
    remedy: str
    findings: tuple[Finding, ...]
    #: more of the rule that the report does not hold
    more: int

    @property
    def told(self) -> tuple[Finding, ...]:
        """Those in plain sight."""
        return self.findings[:_TOLD]

    @property
    def folded(self) -> tuple[Finding, ...]:
        """Those behind a click."""
        return self.findings[_TOLD:]


@dataclass(frozen=True, slots=True)
class Cell:
    """One rule on the map."""

    rule: str
    #: one of `STATES`
    state: str
    says: str


@dataclass(frozen=True, slots=True)
class FamilyRow:
    """How the rules of one family fared."""

    name: str
    about: str
    cells: tuple[Cell, ...]
    errors: int
    warnings: int
    infos: int


def groups_of(report: Report) -> list[Group]:
    """The findings, the worst first, in the order in which they were found."""
    alike: dict[tuple[str, Severity], list[Finding]] = {}
    for finding in report.findings:
        alike.setdefault((finding.rule, finding.severity), []).append(finding)
    groups = [
        Group(rule, severity, found[0].remedy or "", tuple(found), report.more.get(rule, 0))
        for (rule, severity), found in alike.items()
    ]
    return sorted(groups, key=lambda group: _WORST_FIRST[group.severity])


def family_rows(report: Report) -> list[FamilyRow]:
    """Every family of the book, each of its rules with what became of it."""
    worst = _worst(report.findings)
    rows: dict[str, list[Rule]] = {}
    for rule in rulebook().values():
        rows.setdefault(rule.family.name, []).append(rule)
    found = report.by_family()
    return [
        FamilyRow(
            name,
            rules[0].family.about,
            tuple(Cell(rule.id, _state(rule, report, worst), rule.says) for rule in rules),
            *(sum(f.severity is severity for f in found.get(name, ())) for severity in Severity),
        )
        for name, rules in rows.items()
    ]


def coverage(rows: Iterable[FamilyRow]) -> dict[str, int]:
    """How many rules there are of each state."""
    states = [cell.state for row in rows for cell in row.cells]
    return {state: states.count(state) for state in STATES}


def _worst(findings: Iterable[Finding]) -> dict[str, Severity]:
    worst: dict[str, Severity] = {}
    for finding in findings:
        known = worst.get(finding.rule, finding.severity)
        worst[finding.rule] = min(known, finding.severity, key=_WORST_FIRST.__getitem__)
    return worst


def _state(rule: Rule, report: Report, worst: Mapping[str, Severity]) -> str:
    looked_at = rule.found_as or rule.id
    if rule.id in worst:
        return worst[rule.id].value
    if looked_at in report.rules and rule.severity(report.profile) is not None:
        return "kept"
    return "ours" if rule.construction else "unasked"
