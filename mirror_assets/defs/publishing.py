"""Partitions made by hand or by a backfill: what is missing is published, in order, and once."""

from __future__ import annotations

from typing import Final

import dagster as dg

from mirror_assets.defs.access import MirrorAccess
from mirror_assets.defs.findings_tables import findings_metadata
from mirror_assets.defs.keys import TableKeys
from mirror_assets.defs.reporting import (
    RunEvents,
    checkpoint_metadata,
    commit_metadata,
    report,
)
from mirror_assets.delta.log_paths import CommitName
from mirror_assets.errors import MirrorAssetsError
from mirror_assets.metastore.log_reader import LogReader, TableRecord
from mirror_assets.metastore.mirror_state import MirrorState, read_mirror_states
from mirror_assets.metastore.publications import (
    Publication,
    read_checkpoint_publications,
    read_publications,
)
from mirror_assets.mirror.row_models import judge_pending
from mirror_assets.mirror.service import Mirror

#: how long a run waits for a store that fails, or for whoever else publishes the table
_PATIENCE_S: Final = 60.0
_REPORTED: Final = 1_000


def publish_commits(
    context: dg.AssetExecutionContext, access: MirrorAccess, keys: TableKeys
) -> None:
    """Publish everything up to the newest partition that was asked for.

    A version needs all before it, so these are published too, and reported with the run.
    """
    wanted = {int(key) for key in context.partition_keys}
    with access.mirror() as mirror:
        table = LogReader(mirror.metastore).table(keys.table)
        _require_known(table, wanted)
        _require_sound_rows(mirror, table, max(wanted))
        _settle(mirror, table.name, max(wanted))
        found = read_publications(mirror.metastore, table.name, min(wanted), max(wanted))
        asked_for = [publication for publication in found if publication.version in wanted]
        _require_in_log(mirror, table, asked_for)
        for publication in asked_for:
            context.add_asset_metadata(
                commit_metadata(table.location, publication),
                partition_key=str(publication.version),
            )
        events = RunEvents(context.op_execution_context)
        report(mirror.metastore, events, at_most=_REPORTED, only=table.name, but=wanted)


def publish_checkpoints(
    context: dg.AssetExecutionContext, access: MirrorAccess, keys: TableKeys
) -> None:
    """Build the checkpoints of the partitions; one that is there is verified, not written again."""
    with access.mirror() as mirror:
        for version in sorted(int(key) for key in context.partition_keys):
            try:
                mirror.checkpoints.build(keys.table, version)
            except MirrorAssetsError as error:
                raise as_failure(error.at(table=keys.table, version=version)) from error
            found = read_checkpoint_publications(mirror.metastore, keys.table, version, version)
            for publication in found:
                context.add_asset_metadata(
                    checkpoint_metadata(publication), partition_key=str(version)
                )


def as_failure(error: MirrorAssetsError) -> dg.Failure:
    """An error in the words of an operator; trying again is up to them."""
    metadata = {
        name: dg.MetadataValue.text(str(value))
        for name, value in error.as_dict().items()
        if value not in (None, "")
    }
    return dg.Failure(description=str(error), metadata=metadata, allow_retries=False)


def _require_known(table: TableRecord, wanted: set[int]) -> None:
    beyond = sorted(version for version in wanted if version > table.head_version)
    if beyond:
        message = (
            f"SQL has no version {beyond[0]} of {table.name}: its head is {table.head_version}"
        )
        raise dg.Failure(
            description=f"{message}. Remedy: commit it first, or choose fewer partitions",
            allow_retries=False,
        )


def _require_sound_rows(mirror: Mirror, table: TableRecord, version: int) -> None:
    """Look at the rows themselves before they become files that nobody may change again."""
    findings = judge_pending(mirror.metastore, table.name, version)
    if findings:
        first = findings[0]
        raise dg.Failure(
            description=f"nothing was published: {first.rule} {first.message}. {first.remedy}",
            metadata=findings_metadata(findings),
            allow_retries=False,
        )


def _settle(mirror: Mirror, name: str, version: int) -> None:
    try:
        mirror.settle([name], to_version=version, patience_s=_PATIENCE_S)
    except MirrorAssetsError as error:
        raise as_failure(error.at(table=name)) from error
    (state,) = read_mirror_states(mirror.metastore, [name], percentiles=False)
    if state.mirrored_version < version:
        raise dg.Failure(description=_why_not(state, version), allow_retries=False)


def _why_not(state: MirrorState, version: int) -> str:
    reason = state.last_error or state.reason or "another mirror holds the table, or is slow"
    return (
        f"{state.table} is published up to version {state.mirrored_version}, not {version} "
        f"({state.state}): {reason}. Nothing is lost: it is tried again, "
        f"`mirror-assets status {state.table}` says how it stands"
    )


def _require_in_log(mirror: Mirror, table: TableRecord, found: list[Publication]) -> None:
    """What SQL calls published is there in its size; what a cleanup removed need not be."""
    store = mirror.open_store(table.location)
    listing = store.list()
    for publication in found:
        name = CommitName(publication.version)
        entry = listing.commits.get(publication.version)
        size = store.size(name) if entry is None else entry.size
        was_cleaned_up = size is None and publication.version < (listing.first_commit or 0)
        if size != publication.byte_length and not was_cleaned_up:
            what = "is missing" if size is None else f"has {size} bytes"
            message = f"{name} of {table.name} was published, and {what} now"
            remedy = f"`mirror-assets reconcile {table.name} --mode full` tells what to do"
            raise dg.Failure(description=f"{message}. Remedy: {remedy}", allow_retries=False)
