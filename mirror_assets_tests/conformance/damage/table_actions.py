"""Damage to metaData, schema, protocol, application versions, domains and change files."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from mirror_assets.delta.log_paths import CommitName
from mirror_assets_tests.conformance.damage.kinds import DAMAGES, damage, set_protocol, setting
from mirror_assets_tests.conformance.logs import HEAD, MemoryLog, Row


def in_first(rule: str, name: str, action: str, /, **members: Any) -> None:
    """Damage to an action of version 0."""
    DAMAGES[name] = (
        rule,
        lambda log: CommitName(0).name in log.files and log.edit(0, action, setting(**members)),
    )


in_first("DL-META-01", "metadata_has_no_id", "metaData", id=None)
in_first("DL-META-01", "metadata_has_no_schema", "metaData", schemaString=None)
in_first("DL-META-02", "the_id_is_no_guid", "metaData", id="testId")
in_first("DL-META-03", "the_format_is_orc", "metaData", format={"provider": "orc", "options": {}})
in_first("DL-META-04", "the_name_is_a_number", "metaData", name=5)
in_first("DL-META-05", "a_property_is_a_number", "metaData", configuration={"a": 1})
in_first(
    "DL-META-07", "a_partition_column_is_not_in_the_schema", "metaData", partitionColumns=["x"]
)
in_first(
    "DL-META-09",
    "the_configuration_speaks_of_the_protocol",
    "metaData",
    configuration={"delta.minReaderVersion": "1"},
)
in_first("DL-SCH-01", "the_schema_is_not_json", "metaData", schemaString="{")
in_first("DL-SCH-01", "the_schema_is_no_struct", "metaData", schemaString='"long"')
in_first(
    "DL-CLN-11",
    "the_log_is_kept_shorter_than_tombstones",
    "metaData",
    configuration={"delta.logRetentionDuration": "interval 1 day"},
)


def in_schema(rule: str, name: str, change: Callable[[list[Row]], object]) -> None:
    """Damage to the fields of the schema."""

    def apply(log: MemoryLog) -> bool:
        def edit(metadata: Row) -> None:
            schema = json.loads(metadata["schemaString"])
            change(schema["fields"])
            metadata["schemaString"] = json.dumps(schema)

        return CommitName(0).name in log.files and log.edit(0, "metaData", edit)

    DAMAGES[name] = (rule, apply)


in_schema("DL-SCH-02", "a_type_is_unknown", lambda fields: fields[0].update(type="int128"))
in_schema(
    "DL-SCH-02", "a_decimal_is_too_wide", lambda fields: fields[1].update(type="decimal(50,2)")
)
in_schema("DL-SCH-03", "a_field_has_no_nullable", lambda fields: fields[0].pop("nullable"))
in_schema(
    "DL-SCH-04",
    "an_array_has_no_contains_null",
    lambda fields: fields[1].update(type={"type": "array", "elementType": "long"}),
)
in_schema("DL-SCH-05", "two_columns_differ_in_case", lambda fields: fields[1].update(name="ID"))
in_schema(
    "DL-SCH-07", "a_type_needs_a_feature", lambda fields: fields[1].update(type="timestamp_ntz")
)
in_schema(
    "DL-SCH-08",
    "a_default_needs_a_feature",
    lambda fields: fields[1]["metadata"].update(CURRENT_DEFAULT="1"),
)


@damage("DL-SCH-09")
def a_column_name_has_a_blank(log: MemoryLog) -> bool:
    def edit(metadata: Row) -> None:
        schema = json.loads(metadata["schemaString"])
        schema["fields"][1]["name"] = "the name"
        metadata["schemaString"] = json.dumps(schema)

    if CommitName(0).name not in log.files or b"columnMapping" in log.commit(0):
        return False
    return log.edit(0, "metaData", edit)


in_first("DL-PROT-01", "the_reader_version_is_missing", "protocol", minReaderVersion=None)
in_first("DL-PROT-02", "the_reader_version_is_of_the_future", "protocol", minReaderVersion=9)


@damage("DL-PROT-03")
def reader_features_are_listed_without_version_3(log: MemoryLog) -> bool:
    return set_protocol(log, reader=1, readerFeatures=[])


@damage("DL-PROT-04")
def writer_features_are_listed_without_version_7(log: MemoryLog) -> bool:
    return set_protocol(log, reader=1, minWriterVersion=2, writerFeatures=["appendOnly"])


@damage("DL-PROT-05")
def reader_3_comes_with_writer_5(log: MemoryLog) -> bool:
    return set_protocol(log, minReaderVersion=3, minWriterVersion=5, readerFeatures=[])


@damage("DL-PROT-06")
def a_reader_feature_is_no_writer_feature(log: MemoryLog) -> bool:
    return set_protocol(
        log,
        minReaderVersion=3,
        minWriterVersion=7,
        readerFeatures=["deletionVectors"],
        writerFeatures=["appendOnly"],
    )


@damage("DL-PROT-07")
def a_writer_feature_is_listed_for_readers(log: MemoryLog) -> bool:
    return set_protocol(
        log,
        minReaderVersion=3,
        minWriterVersion=7,
        readerFeatures=["appendOnly"],
        writerFeatures=["appendOnly"],
    )


@damage("DL-PROT-08")
def readers_are_not_told_of_a_feature(log: MemoryLog) -> bool:
    return set_protocol(
        log,
        minReaderVersion=3,
        minWriterVersion=7,
        readerFeatures=[],
        writerFeatures=["columnMapping"],
    )


@damage("DL-PROT-09")
def a_feature_lacks_what_it_needs(log: MemoryLog) -> bool:
    return set_protocol(log, minReaderVersion=1, minWriterVersion=7, writerFeatures=["clustering"])


@damage("DL-PROT-10")
def a_feature_disappears(log: MemoryLog) -> bool:
    protocol = {"minReaderVersion": 1, "minWriterVersion": 1}
    log.put(HEAD, [*log.lines(HEAD), {"protocol": protocol}])
    return True


@damage("DL-META-08")
def the_id_changes(log: MemoryLog) -> bool:
    if CommitName(0).name not in log.files:
        return False
    metadata = next(line["metaData"] for line in log.lines(0) if "metaData" in line)
    metadata["id"] = "11111111-9794-4965-ba6e-6ee3c0d22af9"
    log.put(HEAD, [*log.lines(HEAD), {"metaData": metadata}])
    return True


# txn, domains, change files


@damage("DL-TXN-01")
def a_txn_has_no_application(log: MemoryLog) -> bool:
    return CommitName(3).name in log.files and log.edit(3, "txn", setting(appId=None))


@damage("DL-DOM-01")
def a_domain_has_no_configuration(log: MemoryLog) -> bool:
    return log.edit(HEAD, "domainMetadata", setting(configuration=None))


@damage("DL-DOM-02")
def a_domain_comes_without_its_feature(log: MemoryLog) -> bool:
    domain = {"domain": "app.mine", "configuration": "{}", "removed": False}
    if "domainMetadata" in log.commit(HEAD).decode():
        return False
    log.put(HEAD, [*log.lines(HEAD), {"domainMetadata": domain}])
    return True


@damage("DL-DOM-04")
def a_removed_domain_loses_its_configuration(log: MemoryLog) -> bool:
    return b"app.settings" in log.commit(HEAD) and log.edit(
        HEAD, "domainMetadata", setting(configuration="{}", removed=True)
    )


@damage("DL-CDC-01")
def a_change_file_has_no_size(log: MemoryLog) -> bool:
    return log.edit(5, "cdc", setting(size=None))


@damage("DL-CDC-02")
def a_change_file_changes_data(log: MemoryLog) -> bool:
    return log.edit(5, "cdc", setting(dataChange=True))


@damage("DL-CDC-04")
def a_change_file_comes_without_its_feature(log: MemoryLog) -> bool:
    cdc = {"path": "_change_data/c.parquet", "partitionValues": {}, "size": 5, "dataChange": False}
    if b"changeDataFeed" in log.files.get(CommitName(0).name, b""):
        return False
    log.put(HEAD, [*log.lines(HEAD), {"cdc": cdc}])
    return True
