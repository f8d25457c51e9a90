"""Checks of what every table stands on; where all hold, they leave a sign of life.

Dagster reads the annotations of what it runs as objects, so they are not postponed here.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import dagster as dg
from dagster._core.definitions.data_version import DATA_VERSION_TAG

from mirror_assets.defs.access import MirrorAccess
from mirror_assets.defs.findings_tables import facts_metadata, findings_metadata
from mirror_assets.defs.keys import METASTORE, OBJECT_STORE
from mirror_assets.errors import MirrorAssetsError
from mirror_assets.findings import Finding, Severity
from mirror_assets.metastore.breaker_store import read_breakers
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.migrate import SCHEMA_REVISION
from mirror_assets.metastore.mirror_state import read_mirror_states
from mirror_assets.mirror.breakers import store_of
from mirror_assets.settings import Settings
from mirror_assets.storage.probe import verify_store

BREAKER: Final = "breaker_closed"
SAFE: Final = "store_is_safe"
_CLOSED: Final = "closed"
_WELL: Final = "well"
_Facts = Mapping[str, int | float | str]


@dg.asset_check(
    asset=METASTORE, description="The database answers, and its schema is the one of this code."
)
def schema_revision(
    context: dg.AssetCheckExecutionContext, access: MirrorAccess
) -> dg.AssetCheckResult:
    """`mirror-assets doctor` looks at more."""
    try:
        with access.metastore() as metastore:
            states = read_mirror_states(metastore, percentiles=False)
            facts = {"schema_revision": SCHEMA_REVISION, "metastore": metastore.url}
    except MirrorAssetsError as error:
        return dg.AssetCheckResult(**_outcome([_as_finding(error)], {}))
    waiting = sum(state.lag_versions for state in states)
    _is_well(context, METASTORE, {"tables": len(states), "versions_waiting": waiting})
    return dg.AssetCheckResult(**_outcome([], facts))


@dg.multi_asset_check(
    name="object_store_checks",
    specs=[
        dg.AssetCheckSpec(
            BREAKER,
            asset=OBJECT_STORE,
            description="No store is left alone because it kept failing.",
        ),
        dg.AssetCheckSpec(
            SAFE,
            asset=OBJECT_STORE,
            description=(
                "Each store creates a file only where there is none: two writers never both win."
            ),
        ),
    ],
    can_subset=True,
)
def object_store_checks(
    context: dg.AssetCheckExecutionContext, access: MirrorAccess
) -> Iterator[dg.AssetCheckResult]:
    """One after the other, so that a sign of life stands for both."""
    chosen = {key.name for key in context.selected_asset_check_keys}
    asked = {name: ask for name, ask in _STORE_CHECKS.items() if name in chosen}
    outcomes = {}
    for name, ask in asked.items():
        try:
            with access.metastore() as metastore:
                outcomes[name] = _outcome(*ask(metastore, access.settings))
        except MirrorAssetsError as error:
            outcomes[name] = _outcome([_as_finding(error)], {})
    if len(outcomes) == len(_STORE_CHECKS) and all(o["passed"] for o in outcomes.values()):
        _is_well(context, OBJECT_STORE, {})
    for name, outcome in outcomes.items():
        yield dg.AssetCheckResult(asset_key=OBJECT_STORE, check_name=name, **outcome)


def _breaker_closed(metastore: Metastore, settings: Settings) -> tuple[list[Finding], _Facts]:
    """An open breaker closes by itself once the store answers."""
    del settings
    breakers = read_breakers(metastore)
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
    return findings, {"stores_that_ever_failed": len(breakers)}


def _store_is_safe(metastore: Metastore, settings: Settings) -> tuple[list[Finding], _Facts]:
    """Race each store once, beside the log of its first table."""
    tables = LogReader(metastore).tables()
    places = {store_of(table.location): table.location for table in reversed(tables)}
    findings: list[Finding] = []
    for place in places.values():
        report = verify_store(
            place, settings.store_options(), allowed_roots=settings.allowed_roots, rounds=2
        )
        findings += report.findings
    return findings, {"stores": len(places)}


_STORE_CHECKS: Final = {BREAKER: _breaker_closed, SAFE: _store_is_safe}
CHECKS: Final = [schema_revision, object_store_checks]


def _outcome(findings: list[Finding], facts: _Facts) -> dict[str, Any]:
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    return {
        "passed": not findings,
        "severity": dg.AssetCheckSeverity.ERROR if errors else dg.AssetCheckSeverity.WARN,
        "description": findings[0].message if findings else None,
        "metadata": {**facts_metadata(facts), **findings_metadata(findings)},
    }


def _is_well(context: dg.AssetCheckExecutionContext, key: dg.AssetKey, facts: _Facts) -> None:
    """Turn an asset that nobody materializes green; its data are never new to what is below it."""
    tags = {DATA_VERSION_TAG: _WELL}
    sign = dg.AssetMaterialization(key, metadata=facts_metadata(facts), tags=tags)
    context.op_execution_context.log_event(sign)


def _as_finding(error: MirrorAssetsError) -> Finding:
    return Finding(
        rule=error.code, severity=Severity.ERROR, message=error.message, remedy=error.remedy
    )
