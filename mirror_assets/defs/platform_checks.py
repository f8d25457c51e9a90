"""Checks of what every table stands on.

Dagster reads the annotations of what it runs as objects, so they are not postponed here.
"""

from collections.abc import Mapping
from typing import Final

import dagster as dg

from mirror_assets.defs.access import MirrorAccess
from mirror_assets.defs.findings_tables import facts_metadata, findings_metadata
from mirror_assets.defs.keys import METASTORE, OBJECT_STORE
from mirror_assets.errors import MirrorAssetsError
from mirror_assets.findings import Finding, Severity
from mirror_assets.metastore.breaker_store import read_breakers
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.migrate import SCHEMA_REVISION
from mirror_assets.mirror.breakers import store_of
from mirror_assets.storage.probe import verify_store

_CLOSED: Final = "closed"


@dg.asset_check(
    asset=METASTORE, description="The database answers, and its schema is the one of this code."
)
def schema_revision(access: MirrorAccess) -> dg.AssetCheckResult:
    """`mirror-assets doctor` looks at more."""
    try:
        with access.metastore() as metastore, metastore.read():
            facts = {"schema_revision": SCHEMA_REVISION, "metastore": metastore.url}
    except MirrorAssetsError as error:
        return _result([_as_finding(error)], {})
    return _result([], facts)


@dg.asset_check(asset=OBJECT_STORE, description="No store is left alone because it kept failing.")
def breaker_closed(access: MirrorAccess) -> dg.AssetCheckResult:
    """An open breaker closes by itself once the store answers."""
    try:
        with access.metastore() as metastore:
            breakers = read_breakers(metastore)
    except MirrorAssetsError as error:
        return _result([_as_finding(error)], {})
    findings = [
        Finding(
            rule="MA-405",
            severity=Severity.ERROR,
            message=f"the store {row.store} failed {row.failures} times and is left alone",
            remedy="check that the store runs; it is tried again by itself",
        )
        for row in breakers
        if row.state != _CLOSED
    ]
    return _result(findings, {"stores_that_ever_failed": len(breakers)})


@dg.asset_check(
    asset=OBJECT_STORE,
    description="Each store creates a file only where there is none: two writers never both win.",
)
def store_is_safe(access: MirrorAccess) -> dg.AssetCheckResult:
    """Races each store once, beside the log of its first table."""
    settings = access.settings
    findings: list[Finding] = []
    try:
        with access.metastore() as metastore:
            tables = LogReader(metastore).tables()
        places = {store_of(table.location): table.location for table in reversed(tables)}
        for place in places.values():
            report = verify_store(
                place, settings.store_options(), allowed_roots=settings.allowed_roots, rounds=2
            )
            findings += report.findings
    except MirrorAssetsError as error:
        return _result([_as_finding(error)], {})
    return _result(findings, {"stores": len(places)})


CHECKS: Final = [schema_revision, breaker_closed, store_is_safe]


def _result(findings: list[Finding], facts: Mapping[str, int | float | str]) -> dg.AssetCheckResult:
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    return dg.AssetCheckResult(
        passed=not findings,
        severity=dg.AssetCheckSeverity.ERROR if errors else dg.AssetCheckSeverity.WARN,
        description=findings[0].message if findings else None,
        metadata={**facts_metadata(facts), **findings_metadata(findings)},
    )


def _as_finding(error: MirrorAssetsError) -> Finding:
    return Finding(
        rule=error.code, severity=Severity.ERROR, message=error.message, remedy=error.remedy
    )
