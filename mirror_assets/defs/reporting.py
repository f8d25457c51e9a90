"""From the record of publications in SQL to Dagster's materializations.

Whoever published a version, its partition turns green: a follower run, a run by hand, or the
command line. Publishing never waits for this, and what a crash left unreported is reported later.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, Protocol
from uuid import uuid4

import dagster as dg
from dagster._core.events import (  # batches have no public door; this module is their only user
    DagsterEvent,
    DagsterEventBatchMetadata,
    StepMaterializationData,
)

from mirror_assets.defs.keys import KEPT_KEYS, TableKeys
from mirror_assets.delta.log_paths import LOG_DIRECTORY, CommitName
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.publications import (
    CHECKPOINT,
    COMMIT,
    CheckpointPublication,
    Publication,
    Unreported,
    read_checkpoint_publications,
    read_publications,
    read_unreported,
    record_reported,
)

#: events of one table in one go
BATCH: Final = 100


class Events(Protocol):
    """Where materializations go."""

    def add_keys(self, partitions: str, keys: Sequence[str]) -> None:
        """Make partitions known; in ascending order, since a range follows that of insertion."""

    def record(self, events: Sequence[dg.AssetMaterialization]) -> None:
        """Store materializations of one asset."""


class RunEvents:
    """Into the log of a run, batched where the event store can."""

    def __init__(self, context: dg.OpExecutionContext) -> None:
        self._instance = context.instance
        self._run_id = context.run_id
        self._job_name = context.job_name
        self._step_key = str(context.op_handle)

    def add_keys(self, partitions: str, keys: Sequence[str]) -> None:
        self._instance.add_dynamic_partitions(partitions, list(keys))

    def record(self, events: Sequence[dg.AssetMaterialization]) -> None:
        batch = uuid4().hex
        for number, materialization in enumerate(events, start=1):
            event = DagsterEvent(
                event_type_value=dg.DagsterEventType.ASSET_MATERIALIZATION.value,
                job_name=self._job_name,
                step_key=self._step_key,
                event_specific_data=StepMaterializationData(materialization),
                message=materialization.description,
            )
            end = DagsterEventBatchMetadata(batch, is_end=number == len(events))
            self._instance.report_dagster_event(event, self._run_id, batch_metadata=end)


class RunlessEvents:
    """Straight into the event log; for sensors."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance = instance

    def add_keys(self, partitions: str, keys: Sequence[str]) -> None:
        self._instance.add_dynamic_partitions(partitions, list(keys))

    def record(self, events: Sequence[dg.AssetMaterialization]) -> None:
        for event in events:
            self._instance.report_runless_asset_event(event)


def report(
    metastore: Metastore,
    events: Events,
    *,
    at_most: int,
    only: str | None = None,
    but: Collection[int] = (),
    skip: Collection[str] = (),
) -> int:
    """Report what was published since the last time; the number of events.

    `only` is the one table to report of, `but` are versions that the caller records itself, `skip`
    are tables of which somebody else reports.
    """
    done = 0
    for table in read_unreported(metastore):
        if done >= at_most:
            break
        if table.table in skip or (only is not None and table.table != only):
            continue
        limit = BATCH if only is None else at_most
        done += _report_commits(metastore, events, table, min(limit, at_most - done), but)
        done += _report_checkpoints(metastore, events, table)
    return done


def _report_commits(
    metastore: Metastore, events: Events, table: Unreported, limit: int, but: Collection[int]
) -> int:
    reported = table.first_version - 1
    if table.commits_reported is not None:
        reported = table.commits_reported
    first = max(reported + 1, table.mirrored_version - KEPT_KEYS + 1)
    last = min(table.mirrored_version, first + limit - 1)
    if first > last:
        return 0
    keys = TableKeys(table.table)
    found = read_publications(metastore, table.table, first, last)
    events.add_keys(keys.versions, [str(publication.version) for publication in found])
    events.record([commit_event(keys, table.location, p) for p in found if p.version not in but])
    record_reported(metastore, COMMIT, {table.table_id: last})
    return len(found)


def _report_checkpoints(metastore: Metastore, events: Events, table: Unreported) -> int:
    reported = -1 if table.checkpoints_reported is None else table.checkpoints_reported
    if table.checkpoint_version <= reported:
        return 0
    keys = TableKeys(table.table)
    found = read_checkpoint_publications(
        metastore, table.table, reported + 1, table.checkpoint_version
    )[-BATCH:]
    events.add_keys(keys.checkpoint_versions, [str(p.version) for p in found])
    events.record([checkpoint_event(keys, publication) for publication in found])
    record_reported(metastore, CHECKPOINT, {table.table_id: table.checkpoint_version})
    return len(found)


def commit_event(
    keys: TableKeys, location: str, publication: Publication
) -> dg.AssetMaterialization:
    """One version, as its partition shows it."""
    return dg.AssetMaterialization(
        keys.commits,
        partition=str(publication.version),
        description=f"version {publication.version} of {keys.table} is in the log",
        metadata=commit_metadata(location, publication),
    )


def commit_metadata(location: str, publication: Publication) -> dict[str, dg.MetadataValue]:
    """What an operator asks of a version; numbers are plotted over the versions."""
    name = CommitName(publication.version).name
    numbers: dict[str, int | float | None] = {
        "version": publication.version,
        "lag_seconds": _seconds(publication.lag_ms),
        "actions": publication.actions,
        "adds": publication.adds,
        "removes": publication.removes,
        "commit_file_bytes": publication.byte_length,
        "table_files": publication.num_files,
        "table_bytes": publication.size_bytes,
    }
    return {
        **_numbers(numbers),
        "operation": dg.MetadataValue.text(publication.operation or "unknown"),
        "commit_file": dg.MetadataValue.path(f"{location}/{LOG_DIRECTORY}/{name}"),
        "sha256": dg.MetadataValue.text(publication.sha256),
        "resolved_by": dg.MetadataValue.text(publication.resolved_by or "import"),
        **_moments(
            committed_at=publication.committed_at_ms, published_at=publication.published_at_ms
        ),
    }


def checkpoint_event(
    keys: TableKeys, publication: CheckpointPublication
) -> dg.AssetMaterialization:
    """One checkpoint, as its partition shows it."""
    return dg.AssetMaterialization(
        keys.checkpoints,
        partition=str(publication.version),
        description=f"checkpoint of version {publication.version} of {keys.table}",
        metadata=checkpoint_metadata(publication),
    )


def checkpoint_metadata(publication: CheckpointPublication) -> dict[str, dg.MetadataValue]:
    """Size and cost of a checkpoint."""
    numbers: dict[str, int | float | None] = {
        "version": publication.version,
        "actions": publication.actions,
        "checkpoint_bytes": publication.size_bytes,
        "seconds": publication.seconds,
    }
    resolved_by = dg.MetadataValue.text(publication.resolved_by or "import")
    return {
        **_numbers(numbers),
        "resolved_by": resolved_by,
        **_moments(published_at=publication.published_at_ms),
    }


def _numbers(values: dict[str, int | float | None]) -> dict[str, dg.MetadataValue]:
    return {
        name: dg.MetadataValue.float(value)
        if isinstance(value, float)
        else dg.MetadataValue.int(value)
        for name, value in values.items()
        if value is not None
    }


def _moments(**times_ms: int | None) -> dict[str, dg.MetadataValue]:
    return {
        name: dg.MetadataValue.timestamp(time_ms / 1000)
        for name, time_ms in times_ms.items()
        if time_ms is not None
    }


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
