"""The assets of one table: commits, checkpoints, the log with its checks, and its lag.

Dagster reads the annotations of what it runs as objects, so they are not postponed here.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final
from urllib.parse import quote

import dagster as dg
import orjson

from mirror_assets.defs.access import MirrorAccess
from mirror_assets.defs.findings_tables import check_result
from mirror_assets.defs.keys import METASTORE, OBJECT_STORE, TABLE_TAG, TableKeys
from mirror_assets.defs.publishing import publish_checkpoints, publish_commits
from mirror_assets.defs.registry import RegisteredTable
from mirror_assets.delta.log_paths import LOG_DIRECTORY
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.mirror.log_checks import CHECKS, check_log, describe, open_log
from mirror_assets.settings import Settings
from mirror_assets.storage.reader_options import reader_options

#: where a person starts the job, filled in but for their consent
_RECONCILE_PAGE: Final = "locations/mirror_assets.definitions/jobs/reconcile/playground/setup"


def table_assets(table: RegisteredTable, settings: Settings) -> list[Any]:
    """Four assets in one group; raises what Dagster raises for names that it does not take."""
    keys = TableKeys(table.name)
    return [
        _commits(table, keys, settings),
        _checkpoints(table, keys, settings),
        _delta_log(table, keys, settings),
        _mirror_lag(table, keys, settings),
    ]


def _commits(table: RegisteredTable, keys: TableKeys, settings: Settings) -> dg.AssetsDefinition:
    @dg.asset(
        key=keys.commits,
        deps=[METASTORE, OBJECT_STORE],
        partitions_def=dg.DynamicPartitionsDefinition(name=keys.versions),
        backfill_policy=dg.BackfillPolicy.single_run(),
        kinds={"deltalake", "json"},
        pool="object_store",
        description=(
            f"Commit files of `{table.name}`, one partition per version, at "
            f"`{table.location}/{LOG_DIRECTORY}`.\n\nA partition that is materialized by hand "
            "publishes whatever is missing up to it, in order; what is published stays as it is."
        ),
        group_name=keys.group,
        owners=list(settings.table_owners),
        tags=keys.tags("commits"),
    )
    def commits(
        context: dg.AssetExecutionContext, access: MirrorAccess
    ) -> dg.MaterializeResult[Any]:
        publish_commits(context, access, keys)
        return dg.MaterializeResult()

    return commits


def _checkpoints(
    table: RegisteredTable, keys: TableKeys, settings: Settings
) -> dg.AssetsDefinition:
    @dg.asset(
        key=keys.checkpoints,
        deps=[dg.AssetDep(keys.commits, partition_mapping=dg.LastPartitionMapping())],
        partitions_def=dg.DynamicPartitionsDefinition(name=keys.checkpoint_versions),
        backfill_policy=dg.BackfillPolicy.single_run(),
        kinds={"deltalake", "parquet"},
        pool="checkpoint",
        description=(
            f"Checkpoints of `{table.name}`: the state at a version as Parquet, so that readers "
            "need not replay every commit. Built when due, and verified before anything points "
            "at them."
        ),
        group_name=keys.group,
        owners=list(settings.table_owners),
        tags=keys.tags("checkpoints"),
    )
    def checkpoints(
        context: dg.AssetExecutionContext, access: MirrorAccess
    ) -> dg.MaterializeResult[Any]:
        publish_checkpoints(context, access, keys)
        return dg.MaterializeResult()

    return checkpoints


def _delta_log(table: RegisteredTable, keys: TableKeys, settings: Settings) -> dg.AssetsDefinition:
    spec = dg.AssetSpec(
        keys.delta_log,
        deps=[keys.commits, keys.checkpoints],
        kinds={"deltalake"},
        description=(
            f"The log of `{table.name}` as a reader finds it at `{table.location}`. Materializing "
            "it runs the checks below: the log against SQL, and an independent reader."
        ),
        freshness_policy=dg.FreshnessPolicy.time_window(
            warn_window=timedelta(hours=3), fail_window=timedelta(hours=26)
        ),
        **_look(keys, "delta_log", settings),
    )

    @dg.multi_asset(
        name=f"{keys.delta_log.to_python_identifier()}",
        specs=[spec],
        check_specs=[
            dg.AssetCheckSpec(name, asset=keys.delta_log, description=describe(name))
            for name in CHECKS
        ],
        can_subset=True,
        op_tags={TABLE_TAG: table.name},
    )
    def delta_log(
        context: dg.AssetExecutionContext, access: MirrorAccess
    ) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
        chosen = {key.name for key in context.selected_asset_check_keys}
        with access.mirror() as mirror:
            record = LogReader(mirror.metastore).table(table.name)
            options = reader_options(access.settings.store_options(), record.location)
            log = open_log(
                mirror.metastore, mirror.open_store(record.location), table.name, options
            )
            checked = check_log(log, [name for name in CHECKS if name in chosen])
        if keys.delta_log in context.selected_asset_keys:
            yield dg.MaterializeResult(
                asset_key=keys.delta_log,
                metadata={
                    "mirrored_version": record.mirrored_version,
                    "head_version": record.head_version,
                    "table_files": record.num_files,
                    "table_bytes": record.size_bytes,
                    "findings": sum(len(outcome.findings) for outcome in checked.values()),
                },
            )
        repair_url = reconcile_url(access.settings.dagster_url, table.name)
        for name, outcome in checked.items():
            yield check_result(keys.delta_log, name, outcome, repair_url)

    return delta_log


def _mirror_lag(table: RegisteredTable, keys: TableKeys, settings: Settings) -> dg.AssetSpec:
    objective = settings.objective_of(table.name)
    warn, fail = freshness_windows(settings, objective)
    return dg.AssetSpec(
        keys.mirror_lag,
        deps=[keys.commits],
        kinds={"sql"},
        description=(
            f"How far the log of `{table.name}` is behind SQL. A heartbeat is recorded only while "
            f"the lag is below {objective:g} s: without one for {_words(warn)} it warns, for "
            f"{_words(fail)} it fails, be it that the mirror is late or that nobody mirrors. "
            "A quiet table is fresh."
        ),
        freshness_policy=dg.FreshnessPolicy.time_window(warn_window=warn, fail_window=fail),
        metadata={"lag_objective_seconds": objective},
        **_look(keys, "mirror_lag", settings),
    )


def reconcile_url(dagster_url: str, table: str) -> str:
    """The launchpad of `reconcile` for one table: a plan, until `apply` is said to be true."""
    name = orjson.dumps(table).decode()
    lines = ["ops:", "  reconcile_tables:", "    config:"]
    lines += [f"      {line}" for line in (f"tables: [{name}]", "mode: full", "apply: false")]
    return f"{dagster_url}/{_RECONCILE_PAGE}?config={quote(chr(10).join(lines))}"


def freshness_windows(settings: Settings, objective: float) -> tuple[timedelta, timedelta]:
    """When a missing heartbeat warns and fails; never sooner than lag itself could tell."""
    warn = max(settings.freshness_warn, 2 * objective)
    fail = max(settings.freshness_fail, 5 * objective, warn + 1)
    return timedelta(seconds=warn), timedelta(seconds=fail)


def _words(window: timedelta) -> str:
    seconds = window.total_seconds()
    return f"{seconds:g} seconds" if seconds % 60 else f"{seconds / 60:g} minutes"


def _look(keys: TableKeys, kind: str, settings: Settings) -> dict[str, Any]:
    return {
        "group_name": keys.group,
        "owners": list(settings.table_owners),
        "tags": keys.tags(kind),
    }
