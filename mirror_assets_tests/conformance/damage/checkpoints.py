"""Damage to checkpoints and their sidecars."""

from __future__ import annotations

import io
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq

from mirror_assets.delta.checkpoint import checkpoint_schema
from mirror_assets.delta.log_paths import ClassicCheckpoint
from mirror_assets_tests.conformance.damage.kinds import damage, has_history, setting
from mirror_assets_tests.conformance.logs import CHECKPOINT, NOW_MS, MemoryLog, Row

DAY_MS = 24 * 60 * 60 * 1000


@damage("DL-CP-01")
def a_checkpoint_lacks_a_file(log: MemoryLog) -> bool:
    return _rows(log, "add", lambda rows, row: rows.remove(row)) and has_history(log)


@damage("DL-CP-01")
def a_checkpoint_has_a_file_too_many(log: MemoryLog) -> bool:
    def change(rows: list[Row], row: Row) -> None:
        rows.append({"add": {**row["add"], "path": "ghost.parquet"}})

    return _rows(log, "add", change) and has_history(log)


@damage("DL-CP-01")
def a_checkpoint_lacks_a_transaction(log: MemoryLog) -> bool:
    return _rows(log, "txn", lambda rows, row: rows.remove(row)) and has_history(log)


@damage("DL-CP-01")
def a_checkpoint_tells_another_transaction(log: MemoryLog) -> bool:
    return log.edit_row("txn", setting(version=8)) and has_history(log)


@damage("DL-CP-01")
def a_checkpoint_tells_another_schema(log: MemoryLog) -> bool:
    return log.edit_row("metaData", setting(schemaString="{}")) and has_history(log)


@damage("DL-CP-15")
def a_checkpoint_tells_another_size(log: MemoryLog) -> bool:
    return log.edit_row("add", setting(size=5)) and has_history(log)


@damage("DL-CP-02")
def a_row_holds_two_actions(log: MemoryLog) -> bool:
    def change(rows: list[Row], row: Row) -> None:
        row["txn"] = {"appId": "x", "version": 1}

    return _rows(log, "protocol", change)


@damage("DL-CP-02")
def a_row_holds_no_action(log: MemoryLog) -> bool:
    return _rows(log, "protocol", lambda rows, _: rows.append({}))


@damage("DL-CP-03")
def a_checkpoint_holds_provenance(log: MemoryLog) -> bool:
    name = log.checkpoint_name()
    if name is None:
        return False
    schema = pq.read_schema(io.BytesIO(log.files[name]))
    schema = schema.append(pa.field("commitInfo", pa.struct({"operation": pa.string()})))
    log.put_rows(name, [*log.rows(name), {"commitInfo": {"operation": "WRITE"}}], schema)
    return True


@damage("DL-CP-04")
def a_checkpoint_has_no_protocol(log: MemoryLog) -> bool:
    return _rows(log, "protocol", lambda rows, row: rows.remove(row))


@damage("DL-CP-04")
def a_checkpoint_has_two_metadata_rows(log: MemoryLog) -> bool:
    return _rows(log, "metaData", lambda rows, row: rows.append(row))


@damage("DL-CP-05")
def a_checkpoint_repeats_a_file(log: MemoryLog) -> bool:
    return not _is_multi_part(log) and _rows(log, "add", lambda rows, row: rows.append(row))


@damage("DL-MP-02")
def two_parts_repeat_a_file(log: MemoryLog) -> bool:
    return _is_multi_part(log) and _rows(log, "add", lambda rows, row: rows.append(row))


@damage("DL-REC-05")
def a_file_is_live_and_removed_in_a_checkpoint(log: MemoryLog) -> bool:
    def change(rows: list[Row], row: Row) -> None:
        remove = {"path": row["add"]["path"], "deletionTimestamp": NOW_MS, "dataChange": False}
        rows.append({"remove": remove})

    return "deletionVector" not in str(log.file_with("add")) and _rows(log, "add", change)


@damage("DL-REC-05")
def a_checkpoint_repeats_a_tombstone(log: MemoryLog) -> bool:
    return _rows(log, "remove", lambda rows, row: rows.append(row))


@damage("DL-REC-05")
def a_checkpoint_repeats_a_transaction(log: MemoryLog) -> bool:
    return _rows(log, "txn", lambda rows, row: rows.append(row))


@damage("DL-REC-05")
def a_checkpoint_repeats_a_domain(log: MemoryLog) -> bool:
    return _rows(log, "domainMetadata", lambda rows, row: rows.append(row))


@damage("DL-REC-05")
def a_path_is_live_with_two_vectors(log: MemoryLog) -> bool:
    vector = {"storageType": "i", "pathOrInlineDv": "00000", "sizeInBytes": 4, "cardinality": 1}

    def change(rows: list[Row], row: Row) -> None:
        rows.append({"add": {**row["add"], "deletionVector": vector}})

    return _rows(log, "add", change)


@damage("DL-CP-01")
def a_checkpoint_tells_another_protocol(log: MemoryLog) -> bool:
    old = setting(minReaderVersion=1, minWriterVersion=1, readerFeatures=None, writerFeatures=None)
    return has_history(log) and log.edit_row("protocol", old)


@damage("DL-FILE-13")
def a_part_is_torn(log: MemoryLog) -> bool:
    name = next((name for name in log.files if ".0000000002.0000000002." in name), None)
    if name is not None:
        log.files[name] = log.files[name][:-30]
    return name is not None


@damage("DL-FILE-13")
def a_sidecar_is_torn(log: MemoryLog) -> bool:
    sidecar = _sidecar(log)
    if sidecar is not None:
        log.files[sidecar] = log.files[sidecar][:-9]
    return sidecar is not None


@damage("DL-REC-06")
def a_checkpoint_keeps_an_expired_tombstone(log: MemoryLog) -> bool:
    change = setting(deletionTimestamp=NOW_MS - 30 * DAY_MS)
    return log.edit_row("remove", change) and has_history(log)


@damage("DL-REC-06")
def a_checkpoint_lacks_a_tombstone(log: MemoryLog) -> bool:
    return _rows(log, "remove", lambda rows, row: rows.remove(row)) and has_history(log)


@damage("DL-CP-06")
def a_checkpoint_loses_statistics(log: MemoryLog) -> bool:
    return log.edit_row("add", setting(stats=None)) and has_history(log)


@damage("DL-CP-11")
def a_checkpoint_lists_no_features_as_an_empty_list(log: MemoryLog) -> bool:
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    return log.edit_row("protocol", setting(**protocol, readerFeatures=[], writerFeatures=[]))


@damage("DL-CP-12")
def a_size_is_of_32_bits(log: MemoryLog) -> bool:
    return _retyped(log, "add", "size", pa.int32())


@damage("DL-CP-12")
def a_protocol_version_is_of_64_bits(log: MemoryLog) -> bool:
    return _retyped(log, "protocol", "minReaderVersion", pa.int64())


@damage("DL-CP-14")
def a_checkpoint_has_no_column_of_statistics(log: MemoryLog) -> bool:
    return _retyped(log, "add", "stats", None)


@damage("DL-CP-13")
def a_checkpoint_entry_changes_data(log: MemoryLog) -> bool:
    return log.edit_row("add", setting(dataChange=True))


@damage("DL-CP-18")
def a_checkpoint_has_another_codec(log: MemoryLog) -> bool:
    name = log.checkpoint_name()
    if name is None:
        return False
    table, sink = pq.read_table(io.BytesIO(log.files[name])), io.BytesIO()
    pq.write_table(table, sink, compression="gzip", store_schema=False)
    log.files[name] = sink.getvalue()
    return True


@damage("DL-STAT-01")
def statistics_in_a_checkpoint_are_not_json(log: MemoryLog) -> bool:
    return log.edit_row("add", setting(stats="{"))


@damage("DL-CPM-01")
def a_v2_checkpoint_names_another_version(log: MemoryLog) -> bool:
    return log.edit_row("checkpointMetadata", setting(version=9))


@damage("DL-CPM-01")
def the_head_of_a_v2_checkpoint_counts_wrong(log: MemoryLog) -> bool:
    return log.edit_row("checkpointMetadata", setting(tags={"sidecarNumActions": "99"}))


@damage("DL-V2-01")
def a_v2_checkpoint_comes_without_its_feature(log: MemoryLog) -> bool:
    protocol = {"readerFeatures": [], "writerFeatures": []}
    return _has_head(log) and log.edit_row("protocol", setting(**protocol))


@damage("DL-V2-02")
def a_v2_checkpoint_has_two_heads(log: MemoryLog) -> bool:
    return _rows(log, "checkpointMetadata", lambda rows, row: rows.append(row))


@damage("DL-V2-04")
def a_file_is_beside_the_sidecars(log: MemoryLog) -> bool:
    sidecar, name = _sidecar(log), log.checkpoint_name()
    if sidecar is None or name is None:
        return False
    row = next(row for row in log.rows(sidecar) if "add" in row)
    log.put_rows(name, [*log.rows(name), {"add": {**row["add"], "path": "x.parquet"}}])
    return True


@damage("DL-V2-05")
def a_sidecar_is_missing(log: MemoryLog) -> bool:
    sidecar = _sidecar(log)
    return sidecar is not None and bool(log.files.pop(sidecar))


@damage("DL-V2-03")
def a_sidecar_has_a_protocol_column(log: MemoryLog) -> bool:
    sidecar = _sidecar(log)
    if sidecar is None:
        return False
    schema = checkpoint_schema()
    kept = pa.schema([schema.field("add"), schema.field("remove"), schema.field("protocol")])
    log.put_rows(sidecar, log.rows(sidecar), kept)
    return True


@damage("DL-V2-06")
def a_v2_name_hides_a_classic_checkpoint(log: MemoryLog) -> bool:
    return _sidecar(log) is None and _rows(
        log, "checkpointMetadata", lambda rows, row: rows.remove(row)
    )


@damage("DL-V2-09")
def sidecars_hang_under_a_classic_name(log: MemoryLog) -> bool:
    name = log.checkpoint_name()
    if _sidecar(log) is None or name is None:
        return False
    log.files[ClassicCheckpoint(CHECKPOINT).name] = log.files.pop(name)
    return True


@damage("DL-MP-01")
def parts_come_with_the_v2_feature(log: MemoryLog) -> bool:
    features = {"readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint"]}
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}
    return _is_multi_part(log) and log.edit_row("protocol", setting(**versions, **features))


@damage("DL-SC-01")
def a_sidecar_has_another_size(log: MemoryLog) -> bool:
    return log.edit_row("sidecar", setting(sizeInBytes=1))


@damage("DL-CP-07")
def a_checkpoint_lacks_statistics_in_columns(log: MemoryLog) -> bool:
    return _wants_columns(log)


@damage("DL-CP-08")
def a_checkpoint_lacks_partition_values_in_columns(log: MemoryLog) -> bool:
    name = log.file_with("add")
    partitioned = name is not None and any(
        row.get("add", {}).get("partitionValues") for row in log.rows(name)
    )
    return partitioned and _wants_columns(log)


@damage("DL-CP-10")
def removes_in_a_checkpoint_have_statistics(log: MemoryLog) -> bool:
    name = log.file_with("remove")
    if name is None:
        return False
    schema = pq.read_schema(io.BytesIO(log.files[name]))
    index = schema.get_field_index("remove")
    fields = [*schema.field(index).type, pa.field("stats", pa.string())]
    rows = log.rows(name)
    for row in rows:
        if "remove" in row:
            row["remove"]["stats"] = "{}"
    log.put_rows(name, rows, schema.set(index, pa.field("remove", pa.struct(fields))))
    return True


def _has_head(log: MemoryLog) -> bool:
    return log.file_with("checkpointMetadata") is not None


def _rows(log: MemoryLog, action: str, change: Callable[[list[Row], Row], object]) -> bool:
    name = log.file_with(action)
    if name is None:
        return False
    rows = log.rows(name)
    change(rows, next(row for row in rows if action in row))
    log.put_rows(name, rows)
    return True


def _retyped(log: MemoryLog, action: str, member: str, kind: pa.DataType | None) -> bool:
    name = log.file_with(action)
    if name is None:
        return False
    schema = pq.read_schema(io.BytesIO(log.files[name]))
    index = schema.get_field_index(action)
    fields = [
        field.with_type(kind) if field.name == member else field
        for field in schema.field(index).type
    ]
    if kind is None:
        fields = [field for field in fields if field.name != member]
    log.put_rows(name, log.rows(name), schema.set(index, pa.field(action, pa.struct(fields))))
    return True


def _is_multi_part(log: MemoryLog) -> bool:
    return any(".0000000001.0000000002." in name for name in log.files)


def _sidecar(log: MemoryLog) -> str | None:
    return next((name for name in log.files if name.startswith("_sidecars/")), None)


def _wants_columns(log: MemoryLog) -> bool:
    """The table asks for statistics in columns, which its checkpoint does not have."""

    def change(metadata: Row) -> None:
        metadata["configuration"] = {"delta.checkpoint.writeStatsAsStruct": "true"}

    protocol = setting(minReaderVersion=1, minWriterVersion=4, readerFeatures=None)
    both = log.edit_row("protocol", lambda p: (protocol(p), p.pop("writerFeatures", None)))
    return both and log.file_with("add") is not None and log.edit_row("metaData", change)
