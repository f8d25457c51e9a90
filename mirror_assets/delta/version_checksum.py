"""`<version>.crc`: what a writer says the table state sums up to at a version.

The members are claims to compare with a replay, never evidence: files of older writers lack some
and name others differently, so every member may be absent. What is written here has those that
the protocol requires, and of the others only what is known for certain: readers take a checksum
for a short cut, so a wrong one is worse than none (DL-CRC-07).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import orjson

from mirror_assets.delta.actions import (
    ACTION_NAMES,
    AddFile,
    DomainMetadata,
    Int64,
    MetaData,
    TableProtocol,
    Txn,
)
from mirror_assets.delta.commit_file import canonical_json, encode_action

#: present name by older or alternative ones
_OTHER_NAMES: Final = {
    "histogramOpt": "fileSizeHistogram",
    "numDeletedRecordsOpt": "numDeletedRecords",
    "numDeletionVectorsOpt": "numDeletionVectors",
    "inCommitTimestampOpt": "inCommitTimestamp",
    "deletedRecordCountsHistogramOpt": "deletedRecordCountsHistogram",
}
#: the members in the order and by the names they are written with (section 13 of the rules)
_WRITTEN: Final = {
    "txn_id": "txnId",
    "table_size_bytes": "tableSizeBytes",
    "num_files": "numFiles",
    "num_deleted_records": "numDeletedRecordsOpt",
    "num_deletion_vectors": "numDeletionVectorsOpt",
    "num_metadata": "numMetadata",
    "num_protocol": "numProtocol",
    "in_commit_timestamp": "inCommitTimestampOpt",
    "set_transactions": "setTransactions",
    "domain_metadata": "domainMetadata",
    "metadata": "metadata",
    "protocol": "protocol",
    "file_size_histogram": "fileSizeHistogram",
    "deleted_record_counts_histogram": "deletedRecordCountsHistogramOpt",
    "all_files": "allFiles",
}
_REQUIRED: Final = frozenset(
    ("table_size_bytes", "num_files", "num_metadata", "num_protocol", "metadata", "protocol")
)


class FileSizeHistogram(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Files and bytes per size class; the three lists are of one length (DL-CRC-04)."""

    sorted_bin_boundaries: list[Int64]
    file_counts: list[Int64]
    total_bytes: list[Int64]


class DeletedRecordCounts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Files per class of deleted rows (DL-CRC-05)."""

    deleted_record_counts: list[Int64]


class TableSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a version checksum claims; None where it is silent."""

    txn_id: str | None = None
    table_size_bytes: Int64 | None = None
    num_files: Int64 | None = None
    num_deleted_records: Int64 | None = None
    num_deletion_vectors: Int64 | None = None
    num_metadata: Int64 | None = None
    num_protocol: Int64 | None = None
    #: only in files of Delta before 3
    num_transactions: Int64 | None = None
    in_commit_timestamp: Int64 | None = None
    set_transactions: list[Txn] | None = None
    domain_metadata: list[DomainMetadata] | None = None
    metadata: MetaData | None = None
    protocol: TableProtocol | None = None
    file_size_histogram: FileSizeHistogram | None = None
    deleted_record_counts_histogram: DeletedRecordCounts | None = None
    all_files: list[AddFile] | None = None


@dataclass(frozen=True, slots=True)
class UnusableChecksum:
    """A version checksum that cannot be read: a finding, but no harm to the table."""

    reason: str


def parse_version_checksum(data: bytes) -> TableSummary | UnusableChecksum:
    """Read the file leniently: unknown members are skipped, older names understood."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as exc:
        return UnusableChecksum(f"not JSON: {exc}")
    if not isinstance(document, dict):
        return UnusableChecksum("not a JSON object")
    try:
        return msgspec.convert(_present_names(document), TableSummary, strict=False)
    except msgspec.ValidationError as exc:
        return UnusableChecksum(str(exc))


def version_checksum_bytes(summary: TableSummary) -> bytes:
    """The file's bytes: canonical members in Delta Spark's order, absent ones left out.

    Raises ValueError if a member is missing that the protocol requires (DL-CRC-01).
    """
    missing = [name for name in sorted(_REQUIRED) if getattr(summary, name) is None]
    if missing:
        raise ValueError(f"a version checksum needs {', '.join(missing)}")
    members = ((name, _wire(getattr(summary, field))) for field, name in _WRITTEN.items())
    return canonical_json({name: value for name, value in members if value is not None}) + b"\n"


def _wire(value: Any) -> Any:
    """As the action is written in a commit, without its name."""
    if isinstance(value, list):
        return [_wire(item) for item in value]
    if (name := ACTION_NAMES.get(type(value))) is not None:
        line = encode_action(value)
        return orjson.Fragment(line[len(name) + len('{"":') : -len("}")])
    return msgspec.to_builtins(value)


def _present_names(document: dict[str, Any]) -> dict[str, Any]:
    return {_OTHER_NAMES.get(name, name): value for name, value in document.items()}
