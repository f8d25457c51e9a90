"""Damage to what single table features ask for."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from mirror_assets.delta.log_paths import CommitName
from mirror_assets_tests.conformance.damage.kinds import damage, set_protocol, setting, without
from mirror_assets_tests.conformance.logs import (
    CHECKPOINT,
    HEAD,
    NOW_MS,
    VECTOR_FILE,
    MemoryLog,
    Row,
)


@damage("DL-ICT-02")
def in_commit_time_is_not_first(log: MemoryLog) -> bool:
    lines = log.lines(HEAD)
    log.put(HEAD, [*lines[1:], lines[0]])
    return _has_ict(log)


@damage("DL-ICT-03")
def in_commit_time_is_missing(log: MemoryLog) -> bool:
    return _has_ict(log) and log.edit(HEAD, "commitInfo", setting(inCommitTimestamp=None))


@damage("DL-ICT-04")
def in_commit_time_goes_back(log: MemoryLog) -> bool:
    return _has_ict(log) and log.edit(HEAD, "commitInfo", setting(inCommitTimestamp=NOW_MS))


@damage("DL-RT-01")
def a_file_has_no_row_id(log: MemoryLog) -> bool:
    return _has_row_ids(log) and log.edit(HEAD, "add", setting(baseRowId=None))


@damage("DL-RT-02")
def row_ids_overlap(log: MemoryLog) -> bool:
    return _has_row_ids(log) and log.edit(HEAD, "add", setting(baseRowId=(HEAD - 1) * 10 + 5))


@damage("DL-RT-03")
def the_mark_of_row_ids_falls(log: MemoryLog) -> bool:
    change = setting(configuration='{"rowIdHighWaterMark":3}')
    return _has_row_ids(log) and log.edit(HEAD, "domainMetadata", change)


@damage("DL-RT-04")
def a_new_file_has_an_old_row_version(log: MemoryLog) -> bool:
    return _has_row_ids(log) and log.edit(HEAD, "add", setting(defaultRowCommitVersion=1))


@damage("DL-RT-05")
def row_tracking_has_no_column_names(log: MemoryLog) -> bool:
    def change(metadata: Row) -> None:
        metadata["configuration"] = {"delta.enableRowTracking": "true"}

    return _has_row_ids(log) and log.edit(0, "metaData", change)


@damage("DL-REM-05")
def a_remove_has_other_row_ids(log: MemoryLog) -> bool:
    return _has_row_ids(log) and log.edit(CHECKPOINT, "remove", setting(baseRowId=99))


@damage("DL-CM-01")
def column_mapping_has_an_unknown_mode(log: MemoryLog) -> bool:
    return _mapped(log, lambda m: m["configuration"].update({"delta.columnMapping.mode": "x"}))


@damage("DL-CM-02")
def a_column_has_no_physical_name(log: MemoryLog) -> bool:
    def change(metadata: Row) -> None:
        schema = json.loads(metadata["schemaString"])
        schema["fields"][1]["metadata"] = {}
        metadata["schemaString"] = json.dumps(schema)

    return _mapped(log, change)


@damage("DL-CM-02")
def a_physical_column_is_used_again(log: MemoryLog) -> bool:
    """Its name stays, its id is another's."""
    if b"columnMapping" not in log.files.get(CommitName(0).name, b""):
        return False
    metadata = next(line["metaData"] for line in log.lines(0) if "metaData" in line)
    schema = json.loads(metadata["schemaString"])
    one, other = (field["metadata"] for field in schema["fields"][:2])
    key = "delta.columnMapping.id"
    one[key], other[key] = other[key], one[key]
    metadata["schemaString"] = json.dumps(schema)
    log.put(HEAD, [*log.lines(HEAD), {"metaData": metadata}])
    return True


@damage("DL-CM-03")
def the_largest_column_id_is_too_small(log: MemoryLog) -> bool:
    key = "delta.columnMapping.maxColumnId"
    return _mapped(log, lambda metadata: metadata["configuration"].update({key: "1"}))


@damage("DL-AO-01")
def an_append_only_table_loses_a_file(log: MemoryLog) -> bool:
    def change(metadata: Row) -> None:
        metadata["configuration"]["delta.appendOnly"] = "true"

    return b"appendOnly" in log.files.get(CommitName(0).name, b"") and log.edit(
        0, "metaData", change
    )


@damage("DL-DV-01")
def a_vector_is_of_an_unknown_kind(log: MemoryLog) -> bool:
    return _vector(log, storageType="x")


@damage("DL-DV-02")
def vectors_come_without_their_feature(log: MemoryLog) -> bool:
    return b"deletionVector" in log.commit(CHECKPOINT) and set_protocol(log, reader=1)


@damage("DL-DV-03")
def a_vector_has_no_uuid(log: MemoryLog) -> bool:
    return VECTOR_FILE in log.data and _vector(log, pathOrInlineDv="ab~~~")


@damage("DL-DV-05")
def the_file_of_a_vector_is_missing(log: MemoryLog) -> bool:
    return log.data.pop(VECTOR_FILE, None) is not None


@damage("DL-DV-05")
def the_file_of_a_vector_in_a_checkpoint_is_missing(log: MemoryLog) -> bool:
    """The commits that tell of it are gone."""
    if log.checkpoint_name() is None or log.data.pop(VECTOR_FILE, None) is None:
        return False
    for version in range(CHECKPOINT):
        del log.files[CommitName(version).name]
    return True


@damage("DL-DV-05")
def a_bit_of_a_vector_is_flipped(log: MemoryLog) -> bool:
    data = bytearray(log.data.get(VECTOR_FILE, b""))
    if not data:
        return False
    data[-6] ^= 1
    log.data[VECTOR_FILE] = bytes(data)
    return True


@damage("DL-DV-05")
def a_vector_deletes_more_rows_than_it_says(log: MemoryLog) -> bool:
    return _vector(log, cardinality=1)


@damage("DL-DV-05")
def a_vector_deletes_fewer_rows_than_it_says(log: MemoryLog) -> bool:
    return _vector(log, cardinality=3)


@damage("DL-DV-04")
def an_inline_vector_is_cut(log: MemoryLog) -> bool:
    text = log.commit(CHECKPOINT).decode()
    return '"storageType":"i"' in text and _vector(log, sizeInBytes=100)


@damage("DL-DV-06")
def a_file_with_a_vector_has_no_statistics(log: MemoryLog) -> bool:
    return b"deletionVector" in log.commit(CHECKPOINT) and log.edit(
        CHECKPOINT, "add", setting(stats=None)
    )


@damage("DL-DV-08")
def a_vector_has_a_transient_member(log: MemoryLog) -> bool:
    return _vector(log, maxRowIndex=9)


@damage("DL-REM-04")
def a_remove_names_another_vector(log: MemoryLog) -> bool:
    vector = {"storageType": "i", "pathOrInlineDv": "00000", "sizeInBytes": 4, "cardinality": 1}
    return b"deletionVector" in log.commit(CHECKPOINT) and log.edit(
        CHECKPOINT, "remove", setting(deletionVector=vector)
    )


@damage("DL-ADD-06")
def a_new_vector_comes_without_a_remove(log: MemoryLog) -> bool:
    return b"deletionVector" in log.commit(CHECKPOINT) and without(log, CHECKPOINT, "remove")


@damage("DL-ICT-01")
def in_commit_times_are_on_without_their_feature(log: MemoryLog) -> bool:
    return not _has_ict(log) and _property(log, "delta.enableInCommitTimestamps", "true")


@damage("DL-ICT-05")
def the_begin_of_in_commit_times_is_not_recorded(log: MemoryLog) -> bool:
    if not _has_ict(log):
        return False
    metadata = next(line["metaData"] for line in log.lines(0) if "metaData" in line)
    _property(log, "delta.enableInCommitTimestamps", "false")
    log.put(HEAD, [*log.lines(HEAD), {"metaData": metadata}])
    return True


@damage("DL-ICT-05")
def the_begin_of_in_commit_times_is_recorded_from_the_start(log: MemoryLog) -> bool:
    key = "delta.inCommitTimestampEnablementVersion"
    return _has_ict(log) and _property(log, key, "0")


@damage("DL-CAT-01")
def a_catalog_managed_table_has_no_times(log: MemoryLog) -> bool:
    return _catalog(log)


@damage("DL-CAT-02")
def a_catalog_managed_commit_has_no_id(log: MemoryLog) -> bool:
    return _catalog(log)


@damage("DL-CDF-01")
def change_files_come_while_the_feed_is_off(log: MemoryLog) -> bool:
    return b"changeDataFeed" in log.files.get(CommitName(0).name, b"") and _property(
        log, "delta.enableChangeDataFeed", "false"
    )


@damage("DL-META-10")
def a_partition_column_is_an_array(log: MemoryLog) -> bool:
    array = {"type": "array", "elementType": "long", "containsNull": True}
    return _partitioned(log) and _retype(log, -1, array)


@damage("DL-SCH-06")
def every_column_is_void(log: MemoryLog) -> bool:
    return not _partitioned(log) and _retype(log, 0, "void") and _retype(log, 1, "void")


@damage("DL-TW-01")
def a_type_changes_without_its_feature(log: MemoryLog) -> bool:
    if CommitName(0).name not in log.files:
        return False
    metadata = next(line["metaData"] for line in log.lines(0) if "metaData" in line)
    schema = json.loads(metadata["schemaString"])
    schema["fields"][0]["type"] = "double"
    lines = log.lines(HEAD)
    log.put(HEAD, [*lines, {"metaData": {**metadata, "schemaString": json.dumps(schema)}}])
    return True


@damage("DL-TW-02")
def a_recorded_type_change_ends_elsewhere(log: MemoryLog) -> bool:
    changes = [{"fromType": "integer", "toType": "short"}]
    return _column_metadata(log, **{"delta.typeChanges": changes})


@damage("DL-ICE-01")
def iceberg_compatibility_lacks_column_mapping(log: MemoryLog) -> bool:
    without = b"columnMapping" not in log.files.get(CommitName(0).name, b"columnMapping")
    return without and _property(log, "delta.enableIcebergCompatV2", "true")


@damage("DL-CLU-01")
def a_clustered_table_names_no_columns(log: MemoryLog) -> bool:
    features = ["clustering", "domainMetadata"]
    return set_protocol(log, minReaderVersion=1, minWriterVersion=7, writerFeatures=features)


@damage("DL-STAT-07")
def a_partition_column_has_statistics(log: MemoryLog) -> bool:
    def change(add: Row) -> None:
        key = next(iter(add["partitionValues"]))
        add["stats"] = json.dumps({"numRecords": 10, "minValues": {key: 1}})

    return _partitioned(log) and log.edit(HEAD, "add", change)


@damage("DL-DOM-03")
def a_domain_of_delta_is_unknown(log: MemoryLog) -> bool:
    return log.edit(HEAD, "domainMetadata", setting(domain="delta.future"))


def _has_ict(log: MemoryLog) -> bool:
    return b"enableInCommitTimestamps" in log.files.get(CommitName(0).name, b"")


def _has_row_ids(log: MemoryLog) -> bool:
    return b"rowTracking" in log.files.get(CommitName(0).name, b"")


def _mapped(log: MemoryLog, change: Callable[[Row], object]) -> bool:
    return b"columnMapping" in log.files.get(CommitName(0).name, b"") and log.edit(
        0, "metaData", change
    )


def _vector(log: MemoryLog, **members: Any) -> bool:
    lines = log.lines(CHECKPOINT)
    for line in lines:
        if "deletionVector" in line.get("add", {}):
            line["add"]["deletionVector"].update(members)
            log.put(CHECKPOINT, lines)
            return True
    return False


def _property(log: MemoryLog, key: str, value: str) -> bool:
    def change(metadata: Row) -> None:
        metadata["configuration"][key] = value

    return CommitName(0).name in log.files and log.edit(0, "metaData", change)


def _column_metadata(log: MemoryLog, **keys: Any) -> bool:
    def change(metadata: Row) -> None:
        schema = json.loads(metadata["schemaString"])
        schema["fields"][0]["metadata"].update(keys)
        metadata["schemaString"] = json.dumps(schema)

    return CommitName(0).name in log.files and log.edit(0, "metaData", change)


def _retype(log: MemoryLog, place: int, kind: Any) -> bool:
    def change(metadata: Row) -> None:
        schema = json.loads(metadata["schemaString"])
        schema["fields"][place]["type"] = kind
        metadata["schemaString"] = json.dumps(schema)

    return CommitName(0).name in log.files and log.edit(0, "metaData", change)


def _partitioned(log: MemoryLog) -> bool:
    return b'"partitionColumns":["day"]' in log.files.get(CommitName(0).name, b"")


def _catalog(log: MemoryLog) -> bool:
    names = ["catalogManaged", "inCommitTimestamp"]
    return not _has_ict(log) and set_protocol(
        log,
        minReaderVersion=3,
        minWriterVersion=7,
        readerFeatures=names[:1],
        writerFeatures=names,
    )
