"""Bulk work by Spark: a session starts when a run asks for it, and not before.

Dagster reads the annotations of what it runs as objects, so they are not postponed here.
"""

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field

from mirror_assets.defs.access import MirrorAccess
from mirror_assets.defs.findings_tables import facts_metadata, table_metadata
from mirror_assets.defs.publishing import as_failure
from mirror_assets.defs.worker_settings import metastore_url_here, store_options_here
from mirror_assets.errors import MirrorAssetsError
from mirror_assets.metastore.mirror_state import read_mirror_states
from mirror_assets.mirror.bulk.checkpoints import build_checkpoints
from mirror_assets.pipeline.access import Access
from mirror_assets.pipeline.session import SparkOptions, open_session, settings_of
from mirror_assets.pipeline.work import Workers
from mirror_assets.settings import Settings


class SparkCheckpointsConfig(dg.Config):
    """Which tables."""

    tables: list[str] = Field(
        default=[], description="names; none given: all with commits since their checkpoint"
    )


def spark_resource(settings: Settings) -> LazyPySparkResource:
    """Of the master that the settings name; nothing is started."""
    options = SparkOptions(master=settings.spark_master)
    return LazyPySparkResource(
        spark_config={"spark.master": options.master, **settings_of(options)}
    )


@dg.op(description="Builds checkpoints of many tables side by side, a Spark task each.")
def build_checkpoints_by_spark(
    context: dg.OpExecutionContext,
    config: SparkCheckpointsConfig,
    access: MirrorAccess,
    pyspark: LazyPySparkResource,
) -> None:
    """The same code as in process; Spark only spreads it."""
    settings = access.settings
    with access.metastore() as metastore:
        states = read_mirror_states(metastore, config.tables or None, percentiles=False)
    behind = [s for s in states if config.tables or s.checkpoint_version < s.mirrored_version]
    wanted: list[tuple[str, int | None]] = [
        (state.table, None) for state in behind if state.mirrored_version >= 0
    ]
    if not wanted:
        context.log.info("every table has a checkpoint of its newest published version")
        return
    ways = Access(
        metastore_url=metastore_url_here,
        store_options=store_options_here,
        allowed_roots=settings.allowed_roots,
    )
    # The resource starts the session, which ends with the run's process; ours takes it over, and
    # makes sure of what must be set whoever started it.
    context.log.info("Spark %s builds %d checkpoints", pyspark.spark_session.version, len(wanted))
    session = open_session(SparkOptions(master=settings.spark_master))
    try:
        built = build_checkpoints(Workers(session), ways, wanted)
    except MirrorAssetsError as error:
        raise as_failure(error) from error
    rows: list[dict[str, str | int | None]] = [
        {
            "table": table,
            "version": done.version,
            "actions": done.actions,
            "bytes": done.size_bytes,
            "seconds": str(done.seconds),
        }
        for (table, _), done in zip(wanted, built, strict=True)
    ]
    metadata = {**facts_metadata({"checkpoints": len(rows)}), "built": table_metadata(rows)}
    context.add_output_metadata(metadata)


@dg.job(description="Checkpoints of many tables by Spark; small ones are built beside publishing.")
def spark_checkpoints() -> None:
    """One op."""
    build_checkpoints_by_spark()
