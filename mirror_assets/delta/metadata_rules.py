"""Rules of metaData and protocol actions, and of the two together."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mirror_assets.delta.actions import INT64_MAX, Format, MetaData, TableProtocol
from mirror_assets.delta.conflicts import ISOLATION_PROPERTY, IsolationLevel
from mirror_assets.delta.features import (
    FENCE,
    READER_WITH_FEATURES,
    WRITER_WITH_FEATURES,
    check_protocol,
    configuration_needs,
    effective_features,
    has_feature,
    is_protocol_key,
    schema_needs,
    unsupported_writer_features,
)
from mirror_assets.delta.path_rules import check_text
from mirror_assets.delta.schema import (
    COLUMN_MAPPING_ID,
    COLUMN_MAPPING_PHYSICAL_NAME,
    PrimitiveType,
    StructField,
    StructType,
    check_schema,
    dotted,
    parse_schema,
    physical_name,
    short,
    walk_fields,
)
from mirror_assets.delta.table_rules import COLUMN_MAPPING_MODE, uses_physical_names
from mirror_assets.errors import RuleViolationError, UnsupportedTableError
from mirror_assets.findings import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_COLUMN_ID: Final = "delta.columnMapping.maxColumnId"

_PARQUET: Final = Format()
_GUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def check_writable(protocol: TableProtocol) -> None:
    """Refuse a protocol that we must not write to (DL-PROT-02, 11).

    Raises UnsupportedTableError.
    """
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    if reader > READER_WITH_FEATURES or writer > WRITER_WITH_FEATURES:
        message = f"the table asks for reader {reader} and writer {writer}"
        raise UnsupportedTableError(message, rule="DL-PROT-02", remedy="use a newer release")
    unsupported = unsupported_writer_features(protocol)
    if unsupported:
        message = f"we cannot write to a table with the features {sorted(unsupported)}"
        remedy = "commit with the engine that enabled them, or drop the features there"
        raise UnsupportedTableError(message, rule="DL-PROT-11", remedy=remedy)


def check_new_protocol(new: TableProtocol, old: TableProtocol | None) -> list[Finding]:
    """Check a protocol action. Raises RuleViolationError for the first breach."""
    findings = check_protocol(new)
    _raise_first_error(findings)
    lost = frozenset() if old is None else effective_features(old) - effective_features(new)
    lost -= {FENCE}  # it leaves no trace in a log that a later reader would have to know
    if lost:
        message = f"the protocol would lose the features {sorted(lost)}"
        raise _breach("DL-PROT-10", message, "keep them: `delta.features.protocol_with` does")
    return findings


def check_new_metadata(
    new: MetaData, old: MetaData | None, protocol: TableProtocol
) -> list[Finding]:
    """Check a metaData action under the protocol that it meets.

    Raises RuleViolationError for the first breach. What only another engine would refuse to
    write (DL-SCH-09, all columns partitioned) is refused in a schema that is new here, and a
    warning in one that was there before.
    """
    _check_members(new)
    if old is not None and old.id != new.id:
        raise _breach("DL-META-08", f"id changes from {short(old.id)} to {short(new.id)}")
    if "\n" in new.schema_string:
        raise _breach("DL-SCH-01", "schemaString has more than one line")
    schema = parse_schema(new.schema_string)
    mapped = uses_physical_names(new.configuration)
    is_new_schema = old is None or old.schema_string != new.schema_string
    findings = [
        *check_schema(schema, column_mapping=mapped),
        *_check_partition_columns(new, schema),
    ]
    _raise_first_error(findings, also=_OURS if is_new_schema else frozenset())
    _check_needs(schema, new, effective_features(protocol))
    if mapped:
        _check_column_mapping(schema, new, old)
    return [*findings, *_odd_metadata(new, old, schema, effective_features(protocol))]


#: rules of the reference writer, which we follow in schemas that begin here
_OURS: Final = frozenset({"DL-SCH-09", "DL-META-10"})


def _check_members(new: MetaData) -> None:
    check_text("DL-META-01", "id", new.id)
    check_text("DL-META-01", "schemaString", new.schema_string)
    for name, text in (("name", new.name), ("description", new.description)):
        if text is not None:
            check_text("DL-META-04", name, text)
    time = new.created_time
    if time is not None and (type(time) is not int or not -INT64_MAX <= time <= INT64_MAX):
        raise _breach("DL-META-04", f"createdTime is {short(time)}, not a 64-bit integer")
    if not new.id:
        raise _breach("DL-META-01", "id is empty")
    if new.format != _PARQUET:
        raise _breach("DL-META-03", f"format is {short(new.format)}, not plain parquet")
    if type(new.partition_columns) is not list or type(new.configuration) is not dict:
        raise _breach("DL-META-01", "partitionColumns is not a list or configuration not a dict")
    for column in new.partition_columns:
        check_text("DL-META-07", "a partition column", column)
    for key, value in new.configuration.items():
        check_text("DL-META-05", "a key of configuration", key)
        check_text("DL-META-05", f"the property {short(key)}", value)
        if is_protocol_key(key):
            message = f"{short(key)} belongs to the protocol action, not into configuration"
            raise _breach("DL-META-09", message, "use `delta.features.without_protocol_keys`")


def _check_partition_columns(new: MetaData, schema: StructType) -> Iterator[Finding]:
    columns = new.partition_columns
    if len(set(columns)) != len(columns):
        yield _finding("DL-META-07", Severity.ERROR, f"partitionColumns repeats: {short(columns)}")
    for column in columns:
        member = schema.find(column)
        if member is None:
            message = f"the partition column {short(column)} is not in the schema"
            yield _finding("DL-META-07", Severity.ERROR, message)
        elif not isinstance(member.type, PrimitiveType) or member.type.name == "variant":
            message = f"the partition column {short(column)} is not of a primitive type"
            yield _finding("DL-META-10", Severity.ERROR, message)
    if columns and len(columns) == len(schema.fields):
        message = "every column is a partition column: the data files would be empty"
        yield _finding("DL-META-10", Severity.WARNING, message)


def _check_needs(schema: StructType, new: MetaData, features: frozenset[str]) -> None:
    for need in schema_needs(schema):
        if not has_feature(features, need.feature):
            message = f"{need.because}, but the protocol lacks the feature {need.feature}"
            raise _breach(need.rule, message, "add it: `delta.features.protocol_with`")
    level = new.configuration.get(ISOLATION_PROPERTY, IsolationLevel.SERIALIZABLE)
    if level not in (IsolationLevel.SERIALIZABLE, IsolationLevel.WRITE_SERIALIZABLE):
        message = f"{ISOLATION_PROPERTY} is {short(level)}"
        raise _breach("DL-META-05", message, "use Serializable or WriteSerializable")
    mode = new.configuration.get(COLUMN_MAPPING_MODE, "none").lower()
    if mode not in ("none", "name", "id"):
        raise _breach("DL-CM-01", f"{COLUMN_MAPPING_MODE} is {short(mode)}")
    if mode != "none" and "columnMapping" not in features:
        raise _breach("DL-CM-01", f"column mapping is {mode!r}, but not in the protocol")


def _check_column_mapping(schema: StructType, new: MetaData, old: MetaData | None) -> None:
    ids: set[int] = set()
    physical: set[tuple[str, ...]] = set()
    for path, member in walk_physically(schema):
        number = member.metadata.get(COLUMN_MAPPING_ID)
        name = member.metadata.get(COLUMN_MAPPING_PHYSICAL_NAME)
        if type(number) is not int or type(name) is not str:
            message = f"the column {dotted(path)} has no column mapping id or physical name"
            raise _breach("DL-CM-02", message)
        if number in ids or path in physical:
            raise _breach("DL-CM-02", f"the id {number} or the name {dotted(path)} occurs twice")
        ids.add(number)
        physical.add(path)
    largest = new.configuration.get(MAX_COLUMN_ID, "")
    before = "0" if old is None else old.configuration.get(MAX_COLUMN_ID, "0")
    smallest = max(ids | {int(before) if before.isdecimal() else 0})
    if not largest.isdecimal() or int(largest) < smallest:
        message = f"{MAX_COLUMN_ID} is {short(largest)}, but must be at least {smallest}"
        raise _breach("DL-CM-03", message)


def walk_physically(schema: StructType) -> Iterator[tuple[tuple[str, ...], StructField]]:
    """All fields with their path by physical names."""
    names: dict[tuple[str, ...], tuple[str, ...]] = {}
    for path, member in walk_fields(schema):
        depth = next((d for d in range(len(path) - 1, 0, -1) if path[:d] in names), 0)
        own = (*names.get(path[:depth], ()), *path[depth:-1], physical_name(member))
        names[path] = own
        yield own, member


def _odd_metadata(
    new: MetaData, old: MetaData | None, schema: StructType, features: frozenset[str]
) -> Iterator[Finding]:
    if not _GUID.fullmatch(new.id):
        yield _finding("DL-META-02", Severity.WARNING, f"id {short(new.id)} is not a GUID")
    for need in configuration_needs(new.configuration):
        if not has_feature(features, need.feature):
            message = f"{need.because}, but without the feature {need.feature} it has no effect"
            yield _finding(need.rule, Severity.WARNING, message)
    if old is None:
        return
    if old.partition_columns != new.partition_columns:
        message = "the partition columns change: every live file must be replaced in this commit"
        yield _finding("DL-ADD-07", Severity.WARNING, message)
    if old.schema_string != new.schema_string:
        yield from _changed_types(old, schema, features)


def _changed_types(
    old: MetaData, schema: StructType, features: frozenset[str]
) -> Iterator[Finding]:
    """A change is right where typeWidening records it, or where every file is replaced."""
    if has_feature(features, "typeWidening"):
        return
    try:
        before = {
            physical_name(member): member.type for member in parse_schema(old.schema_string).fields
        }
    except RuleViolationError:
        return
    for member in schema.fields:
        was = before.get(physical_name(member), member.type)
        if was != member.type and isinstance(was, PrimitiveType) and not was.is_void:
            message = f"the type of {member.name!r} changes from {was.name} without typeWidening"
            yield _finding("DL-TW-01", Severity.WARNING, message)


def _raise_first_error(findings: list[Finding], also: frozenset[str] = frozenset()) -> None:
    for finding in findings:
        if finding.severity is Severity.ERROR or finding.rule in also:
            raise _breach(finding.rule, finding.message, finding.remedy or None)


def _finding(rule: str, severity: Severity, message: str) -> Finding:
    return Finding(rule=rule, severity=severity, message=message)


def _breach(rule: str, message: str, remedy: str | None = None) -> RuleViolationError:
    return RuleViolationError(message, rule=rule, remedy=remedy)
