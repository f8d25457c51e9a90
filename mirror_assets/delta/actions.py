"""The actions of a Delta log as frozen values, united in `Action`.

Each structure declares once what the protocol says of an action: the wire names (camel case), the
types, and by the order of its fields the canonical key order (DL-BYTE-01). Members that are None
are not written. What a writer adds beyond the protocol stands in `extra`, in its own order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeVar

import msgspec

T = TypeVar("T")

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

_INT32 = msgspec.Meta(ge=-INT32_MAX - 1, le=INT32_MAX)
_INT64 = msgspec.Meta(ge=-INT64_MAX - 1, le=INT64_MAX)

Int32 = Annotated[int, _INT32]
Int64 = Annotated[int, _INT64]
StringMap = dict[str, str | None]


class _Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What all structures of the log share."""


class DeletionVector(_Wire, frozen=True, kw_only=True):
    """Which rows of a data file are deleted: a descriptor, stored inline or in a file."""

    storage_type: str
    path_or_inline_dv: str
    offset: Int32 | None = None
    size_in_bytes: Int32
    cardinality: Int64

    @property
    def unique_id(self) -> str:
        """The vector's half of a logical file's key (DL-DV-07): offset None and 0 differ."""
        suffix = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage_type}{self.path_or_inline_dv}{suffix}"


class Format(_Wire, frozen=True, kw_only=True, omit_defaults=False):
    """The encoding of the data files: always parquet."""

    provider: str = "parquet"
    options: dict[str, str] = msgspec.field(default_factory=dict)


class _Action(_Wire, frozen=True, kw_only=True):
    """What all actions share: members that the protocol does not name, in received order."""

    #: never on the wire under this name: `commit_file` flattens it into the action
    extra: dict[str, Any] = msgspec.field(default_factory=dict, name="(extra)")


class AddFile(_Action, frozen=True, kw_only=True):
    """A logical file joins the table, or replaces the entry with the same key."""

    path: str
    partition_values: StringMap
    size: Int64
    modification_time: Int64
    data_change: bool
    stats: str | None = None
    tags: StringMap | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: Int64 | None = None
    default_row_commit_version: Int64 | None = None
    clustering_provider: str | None = None

    @property
    def dv_id(self) -> str:
        """Empty without a deletion vector."""
        return "" if self.deletion_vector is None else self.deletion_vector.unique_id


class RemoveFile(_Action, frozen=True, kw_only=True):
    """A logical file leaves the table and stays behind as a tombstone."""

    path: str
    deletion_timestamp: Int64 | None = None
    data_change: bool
    extended_file_metadata: bool | None = None
    partition_values: StringMap | None = None
    size: Int64 | None = None
    tags: StringMap | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: Int64 | None = None
    default_row_commit_version: Int64 | None = None
    stats: str | None = None

    @property
    def dv_id(self) -> str:
        """Empty without a deletion vector."""
        return "" if self.deletion_vector is None else self.deletion_vector.unique_id


class MetaData(_Action, frozen=True, kw_only=True):
    """The table's identity, schema, partitioning and properties; a new one replaces the old."""

    id: str
    name: str | None = None
    description: str | None = None
    format: Format
    #: empty in logs of long ago that leave it out; no commit of ours may
    schema_string: str = ""
    partition_columns: list[str]
    configuration: dict[str, str]
    created_time: Int64 | None = None


class TableProtocol(_Action, frozen=True, kw_only=True):
    """What a reader and a writer must understand."""

    min_reader_version: Int32
    min_writer_version: Int32
    reader_features: list[str] | None = None
    writer_features: list[str] | None = None


class Txn(_Action, frozen=True, kw_only=True):
    """How far an application has come: makes its commits idempotent."""

    app_id: str
    version: Int64
    last_updated: Int64 | None = None


class DomainMetadata(_Action, frozen=True, kw_only=True):
    """Configuration of a named domain, opaque to everybody else."""

    domain: str
    configuration: str
    removed: bool


class CdcFile(_Action, frozen=True, kw_only=True):
    """A file of row-level changes; no part of the table state."""

    path: str
    partition_values: StringMap
    size: Int64
    tags: StringMap | None = None
    data_change: bool


class CheckpointMetadata(_Action, frozen=True, kw_only=True):
    """The head of a V2 checkpoint; never in a commit."""

    version: Int64
    tags: StringMap | None = None


class Sidecar(_Action, frozen=True, kw_only=True):
    """A file of a V2 checkpoint that holds file actions; never in a commit."""

    path: str
    size_in_bytes: Int64
    modification_time: Int64
    tags: StringMap | None = None


class CommitInfo(msgspec.Struct, frozen=True):
    """Provenance of a commit: a free-form object whose members keep their order."""

    fields: dict[str, Any]

    def get(self, key: str) -> Any:
        """The member, or None."""
        return self.fields.get(key)


class UnknownAction(msgspec.Struct, frozen=True, kw_only=True):
    """A line whose action the protocol does not name: carried through, never understood."""

    fields: dict[str, Any]


FileAction = AddFile | RemoveFile
Action = (
    AddFile
    | RemoveFile
    | MetaData
    | TableProtocol
    | Txn
    | DomainMetadata
    | CdcFile
    | CheckpointMetadata
    | Sidecar
    | CommitInfo
    | UnknownAction
)

#: wire name of each action but the unknown one; the order is that of reading, not of writing
ACTION_TYPES: Final[dict[str, type[Any]]] = {
    "add": AddFile,
    "remove": RemoveFile,
    "metaData": MetaData,
    "protocol": TableProtocol,
    "txn": Txn,
    "domainMetadata": DomainMetadata,
    "cdc": CdcFile,
    "checkpointMetadata": CheckpointMetadata,
    "sidecar": Sidecar,
    "commitInfo": CommitInfo,
}
ACTION_NAMES: Final[dict[type[Any], str]] = {kind: name for name, kind in ACTION_TYPES.items()}


def by_kind(actions: Sequence[Action]) -> dict[type[Any], list[Any]]:
    """The actions of each kind, in their order; fast where they are many and of few kinds."""
    return {
        kind: [action for action in actions if type(action) is kind]
        for kind in set(map(type, actions))
    }


def first_of(kind: type[T], actions: Sequence[Action]) -> T | None:
    """The first action of a kind."""
    if kind not in set(map(type, actions)):
        return None
    return next(action for action in actions if isinstance(action, kind))
