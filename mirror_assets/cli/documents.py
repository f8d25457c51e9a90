"""The `--json` documents: values of the domain as plain objects with documented members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import orjson

from mirror_assets.delta.actions import ACTION_NAMES, Action
from mirror_assets.delta.commit_file import encode_action
from mirror_assets.delta.features import is_fenced
from mirror_assets.metastore.outcomes import AlreadyCommitted, Committed, Conflict, Outcome

if TYPE_CHECKING:
    from mirror_assets.delta.actions import TableProtocol
    from mirror_assets.metastore.log_reader import TableRecord, TableSummary

Document = dict[str, Any]

_HISTORY: Final = (
    "version",
    "timestamp_ms",
    "operation",
    "commit_id",
    "group_id",
    "source",
    "read_version",
    "is_blind_append",
    "isolation_level",
    "num_actions",
    "num_adds",
    "num_removes",
    "num_metadata",
    "num_protocol",
    "num_txns",
    "num_domains",
    "num_cdc",
    "num_unknown",
    "num_files",
    "size_bytes",
    "byte_length",
    "sha256",
)


def moment(timestamp_ms: int) -> str:
    """Epoch milliseconds as ISO 8601 in UTC."""
    try:
        at = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError):  # a foreign log may name any number
        return f"{timestamp_ms} ms"
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def wire_object(action: Action) -> bytes:
    """An action's JSON object with Delta's own names, without the action's name around it."""
    name = ACTION_NAMES[type(action)]
    return encode_action(action)[len(f'{{"{name}":') : -1]


def wire_document(action: Action) -> Document:
    """The same, parsed."""
    parsed: Document = orjson.loads(wire_object(action))
    return parsed


def commit_document(outcomes: Sequence[Outcome], *, several: bool) -> Document:
    """The outcome of a commit; for several tables, the common one and one for each."""
    parts = [outcome_document(outcome) for outcome in outcomes]
    if not several:
        return parts[0]
    lost = next((part for part in parts if part["outcome"] == "conflict"), None)
    decisive = lost or next((p for p in parts if p["outcome"] == "committed"), parts[0])
    return {
        "outcome": decisive["outcome"],
        "version": None,
        "reason": lost["reason"] if lost else None,
        "tables": parts,
    }


def outcome_document(outcome: Outcome) -> Document:
    """One table's outcome. A conflict's `version` is the one that won."""
    match outcome:
        case Committed():
            return {
                "outcome": "committed",
                "table": outcome.table,
                "version": outcome.version,
                "reason": None,
                "commit_id": outcome.commit_id,
                "timestamp_ms": outcome.timestamp_ms,
                "sha256": outcome.sha256,
                "findings": [finding.as_dict() for finding in outcome.findings],
            }
        case AlreadyCommitted():
            return {
                "outcome": "already_committed",
                "table": outcome.table,
                "version": outcome.version,
                "reason": outcome.reason,
            }
        case Conflict():
            return {
                "outcome": "conflict",
                "table": outcome.table,
                "version": outcome.winning_version,
                "reason": outcome.reason.value,
                "message": outcome.message,
            }


def state_document(summary: TableSummary) -> Document:
    """The state of a table at a version, but for its files."""
    return {
        "table": summary.table,
        "version": summary.version,
        "timestamp": moment(summary.timestamp_ms),
        "timestamp_ms": summary.timestamp_ms,
        "protocol": wire_document(summary.protocol),
        "metadata": wire_document(summary.metadata),
        "num_files": summary.num_files,
        "size_bytes": summary.size_bytes,
    }


def version_document(row: Mapping[str, Any]) -> Document:
    """One commit of the history."""
    lag_ms = row["lag_ms"]
    return {
        "timestamp": moment(row["timestamp_ms"]),
        **{key: row[key] for key in _HISTORY},
        "mirror_state": row["mirror_status"],
        "lag_seconds": None if lag_ms is None else lag_ms / 1000,
    }


def table_document(record: TableRecord, protocol: TableProtocol | None) -> Document:
    """One registered table."""
    return {
        "table": record.name,
        "location": record.location,
        "data_location": record.data_location,
        "state": record.state,
        "protocol": None if protocol is None else wire_document(protocol),
        "fenced": protocol is not None and is_fenced(protocol),
        "head_version": record.head_version,
        "first_version": record.first_version,
        "floor_version": record.floor_version,
        "num_files": record.num_files,
        "size_bytes": record.size_bytes,
        "mirrored_version": record.mirrored_version,
        "lag_versions": record.head_version - record.mirrored_version,
    }
