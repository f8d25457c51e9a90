"""Findings as a person reads them in Dagster: a table, a severity, the way out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import dagster as dg

from mirror_assets.findings import Finding, Severity
from mirror_assets.mirror.log_checks import Checked

#: findings in a table; the rest is counted
_SHOWN: Final = 50
_COLUMNS: Final = ("rule", "version", "message", "remedy", "file", "severity")
_SCHEMA: Final = dg.TableSchema(
    columns=[
        dg.TableColumn("rule", "string", description="`mirror-assets explain RULE` tells more"),
        dg.TableColumn("version", "int", description="of the commit, where there is one"),
        dg.TableColumn("message", "string"),
        dg.TableColumn("remedy", "string", description="the way out"),
        dg.TableColumn("file", "string"),
        dg.TableColumn("severity", "string"),
    ]
)


def check_result(
    asset: dg.AssetKey, name: str, checked: Checked, repair_url: str
) -> dg.AssetCheckResult:
    """A check's outcome: it fails by an error, warns by a warning, and leads to the repair."""
    link = {"repair": dg.MetadataValue.url(repair_url)} if checked.findings else {}
    errors = [f for f in checked.findings if f.severity is Severity.ERROR]
    warnings = [f for f in checked.findings if f.severity is Severity.WARNING]
    return dg.AssetCheckResult(
        asset_key=asset,
        check_name=name,
        passed=not errors and not warnings,
        severity=dg.AssetCheckSeverity.ERROR if errors else dg.AssetCheckSeverity.WARN,
        description=summary_of(checked.findings),
        metadata={**facts_metadata(checked.facts), **findings_metadata(checked.findings), **link},
    )


def summary_of(findings: Sequence[Finding]) -> str:
    """One line: the first thing that does not hold."""
    if not findings:
        return "nothing was found"
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return f"{findings[0].rule}: {findings[0].message}{more}"


def findings_metadata(findings: Sequence[Finding]) -> dict[str, dg.MetadataValue]:
    """The table of findings, their number, and the remedy of the first."""
    records = [
        dg.TableRecord(
            {
                column: _cell(value)
                for column, value in finding.as_dict().items()
                if column in _COLUMNS
            }
        )
        for finding in findings[:_SHOWN]
    ]
    metadata: dict[str, dg.MetadataValue] = {"findings": dg.MetadataValue.int(len(findings))}
    if records:
        metadata["what_was_found"] = dg.MetadataValue.table(records=records, schema=_SCHEMA)
    remedies = [finding.remedy for finding in findings if finding.remedy]
    if remedies:
        metadata["remedy"] = dg.MetadataValue.text(remedies[0])
    return metadata


def facts_metadata(facts: Mapping[str, int | float | str]) -> dict[str, dg.MetadataValue]:
    """Numbers as numbers, so that they are plotted."""
    found: dict[str, dg.MetadataValue] = {}
    for name, value in facts.items():
        match value:
            case int():
                found[name] = dg.MetadataValue.int(value)
            case float():
                found[name] = dg.MetadataValue.float(value)
            case str():
                found[name] = dg.MetadataValue.text(value)
    return found


def table_metadata(rows: Sequence[Mapping[str, str | int | None]]) -> dg.MetadataValue:
    """Rows with the same columns as a table."""
    records = [dg.TableRecord({name: _cell(value) for name, value in row.items()}) for row in rows]
    return dg.MetadataValue.table(records=records)


def _cell(value: str | int | None) -> str | int:
    return value if isinstance(value, int) else str(value or "")  # a plain text, of an enum too
