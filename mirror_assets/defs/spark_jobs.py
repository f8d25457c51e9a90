"""Bulk work by Spark: the jobs that `spark-submit` knows, each as a job of Dagster.

They run in the run's own process, where a session starts when a run asks for it and not before, or,
with the setting `spark_submit`, by that command on the cluster that `spark_master` names. Dagster
reads the annotations of what it runs as objects, so they are not postponed here.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field

from mirror_assets.defs.access import MirrorAccess
from mirror_assets.defs.findings_tables import facts_metadata, table_metadata
from mirror_assets.defs.publishing import as_failure
from mirror_assets.defs.spark_submit import submit
from mirror_assets.defs.submitted.spark_job import MAINS
from mirror_assets.errors import MirrorAssetsError
from mirror_assets.pipeline.session import SparkOptions, open_session, settings_of
from mirror_assets.settings import Settings

#: rows of a table on the run's page
_SHOWN: Final = 200


class SparkTables(dg.Config):
    """Which tables."""

    tables: list[str] = Field(default=[], description="names; none given: all that need it")


class SparkReconcile(SparkTables):
    """How closely to look, and whether to repair."""

    mode: Literal["incremental", "smart", "full"] = Field(
        default="full", description="what is new, the whole listing, or every byte"
    )
    apply: bool = Field(default=False, description="make the repairs that are provably safe")


class SparkPlaces(dg.Config):
    """Which tables, and where."""

    places: dict[str, str] = Field(description="by table name, a path or URI")


class SparkImport(SparkPlaces):
    """What to take over."""

    dry_run: bool = Field(default=True, description="look, and write nothing")
    history: Literal["full", "checkpoint"] = Field(
        default="full", description="all commits, or those since the newest checkpoint"
    )


def spark_resource(settings: Settings) -> LazyPySparkResource:
    """Of the master that the settings name; nothing is started."""
    options = SparkOptions(master=settings.spark_master)
    return LazyPySparkResource(
        spark_config={"spark.master": settings.spark_master, **settings_of(options)}
    )


@dg.op(description="Builds checkpoints of many tables side by side, a Spark task each.")
def build_checkpoints_by_spark(
    context: dg.OpExecutionContext,
    config: SparkTables,
    access: MirrorAccess,
    pyspark: LazyPySparkResource,
) -> None:
    """Of one table, the sidecars of a V2 checkpoint are the tasks."""
    _run(context, access.settings, pyspark, "checkpoints", config.tables)


@dg.op(description="Publishes what is pending, tables side by side.")
def publish_by_spark(
    context: dg.OpExecutionContext,
    config: SparkTables,
    access: MirrorAccess,
    pyspark: LazyPySparkResource,
) -> None:
    """For a backlog that is too long for one follower."""
    _run(context, access.settings, pyspark, "backfill", config.tables)


@dg.op(description="Compares what an independent reader sees with SQL, tables side by side.")
def compare_by_spark(
    context: dg.OpExecutionContext,
    config: SparkTables,
    access: MirrorAccess,
    pyspark: LazyPySparkResource,
) -> None:
    """The check `state_matches_sql`, for many tables."""
    _run(context, access.settings, pyspark, "compare", config.tables)


@dg.op(description="Compares logs with SQL, and repairs what is provably safe, side by side.")
def reconcile_by_spark(
    context: dg.OpExecutionContext,
    config: SparkReconcile,
    access: MirrorAccess,
    pyspark: LazyPySparkResource,
) -> None:
    """The job `reconcile`, for logs with many files."""
    words = ["--mode", config.mode, *(["--apply"] if config.apply else []), *config.tables]
    _run(context, access.settings, pyspark, "reconcile", words)


@dg.op(description="Publishes whole logs from SQL at empty places, side by side.")
def rebuild_by_spark(
    context: dg.OpExecutionContext,
    config: SparkPlaces,
    access: MirrorAccess,
    pyspark: LazyPySparkResource,
) -> None:
    """The job `rebuild`, for many tables."""
    _run(context, access.settings, pyspark, "rebuild", _pairs(config.places))


@dg.op(description="Takes existing Delta tables over, side by side; looks first.")
def import_by_spark(
    context: dg.OpExecutionContext,
    config: SparkImport,
    access: MirrorAccess,
    pyspark: LazyPySparkResource,
) -> None:
    """With `dry_run`, the default, nothing is written."""
    options = ["--history", config.history, *(["--dry-run"] if config.dry_run else [])]
    words = [*options, *_pairs(config.places)]
    _run(context, access.settings, pyspark, "imports", words)


@dg.job(description="Checkpoints of many tables by Spark; small ones are built beside publishing.")
def spark_checkpoints() -> None:
    """One op."""
    build_checkpoints_by_spark()


@dg.job(description="Publish a long backlog of many tables by Spark.")
def spark_backfill() -> None:
    """One op."""
    publish_by_spark()


@dg.job(description="Compare many tables, as an independent reader sees them, with SQL by Spark.")
def spark_compare() -> None:
    """One op."""
    compare_by_spark()


@dg.job(description="Compare many logs with SQL by Spark; with `apply`, repair what is safe.")
def spark_reconcile() -> None:
    """One op."""
    reconcile_by_spark()


@dg.job(description="Publish the logs of many tables at empty places by Spark (disaster drill).")
def spark_rebuild() -> None:
    """One op."""
    rebuild_by_spark()


@dg.job(description="Take many Delta tables over by Spark; a dry run unless told otherwise.")
def spark_import() -> None:
    """One op."""
    import_by_spark()


JOBS: Final = [
    spark_checkpoints,
    spark_backfill,
    spark_compare,
    spark_reconcile,
    spark_rebuild,
    spark_import,
]


def _run(
    context: dg.OpExecutionContext,
    settings: Settings,
    pyspark: LazyPySparkResource,
    job: str,
    words: Sequence[str],
) -> None:
    """The same module either way, and the same result on the run's page."""
    try:
        if settings.spark_submit is not None:
            document = submit(context, settings, job, words)
        else:
            document = _in_process(context, settings, pyspark, job, words)
    except MirrorAssetsError as error:
        raise as_failure(error) from error
    context.add_output_metadata(_metadata(document))
    if not document["ok"]:
        raise dg.Failure(
            description=_why(document), metadata=_metadata(document), allow_retries=False
        )


def _in_process(
    context: dg.OpExecutionContext,
    settings: Settings,
    pyspark: LazyPySparkResource,
    job: str,
    words: Sequence[str],
) -> dict[str, Any]:
    # The resource starts the session, which ends with the run's process; ours takes it over, and
    # makes sure of what must be set whoever started it.
    version = pyspark.spark_session.version
    context.log.info("%s runs on %s, Spark %s", job, settings.spark_master, version)
    session = open_session(SparkOptions(master=settings.spark_master))
    return MAINS[job](session, words)


def _metadata(document: Mapping[str, Any]) -> dict[str, dg.MetadataValue]:
    """Numbers and words as they are, lists as tables."""
    found: dict[str, dg.MetadataValue] = {}
    for name, value in document.items():
        if isinstance(value, list):
            rows = [row if isinstance(row, Mapping) else {"table": row} for row in value]
            found |= facts_metadata({f"number_of_{name}": len(rows)})
            if rows:
                found[name] = table_metadata(rows[:_SHOWN])
        elif isinstance(value, Mapping):
            found |= facts_metadata({k: str(v) for k, v in value.items() if v not in (None, "")})
        elif not isinstance(value, bool):
            found |= facts_metadata({name: value})
    return found


def _why(document: Mapping[str, Any]) -> str:
    """The error, or the first thing that needs a person."""
    told = document.get("error") or next(iter(document.get("findings") or ()), None)
    if told is None:
        return f"{document['job']} did not do all of it: its tables say what is left, and why"
    where = f" {told['table']}" if told.get("table") else ""
    code = told.get("rule") or told.get("code")
    return f"{code}{where}: {told['message']}. Remedy: {told['remedy']}"


def _pairs(places: Mapping[str, str]) -> list[str]:
    return [f"{name}={place}" for name, place in places.items()]
