"""All definitions, built so that they load whatever the metastore says."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from mirror_assets.defs.access import MirrorAccess
from mirror_assets.defs.alert_sensors import alerts_sensor, run_failure
from mirror_assets.defs.first_checks import first_checks_sensor
from mirror_assets.defs.follow import follow
from mirror_assets.defs.keys import TableKeys
from mirror_assets.defs.maintenance import JOBS
from mirror_assets.defs.platform import platform_assets
from mirror_assets.defs.platform_checks import CHECKS
from mirror_assets.defs.registry import Registry, read_registry
from mirror_assets.defs.registry_sensor import registry_sensor
from mirror_assets.defs.schedules import checking_jobs, schedules
from mirror_assets.defs.spark_jobs import JOBS as SPARK_JOBS
from mirror_assets.defs.spark_jobs import spark_resource
from mirror_assets.defs.sql_versions import sql_versions_sensor
from mirror_assets.defs.tables import table_assets


@dataclass(slots=True)
class BuiltTables:
    """The assets of all tables that could be built, and why the others could not."""

    assets: list[Any] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)


def build_definitions(registry: Registry | None = None) -> dg.Definitions:
    """Everything that Dagster shows; a table that cannot be shown is left out and named."""
    registry = registry or read_registry()
    tables = build_tables(registry)
    checking = checking_jobs(has_tables=bool(tables.assets))
    return dg.Definitions(
        assets=[*platform_assets(registry.settings), *tables.assets],
        asset_checks=CHECKS,
        jobs=[follow, *checking, *JOBS, *SPARK_JOBS],
        schedules=schedules(registry.settings, checking),
        sensors=[
            sql_versions_sensor(registry),
            registry_sensor(tables.broken, registry.problem),
            first_checks_sensor(checking),
            alerts_sensor(registry.settings),
            run_failure,
        ],
        resources={"access": MirrorAccess(), "pyspark": spark_resource(registry.settings)},
        executor=dg.in_process_executor,
    )


def build_tables(registry: Registry) -> BuiltTables:
    """Each table by itself: a broken one must not take the whole location down."""
    built = BuiltTables()
    taken: dict[str, str] = {}
    for table in registry.tables:
        name = TableKeys(table.name).commits.to_python_identifier()
        if name in taken:
            built.broken[table.name] = f"Dagster cannot tell it from {taken[name]}"
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", dg.BetaWarning)  # backfill policies; known
                built.assets += table_assets(table, registry.settings)
        except Exception as error:  # noqa: BLE001 - whatever Dagster refuses
            built.broken[table.name] = f"{type(error).__name__}: {error}"
        else:
            taken[name] = table.name
    return built
