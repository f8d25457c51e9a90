"""A commit made ready: its final actions, rows, bytes and totals, before any of it is written.

Pure but for the few reads that the state of the table answers: everything is decided here, under
the lock of the head, and written by the caller.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import orjson
from sqlalchemy import Table

from mirror_assets.delta.actions import (
    Action,
    AddFile,
    CommitInfo,
    DomainMetadata,
    MetaData,
    RemoveFile,
    TableProtocol,
    first_of,
)
from mirror_assets.delta.commit_file import encode
from mirror_assets.delta.conflicts import ROW_TRACKING_DOMAIN, IsolationLevel
from mirror_assets.delta.features import effective_features
from mirror_assets.errors import RuleViolationError
from mirror_assets.metastore.columns import Row
from mirror_assets.metastore.dialect import BULK_ROWS
from mirror_assets.metastore.rows import add_columns, to_row
from mirror_assets.metastore.tables import dl_add_files

ICT_PROPERTY: Final = "delta.enableInCommitTimestamps"
GROUP_TAG: Final = "mirrorAssets.groupId"
#: baseRowId and defaultRowCommitVersion of a file
RowIds = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What the writer knows of a commit besides its actions."""

    version: int
    timestamp_ms: int
    read_version: int | None
    isolation: IsolationLevel
    is_blind_append: bool
    commit_id: str
    group_id: str | None
    engine_info: str


@dataclass(slots=True)
class CommitPlan:
    """The rows of a commit by table, and the digest of the file they make."""

    info: CommitInfo
    in_commit_timestamp_ms: int | None
    rows: dict[Table, Sequence[Row]] = field(default_factory=dict)
    num_actions: int = 0
    sha256: str = ""
    byte_length: int = 0


def plan_commit(
    table_id: int, actions: Sequence[Action], provenance: Provenance, *, stamp_in_commit: bool
) -> CommitPlan:
    """Put `commitInfo` first, give every action its place, and freeze the bytes."""
    stamp = provenance.timestamp_ms if stamp_in_commit else None
    plan = CommitPlan(commit_info(actions, provenance, stamp), stamp)
    placed: list[Action] = [plan.info, *[a for a in actions if type(a) is not CommitInfo]]
    plan.rows = _rows(table_id, provenance.version, placed[1:])
    data = encode(placed)
    plan.num_actions = len(placed)
    plan.sha256 = hashlib.sha256(data).hexdigest()
    plan.byte_length = len(data)
    return plan


def _rows(table_id: int, version: int, actions: Sequence[Action]) -> dict[Table, Sequence[Row]]:
    """The rows of what follows `commitInfo`; many adds are made together."""
    rows: dict[Table, Sequence[Row]] = {}
    ordinals = [n for n, action in enumerate(actions, start=1) if type(action) is AddFile]
    if are_many := len(ordinals) >= BULK_ROWS:
        adds: list[Any] = [actions[n - 1] for n in ordinals]
        rows[dl_add_files] = add_columns(adds, table_id, version, ordinals)
        if len(adds) == len(actions):
            return rows
    few: dict[Table, list[Row]] = {}
    for ordinal, action in enumerate(actions, start=1):
        if are_many and type(action) is AddFile:
            continue
        table, row = to_row(action, (table_id, version, ordinal))
        few.setdefault(table, []).append(row)
    return rows | few


def commit_info(
    actions: Sequence[Action], provenance: Provenance, in_commit_timestamp_ms: int | None
) -> CommitInfo:
    """What the caller said of the commit, completed by what only the writer can know."""
    info = first_of(CommitInfo, actions)
    given = {} if info is None else info.fields
    fields: dict[str, Any] = {
        "timestamp": provenance.timestamp_ms,
        "operation": _operation(actions, provenance.version),
        "operationParameters": {},
        "isolationLevel": provenance.isolation.value,
        "engineInfo": provenance.engine_info,
        **given,
        "isBlindAppend": provenance.is_blind_append,
        "inCommitTimestamp": in_commit_timestamp_ms,
        "txnId": provenance.commit_id,
    }
    if provenance.read_version is not None and provenance.read_version >= 0:
        fields["readVersion"] = provenance.read_version
    if provenance.group_id is not None:
        fields["tags"] = {**_tags(given), GROUP_TAG: provenance.group_id}
    return CommitInfo({key: value for key, value in fields.items() if value is not None})


def _tags(given: Mapping[str, Any]) -> Mapping[str, Any]:
    tags = given.get("tags") or {}
    if not isinstance(tags, dict):
        message = f"tags of commitInfo is {tags!r}, not a map, and the group id belongs into it"
        raise RuleViolationError(message, rule="DL-CI-01")
    return tags


def stamps_in_commit(protocol: TableProtocol, metadata: MetaData) -> bool:
    """Whether a table has in-commit timestamps (DL-ICT-01)."""
    enabled = metadata.configuration.get(ICT_PROPERTY, "false").lower() == "true"
    return enabled and "inCommitTimestamp" in effective_features(protocol)


def note_ict_enablement(metadata: MetaData, version: int, timestamp_ms: int) -> MetaData:
    """The metaData that turns in-commit timestamps on in a table with history (DL-ICT-05)."""
    configuration = {
        **metadata.configuration,
        "delta.inCommitTimestampEnablementVersion": str(version),
        "delta.inCommitTimestampEnablementTimestamp": str(timestamp_ms),
    }
    return msgspec.structs.replace(metadata, configuration=configuration)


def assign_row_ids(
    actions: Sequence[Action], version: int, mark: int, known: Mapping[str, RowIds]
) -> list[Action]:
    """Give new files their row ids above the high water mark, and move the mark (DL-RT).

    A file that is live keeps its ids, which `known` has by path; so does one that brings its own.
    """
    highest = max(mark, *(_given_mark(action) for action in actions), -1)
    assigned: list[Action] = []
    for action in actions:
        if isinstance(action, AddFile):
            add = _with_row_ids(action, (highest + 1, version), known)
            highest = max(highest, _last_row_id(add))
            assigned.append(add)
        elif not (isinstance(action, DomainMetadata) and action.domain == ROW_TRACKING_DOMAIN):
            assigned.append(action)
    configuration = orjson.dumps({"rowIdHighWaterMark": highest}).decode()
    moved = DomainMetadata(domain=ROW_TRACKING_DOMAIN, configuration=configuration, removed=False)
    return [*assigned, moved]


def high_water_mark(configuration: str) -> int:
    """The highest row id ever given, as the domain `delta.rowTracking` says it."""
    try:
        found = orjson.loads(configuration)["rowIdHighWaterMark"]
    except (orjson.JSONDecodeError, KeyError, TypeError) as exc:
        message = f"{ROW_TRACKING_DOMAIN} has no rowIdHighWaterMark: {configuration!r}"
        raise RuleViolationError(message, rule="DL-RT-03") from exc
    if type(found) is not int:
        raise RuleViolationError(f"rowIdHighWaterMark is {found!r}", rule="DL-RT-03")
    return found


def _given_mark(action: Action) -> int:
    if not isinstance(action, DomainMetadata) or action.domain != ROW_TRACKING_DOMAIN:
        return -1
    return high_water_mark(action.configuration)


def _with_row_ids(add: AddFile, new: RowIds, known: Mapping[str, RowIds]) -> AddFile:
    if add.base_row_id is not None:
        return add
    first, version = known.get(add.path, new)
    if _num_records(add) is None:
        message = f"{add.path!r} has no numRecords in its statistics, which row tracking needs"
        remedy = "commit the file with statistics; nothing was written"
        raise RuleViolationError(message, rule="DL-RT-01", remedy=remedy)
    return msgspec.structs.replace(add, base_row_id=first, default_row_commit_version=version)


def _last_row_id(add: AddFile) -> int:
    return (add.base_row_id or 0) + (_num_records(add) or 0) - 1


def _num_records(add: AddFile) -> int | None:
    records = None if add.stats is None else orjson.loads(add.stats).get("numRecords")
    return records if isinstance(records, int) else None


def _operation(actions: Sequence[Action], version: int) -> str:
    if version == 0:
        return "CREATE TABLE"
    kinds = {type(action) for action in actions}
    if AddFile in kinds:
        return "WRITE"
    return "DELETE" if RemoveFile in kinds else "UPDATE TABLE"
