"""Rows of a checkpoint to actions, column by column.

A checkpoint's row has one structure per kind of action, all but one of them null. `actions_of`
takes each kind's rows out of a batch and converts member by member, since a dictionary per row
would cost several times as much.
"""

from __future__ import annotations

from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from mirror_assets.delta.actions import (
    ACTION_TYPES,
    Action,
    AddFile,
    DeletionVector,
    RemoveFile,
    StringMap,
)
from mirror_assets.delta.struct_stats import stats_texts
from mirror_assets.errors import MalformedActionError

if TYPE_CHECKING:
    from collections.abc import Iterable

#: the member that tells whether a row holds the action: a writer may make all structures present
KEY_MEMBERS: Final = {
    "txn": "appId",
    "add": "path",
    "remove": "path",
    "metaData": "id",
    "protocol": "minReaderVersion",
    "domainMetadata": "domain",
    "checkpointMetadata": "version",
    "sidecar": "path",
}
#: what readers take for an absent member
_ABSENT: Final[dict[str, dict[str, Any]]] = {
    "metaData": {"format": {}, "schemaString": "", "partitionColumns": [], "configuration": {}},
}


def actions_of(batch: pa.RecordBatch, *, instants: frozenset[str]) -> list[Action]:
    """The batch's actions by kind, in each kind in the order of the rows.

    `instants` are the timestamps that carry no time zone and yet are instants, by dotted name.
    Raises MalformedActionError for an action without a member that the protocol requires.
    """
    actions: list[Action] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        rows = rows_with(column, KEY_MEMBERS[name])
        if not len(rows):
            continue
        if name == "add":
            actions += _add_files(Members(name, rows), instants)
        elif name == "remove":
            actions += _remove_files(Members(name, rows))
        else:
            actions += [_action(name, value, rows.type) for value in rows.to_pylist()]
    return actions


def rows_with(column: pa.StructArray, member: str) -> pa.StructArray:
    index = column.type.get_field_index(member)
    if index < 0:
        return column.slice(0, 0)
    present = column.flatten()[index].is_valid()
    return column if present.true_count == len(column) else column.filter(present)


def _add_files(members: Members, instants: frozenset[str]) -> list[AddFile]:
    return [
        AddFile(
            path=path,
            partition_values={} if values is None else values,
            size=size,
            modification_time=mtime,
            data_change=bool(change),
            stats=stats,
            tags=tags,
            deletion_vector=vector,
            base_row_id=base,
            default_row_commit_version=row_version,
            clustering_provider=who,
        )
        for path, values, size, mtime, change, stats, tags, vector, base, row_version, who in zip(
            members.required("path", pa.string()),
            members.maps("partitionValues"),
            members.required("size", pa.int64()),
            members.required("modificationTime", pa.int64()),
            members.optional("dataChange", pa.bool_()),
            members.stats(instants),
            members.maps("tags"),
            members.deletion_vectors(),
            members.optional("baseRowId", pa.int64()),
            members.optional("defaultRowCommitVersion", pa.int64()),
            members.optional("clusteringProvider", pa.string()),
            strict=True,
        )
    ]


def _remove_files(members: Members) -> list[RemoveFile]:
    return [
        RemoveFile(
            path=path,
            deletion_timestamp=when,
            data_change=bool(change),
            extended_file_metadata=full,
            partition_values=values,
            size=size,
            tags=tags,
            deletion_vector=vector,
            base_row_id=row_id,
            default_row_commit_version=row_version,
            stats=stats,
        )
        for path, when, change, full, values, size, tags, vector, row_id, row_version, stats in zip(
            members.required("path", pa.string()),
            members.optional("deletionTimestamp", pa.int64()),
            members.optional("dataChange", pa.bool_()),
            members.optional("extendedFileMetadata", pa.bool_()),
            members.maps("partitionValues"),
            members.optional("size", pa.int64()),
            members.maps("tags"),
            members.deletion_vectors(),
            members.optional("baseRowId", pa.int64()),
            members.optional("defaultRowCommitVersion", pa.int64()),
            members.optional("stats", pa.string()),
            strict=True,
        )
    ]


class Members:
    """The members of one kind's rows, each as a sequence of Python values."""

    def __init__(self, action: str, rows: pa.StructArray) -> None:
        self._action = action
        self._count = len(rows)
        names = (field.name for field in rows.type)
        self._columns = dict(zip(names, rows.flatten(), strict=True))

    def column(self, name: str, kind: pa.DataType | None = None) -> pa.Array | None:
        """The member as an array, of a type if one is named; None where no row has it."""
        column = self._columns.get(name)
        if column is None or column.null_count == self._count:
            return None
        return column if kind is None or column.type == kind else column.cast(kind)

    def required_column(self, name: str, kind: pa.DataType) -> pa.Array:
        """The same of a member that every row must have."""
        column = self._columns.get(name)
        if column is None or column.null_count:
            raise _malformed(self._action, f"no {name}")
        return column if column.type == kind else column.cast(kind)

    def optional(self, name: str, kind: pa.DataType) -> Iterable[Any]:
        column = self.column(name, kind)
        if column is None:
            return repeat(None, self._count)
        values: list[Any] = column.to_pylist()
        return values

    def required(self, name: str, kind: pa.DataType) -> Iterable[Any]:
        values: list[Any] = self.required_column(name, kind).to_pylist()
        return values

    def maps(self, name: str) -> Iterable[StringMap | None]:
        column = self._columns.get(name)
        if column is None or column.null_count == self._count:
            return repeat(None, self._count)
        if not pa.types.is_map(column.type):
            raise _malformed(self._action, f"{name} is not a map but {column.type}")
        keys, items = column.keys.to_pylist(), column.items.to_pylist()
        bounds = pairwise(column.offsets.to_pylist())
        return [
            dict(zip(keys[start:end], items[start:end], strict=True)) if valid else None
            for valid, (start, end) in zip(column.is_valid().to_pylist(), bounds, strict=True)
        ]

    def deletion_vectors(self) -> Iterable[DeletionVector | None]:
        column = self._columns.get("deletionVector")
        if column is None or column.null_count == self._count:
            return repeat(None, self._count)
        # some writers make the structure present and its members null
        return [
            _converted(self._action, value, DeletionVector)
            if value is not None and value.get("storageType") is not None
            else None
            for value in column.to_pylist()
        ]

    def stats(self, instants: frozenset[str]) -> Iterable[str | None]:
        """The text, made from the typed columns where it is absent."""
        texts = self.optional("stats", pa.string())
        parsed = self._columns.get("stats_parsed")
        if parsed is None or not pa.types.is_struct(parsed.type):
            return texts
        made = stats_texts(parsed, path=f"{self._action}.stats_parsed", instants=instants)
        return [
            rebuilt if text is None else text for text, rebuilt in zip(texts, made, strict=True)
        ]


def _action(name: str, value: dict[str, Any], kind: pa.StructType) -> Action:
    body = _ABSENT.get(name, {}) | _plain(value, kind)
    action: Action = _converted(name, body, ACTION_TYPES[name])
    return action


def _plain(value: Any, kind: pa.DataType) -> Any:
    """The value as JSON would give it: maps as dictionaries, no null members."""
    if pa.types.is_struct(kind):
        members = ((field, value[field.name]) for field in kind)
        return {
            field.name: _plain(member, field.type)
            for field, member in members
            if member is not None
        }
    return dict(value) if pa.types.is_map(kind) else value


def _converted(name: str, body: dict[str, Any], kind: type[Any]) -> Any:
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as exc:
        raise _malformed(name, str(exc)) from exc


def _malformed(name: str, reason: str) -> MalformedActionError:
    return MalformedActionError(f"{name} in a checkpoint: {reason}", rule="DL-CP-01")
