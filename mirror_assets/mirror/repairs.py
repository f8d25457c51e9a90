"""Repairs of a log: each conditional on what was seen, so that doing it twice is doing it once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mirror_assets.delta.last_checkpoint import encode_hint
from mirror_assets.delta.log_paths import CommitName, LastCheckpoint
from mirror_assets.errors import (
    CheckpointMismatchError,
    CommitIntegrityError,
    DivergenceError,
    MalformedActionError,
    MirrorAssetsError,
    TableStateError,
    UnsupportedTableError,
    VersionNotFoundError,
)
from mirror_assets.findings import Finding, Severity
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_facts import note, settle
from mirror_assets.mirror.checkpointer import hint_of, publish_checkpoint
from mirror_assets.mirror.inspection import Inspection, Repair, RepairKind
from mirror_assets.mirror.republishing import publish_commits
from mirror_assets.storage.log_store import LogStore

#: what a repair may meet that is a finding, and no failure of the run
_REFUSALS: Final = (
    CheckpointMismatchError,
    CommitIntegrityError,
    DivergenceError,
    MalformedActionError,
    TableStateError,
    UnsupportedTableError,
    VersionNotFoundError,
)


def apply_repairs(
    metastore: Metastore, store: LogStore, seen: Inspection
) -> tuple[list[Repair], list[Finding]]:
    """Make the planned repairs in their order; what is refused becomes a finding.

    Raises the errors of the store and of the database.
    """
    applied: list[Repair] = []
    refused: list[Finding] = []
    for kind in RepairKind:
        repairs = [repair for repair in seen.repairs if repair.kind is kind]
        try:
            for repair in sorted(repairs, key=lambda repair: repair.version):
                applied += _make(metastore, store, seen, repair)
        except _REFUSALS as error:
            refused.append(_finding(seen, error))
    if applied:
        files = ", ".join(f"{r.kind} {r.version}" for r in applied)
        note(metastore, seen.facts, "reconciled", files)
        settle(metastore, seen.facts, [r.version for r in applied])
    return applied, refused


def _make(
    metastore: Metastore, store: LogStore, seen: Inspection, repair: Repair
) -> Iterator[Repair]:
    """Make one, and give it back; not if others changed what it was to change."""
    facts, version = seen.facts, repair.version
    match repair.kind:
        case RepairKind.REPUBLISH:
            is_made = version in publish_commits(metastore, store, facts, [version])
        case RepairKind.CHECKPOINT:
            publish_checkpoint(metastore, store, repair.table, version, now_ms=facts.now_ms)
            is_made = True
        case RepairKind.POINTER:
            is_made = _point(metastore, store, seen, version)
        case RepairKind.STATUS:
            is_made = store.size(CommitName(version)) is not None
    if is_made:
        yield repair


def _point(metastore: Metastore, store: LogStore, seen: Inspection, version: int) -> bool:
    """Verify the checkpoint, or build it, and point at it over what was judged wrong."""
    facts, wrong = seen.facts, seen.pointer
    if store.read(LastCheckpoint()) != wrong:
        return False
    kept = "there was none" if wrong is None else repr(wrong)
    note(metastore, facts, "pointer_replaced", f"_last_checkpoint was: {kept}", version)
    name = facts.table.name
    published = publish_checkpoint(metastore, store, name, version, now_ms=facts.now_ms)
    if not published.pointer_moved:
        data = encode_hint(hint_of(published, facts.now_ms))
        store.replace(LastCheckpoint(), data, over=wrong)
    return True


def _finding(seen: Inspection, error: MirrorAssetsError) -> Finding:
    return Finding(
        rule=error.rule or error.code,
        severity=Severity.ERROR,
        message=f"a repair was refused: {error.message}",
        remedy=error.remedy,
        table=seen.facts.table.name,
        version=error.version,
    )
