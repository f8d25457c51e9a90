"""Actions as rows and back, without loss.

A row is a tuple in the order of its table's columns, ready for every way of inserting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import orjson
from sqlalchemy import RowMapping, Table

from mirror_assets.delta.actions import (
    ACTION_NAMES,
    Action,
    AddFile,
    CdcFile,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Format,
    MetaData,
    RemoveFile,
    TableProtocol,
    Txn,
    UnknownAction,
)
from mirror_assets.delta.commit_file import canonical_json, encode_action
from mirror_assets.metastore import tables
from mirror_assets.metastore.columns import Columns, Row, is_empty

Place = tuple[int, int, int]

#: the tables of actions that follow `commitInfo`, which stands in the version's own row
ACTION_TABLES: Final[dict[Table, str]] = {
    tables.dl_add_files: "num_adds",
    tables.dl_remove_files: "num_removes",
    tables.dl_metadata_updates: "num_metadata",
    tables.dl_protocol_updates: "num_protocol",
    tables.dl_txn_actions: "num_txns",
    tables.dl_domain_metadata: "num_domains",
    tables.dl_cdc_files: "num_cdc",
    tables.dl_unknown_actions: "num_unknown",
}
_NO_VECTOR: Final = ("", None, None, None, None, None)


def to_row(action: Action, place: Place, raw: str | None = None) -> tuple[Table, Row]:
    """The table an action belongs into and its row there.

    What no commit should hold (V2-only actions, a second commitInfo) goes to the unknown ones.
    """
    if (writer := _WRITERS.get(type(action))) is None:
        return tables.dl_unknown_actions, (*place, encode_action(action).decode(), raw)
    table, values, end = writer
    return table, (*place, *values(action), raw, *end)


def add_columns(adds: Sequence[AddFile], table_id: int, version: int, at: Sequence[int]) -> Columns:
    """The rows of many adds of one commit; `at` has their ordinals."""
    nothing = [None] * len(adds)
    columns = [
        [table_id] * len(adds),
        [version] * len(adds),
        at,
        [add.path for add in adds],
        [canonical_json(add.partition_values).decode() for add in adds],
        [add.size for add in adds],
        [add.modification_time for add in adds],
        [add.data_change for add in adds],
        [add.stats for add in adds],
        _texts([add.tags for add in adds]),
        *_vector_columns([add.deletion_vector for add in adds]),
        [add.base_row_id for add in adds],
        [add.default_row_commit_version for add in adds],
        [add.clustering_provider for add in adds],
        _texts([add.extra or None for add in adds]),
        nothing,
        nothing,
    ]
    return Columns(columns)


def from_row(table: Table, row: RowMapping | Mapping[str, Any]) -> Action:
    """The action that a row of one of the action tables holds."""
    return _READERS[table.name](row)


def _add_values(add: AddFile) -> Row:
    vector, tags, extra = add.deletion_vector, add.tags, add.extra
    return (
        add.path,
        canonical_json(add.partition_values).decode(),
        add.size,
        add.modification_time,
        add.data_change,
        add.stats,
        None if tags is None else _text(tags),
        *(_NO_VECTOR if vector is None else _vector_values(vector)),
        add.base_row_id,
        add.default_row_commit_version,
        add.clustering_provider,
        _text(extra) if extra else None,
    )


def _remove_values(remove: RemoveFile) -> Row:
    return (
        remove.path,
        remove.deletion_timestamp,
        remove.data_change,
        remove.extended_file_metadata,
        _text(remove.partition_values),
        remove.size,
        _text(remove.tags),
        *_vector_values(remove.deletion_vector),
        remove.base_row_id,
        remove.default_row_commit_version,
        remove.stats,
        _text(remove.extra or None),
    )


def _metadata_values(metadata: MetaData) -> Row:
    return (
        metadata.id,
        metadata.name,
        metadata.description,
        metadata.format.provider,
        _text(metadata.format.options),
        metadata.schema_string,
        _text(metadata.partition_columns),
        _text(metadata.configuration),
        metadata.created_time,
        _text(metadata.extra or None),
    )


def _protocol_values(protocol: TableProtocol) -> Row:
    return (
        protocol.min_reader_version,
        protocol.min_writer_version,
        _text(protocol.reader_features),
        _text(protocol.writer_features),
        _text(protocol.extra or None),
    )


def _txn_values(txn: Txn) -> Row:
    return (txn.app_id, txn.version, txn.last_updated, _text(txn.extra or None))


def _domain_values(domain: DomainMetadata) -> Row:
    return (domain.domain, domain.configuration, domain.removed, _text(domain.extra or None))


def _cdc_values(cdc: CdcFile) -> Row:
    values = _text(cdc.partition_values)
    return (cdc.path, values, cdc.size, _text(cdc.tags), cdc.data_change, _text(cdc.extra or None))


def _vector_values(vector: DeletionVector | None) -> Row:
    if vector is None:
        return _NO_VECTOR
    return (
        vector.unique_id,
        vector.storage_type,
        vector.path_or_inline_dv,
        vector.offset,
        vector.size_in_bytes,
        vector.cardinality,
    )


def _add(row: RowMapping) -> AddFile:
    return AddFile(
        path=row["path"],
        partition_values=orjson.loads(row["partition_values"]),
        size=row["size"],
        modification_time=row["modification_time"],
        data_change=row["data_change"],
        stats=row["stats"],
        tags=_value(row["tags"]),
        deletion_vector=_vector(row),
        base_row_id=row["base_row_id"],
        default_row_commit_version=row["default_row_commit_version"],
        clustering_provider=row["clustering_provider"],
        extra=_value(row["extra"]) or {},
    )


def _remove(row: RowMapping) -> RemoveFile:
    return RemoveFile(
        path=row["path"],
        deletion_timestamp=row["deletion_timestamp"],
        data_change=row["data_change"],
        extended_file_metadata=row["extended_file_metadata"],
        partition_values=_value(row["partition_values"]),
        size=row["size"],
        tags=_value(row["tags"]),
        deletion_vector=_vector(row),
        base_row_id=row["base_row_id"],
        default_row_commit_version=row["default_row_commit_version"],
        stats=row["stats"],
        extra=_value(row["extra"]) or {},
    )


def _metadata(row: RowMapping) -> MetaData:
    options = orjson.loads(row["format_options"])
    return MetaData(
        id=row["id"],
        name=row["name"],
        description=row["description"],
        format=Format(provider=row["format_provider"], options=options),
        schema_string=row["schema_string"],
        partition_columns=orjson.loads(row["partition_columns"]),
        configuration=orjson.loads(row["configuration"]),
        created_time=row["created_time"],
        extra=_value(row["extra"]) or {},
    )


def _protocol(row: RowMapping) -> TableProtocol:
    return TableProtocol(
        min_reader_version=row["min_reader_version"],
        min_writer_version=row["min_writer_version"],
        reader_features=_value(row["reader_features"]),
        writer_features=_value(row["writer_features"]),
        extra=_value(row["extra"]) or {},
    )


def _txn(row: RowMapping) -> Txn:
    return Txn(
        app_id=row["app_id"],
        version=row["app_version"],
        last_updated=row["last_updated"],
        extra=_value(row["extra"]) or {},
    )


def _domain(row: RowMapping) -> DomainMetadata:
    return DomainMetadata(
        domain=row["domain"],
        configuration=row["configuration"],
        removed=row["removed"],
        extra=_value(row["extra"]) or {},
    )


def _cdc(row: RowMapping) -> CdcFile:
    return CdcFile(
        path=row["path"],
        partition_values=orjson.loads(row["partition_values"]),
        size=row["size"],
        tags=_value(row["tags"]),
        data_change=row["data_change"],
        extra=_value(row["extra"]) or {},
    )


def _unknown(row: RowMapping) -> Action:
    fields = orjson.loads(row["body"])
    if set(fields) == {ACTION_NAMES[CommitInfo]} and isinstance(fields["commitInfo"], dict):
        return CommitInfo(fields["commitInfo"])
    return UnknownAction(fields=fields)


def _vector(row: RowMapping) -> DeletionVector | None:
    if row["dv_storage_type"] is None:
        return None
    return DeletionVector(
        storage_type=row["dv_storage_type"],
        path_or_inline_dv=row["dv_path_or_inline_dv"],
        offset=row["dv_offset"],
        size_in_bytes=row["dv_size_in_bytes"],
        cardinality=row["dv_cardinality"],
    )


#: by kind of action: its table, its values, and what a row has after them
_WRITERS: Final[dict[type[Any], tuple[Table, Callable[[Any], Row], Row]]] = {
    AddFile: (tables.dl_add_files, _add_values, (None,)),
    RemoveFile: (tables.dl_remove_files, _remove_values, (None,)),
    MetaData: (tables.dl_metadata_updates, _metadata_values, ()),
    TableProtocol: (tables.dl_protocol_updates, _protocol_values, ()),
    Txn: (tables.dl_txn_actions, _txn_values, ()),
    DomainMetadata: (tables.dl_domain_metadata, _domain_values, ()),
    CdcFile: (tables.dl_cdc_files, _cdc_values, ()),
}
_READERS: Final[dict[str, Callable[[Any], Action]]] = {
    "dl_add_files": _add,
    "dl_remove_files": _remove,
    "dl_metadata_updates": _metadata,
    "dl_protocol_updates": _protocol,
    "dl_txn_actions": _txn,
    "dl_domain_metadata": _domain,
    "dl_cdc_files": _cdc,
    "dl_unknown_actions": _unknown,
}


def _text(value: Mapping[str, Any] | list[str] | None) -> str | None:
    return None if value is None else canonical_json(value).decode()


def _texts(values: list[Any]) -> list[str | None]:
    return values if is_empty(values) else [_text(v) for v in values]


def _vector_columns(vectors: list[DeletionVector | None]) -> Sequence[Sequence[Any]]:
    if is_empty(vectors):
        return [[value] * len(vectors) for value in _NO_VECTOR]
    return list(zip(*map(_vector_values, vectors), strict=True))


def _value(text: str | None) -> Any:
    return None if text is None else orjson.loads(text)
