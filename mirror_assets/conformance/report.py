"""What a verification found: findings, what was looked at, and how the table grew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from mirror_assets.conformance.rulebook import Profile, family_name, rulebook
from mirror_assets.findings import Finding, Severity


class Growth(NamedTuple):
    """The live files at a version."""

    version: int
    files: int
    size_bytes: int
    #: None where statistics do not count them all
    rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderVerdict:
    """What an independent reader saw at a version, and whether it is what it should see."""

    reader: str
    version: int | None
    #: agrees, differs, refuses, or a named exception
    outcome: str
    detail: str
    rows: int | None = None
    files: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The outcome of one verification."""

    location: str
    profile: Profile
    table: str | None = None
    findings: tuple[Finding, ...] = ()
    #: what was asked
    rules: tuple[str, ...] = ()
    files: int = 0
    versions: int = 0
    #: rules with more findings than are told, and how many more
    more: Mapping[str, int] = field(default_factory=dict)
    growth: tuple[Growth, ...] = ()
    #: those of the newest version
    features: frozenset[str] = frozenset()
    #: those of all columns and their parts, and those of partition columns
    types: frozenset[str] = frozenset()
    partitions: frozenset[str] = frozenset()
    readers: tuple[ReaderVerdict, ...] = ()

    @property
    def has_errors(self) -> bool:
        """Whether something must be done."""
        return any(finding.severity is Severity.ERROR for finding in self.findings)

    def by_family(self) -> dict[str, list[Finding]]:
        """The findings by the family of their rule, each family that was asked."""
        found: dict[str, list[Finding]] = {family_name(rule): [] for rule in self.rules}
        for finding in self.findings:
            found.setdefault(family_name(finding.rule), []).append(finding)
        return found

    def counts(self) -> dict[str, int]:
        """Findings by severity."""
        found = Counter(finding.severity for finding in self.findings)
        return {severity.value: found[severity] for severity in Severity}

    def with_findings(self, findings: list[Finding], rules: tuple[str, ...] = ()) -> Report:
        """The same with more findings, of more rules."""
        return replace(
            self,
            findings=(*self.findings, *findings),
            rules=tuple(sorted({*self.rules, *rules})),
        )

    def with_readers(self, verdicts: tuple[ReaderVerdict, ...]) -> Report:
        """The same with what readers said."""
        return replace(self, readers=(*self.readers, *verdicts))

    def as_dict(self) -> dict[str, Any]:
        """The `--json` document."""
        document: dict[str, Any] = {
            "location": self.location,
            "table": self.table,
            "profile": self.profile.value,
            "findings": [finding_document(finding) for finding in self.findings],
            "more_findings": dict(self.more),
            "checked": {
                "rules": len(self.rules),
                "files": self.files,
                "versions": self.versions,
            },
        }
        if self.readers:
            document["readers"] = [
                {name: getattr(verdict, name) for name in ReaderVerdict.__slots__}
                for verdict in self.readers
            ]
        return document


def finding_document(finding: Finding) -> dict[str, Any]:
    """A finding with what its rule says, and where the protocol says it."""
    rule = rulebook().get(finding.rule)
    said = (
        {} if rule is None else {"says": rule.says, "section": rule.section, "source": rule.source}
    )
    return finding.as_dict() | said
