"""What happens by the clock, and the job that runs the checks of all tables."""

from __future__ import annotations

from typing import Any, Final

import dagster as dg

from mirror_assets.defs.keys import KIND_TAG
from mirror_assets.defs.maintenance import cleanup, prune_partitions, reconcile
from mirror_assets.settings import Settings

CONFORMANCE: Final = "conformance"
PLATFORM_CHECKS: Final = "platform_checks"
_RUNNING: Final = dg.DefaultScheduleStatus.RUNNING


def checking_jobs(*, has_tables: bool) -> list[Any]:
    """Jobs over the checks; the one over the tables' logs needs a table."""
    platform = dg.define_asset_job(
        PLATFORM_CHECKS,
        selection=dg.AssetSelection.checks_for_assets(
            ["platform", "metastore"], ["platform", "object_store"]
        ),
        description="Is the metastore as this code expects it, and are the stores safe?",
        executor_def=dg.in_process_executor,
    )
    if not has_tables:
        return [platform]
    conformance = dg.define_asset_job(
        CONFORMANCE,
        selection=dg.AssetSelection.tag(KIND_TAG, "delta_log"),
        description="Every table's log against the protocol, SQL and an independent reader.",
        executor_def=dg.in_process_executor,
    )
    return [platform, conformance]


def schedules(settings: Settings, jobs: list[Any]) -> list[dg.ScheduleDefinition]:
    """By UTC; those that repair or delete only plan, unless the settings say otherwise."""
    acts = settings.apply_repairs
    minutes = {PLATFORM_CHECKS: "5 * * * *", CONFORMANCE: "35 * * * *"}
    found = [
        dg.ScheduleDefinition(
            name=f"{job.name}_hourly",
            job=job,
            cron_schedule=minutes[job.name],
            description=job.description,
            default_status=_RUNNING,
        )
        for job in jobs
    ]
    return [
        *found,
        _op_schedule(
            "reconcile_smart_hourly", reconcile, "20 * * * *", _reconcile("smart", acts=acts)
        ),
        _op_schedule(
            "reconcile_full_nightly", reconcile, "10 3 * * *", _reconcile("full", acts=acts)
        ),
        _op_schedule(
            "cleanup_daily",
            cleanup,
            "40 4 * * *",
            {"ops": {"clean_tables": {"config": {"apply": acts}}}},
        ),
        _op_schedule("prune_partitions_daily", prune_partitions, "50 4 * * *", {}),
    ]


def _reconcile(mode: str, *, acts: bool) -> dict[str, Any]:
    return {"ops": {"reconcile_tables": {"config": {"mode": mode, "apply": acts}}}}


def _op_schedule(
    name: str, job: dg.JobDefinition, cron: str, run_config: dict[str, Any]
) -> dg.ScheduleDefinition:
    return dg.ScheduleDefinition(
        name=name,
        job=job,
        cron_schedule=cron,
        description=job.description,
        run_config=run_config,
        default_status=_RUNNING,
    )
