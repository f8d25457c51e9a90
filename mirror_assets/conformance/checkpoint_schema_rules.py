"""Rules of the Parquet form of checkpoints: columns, types, statistics, codec."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from mirror_assets.conformance.checks import CHECKPOINT, Found
from mirror_assets.conformance.views import CheckpointView
from mirror_assets.delta.actions import MetaData, TableProtocol
from mirror_assets.delta.checkpoint import checkpoint_schema
from mirror_assets.delta.table_properties import CheckpointOptions, checkpoint_options
from mirror_assets.findings import Severity

_SPARK: Final = checkpoint_schema(v2=True)
#: names of codecs in a footer, by pyarrow's
_AS_JSON: Final = "delta.checkpoint.writeStatsAsJson"
_CODECS: Final = {"none": "uncompressed"}


@CHECKPOINT.checks("DL-CP-12")
def numbers_have_the_width_that_readers_expect(view: CheckpointView) -> Iterator[Found]:
    for name, schema in view.scan.schemas.items():
        for path, told, expected in _numbers(schema):
            if told != expected:
                message = f"{path} is {told}, not {expected}"
                yield view.found("DL-CP-12", message, name)


@CHECKPOINT.checks("DL-CP-14")
def adds_have_a_column_of_statistics(view: CheckpointView) -> Iterator[Found]:
    for name, schema in view.scan.schemas.items():
        members = _members(schema, "add")
        if members and not {"stats", "stats_parsed"} & members:
            message = "add has neither stats nor stats_parsed: some readers see no rows at all"
            yield view.found("DL-CP-14", message, name)


@CHECKPOINT.checks("DL-CP-06", "DL-CP-07", "DL-CP-08")
def statistics_stand_where_the_table_wants_them(view: CheckpointView) -> Iterator[Found]:
    options = _options(view)
    if options is None:
        return
    metadata = next(a for a in view.scan.others if isinstance(a, MetaData))
    for name, schema in view.scan.schemas.items():
        members = _members(schema, "add")
        if not members or not view.scan.placed[name]:
            continue
        # writers below 3 need not honour the property, but may
        refused = metadata.configuration.get(_AS_JSON, "true").lower() == "false"
        only_parsed = "stats" not in members and "stats_parsed" in members
        if options.stats_as_json and only_parsed and not refused:
            yield view.found("DL-CP-06", "the table wants statistics in JSON", name)
        explicit = "delta.checkpoint.writeStatsAsStruct" in metadata.configuration
        if options.stats_as_struct and "stats_parsed" not in members and explicit:
            message = "the table wants statistics in columns (stats_parsed)"
            yield view.found("DL-CP-07", message, name, at_most=Severity.WARNING)
        wants_parsed = options.stats_as_struct and explicit and metadata.partition_columns
        if wants_parsed and "partitionValues_parsed" not in members:
            message = "partitioned, with statistics in columns, but no partitionValues_parsed"
            yield view.found("DL-CP-08", message, name, at_most=Severity.WARNING)


@CHECKPOINT.checks("DL-CP-10")
def removes_carry_no_statistics(view: CheckpointView) -> Iterator[Found]:
    if any(removes.has_extras for removes in view.scan.removes):
        message = "removes carry statistics, which checkpoints should leave out"
        yield view.found("DL-CP-10", message, at_most=Severity.INFO)


@CHECKPOINT.checks("DL-CP-13")
def entries_change_no_data(view: CheckpointView) -> Iterator[Found]:
    if view.scan.data_changes:
        message = (
            f"{view.scan.data_changes} entries have dataChange true, "
            "which Delta Spark writes as false"
        )
        yield view.found("DL-CP-13", message, at_most=Severity.INFO)


@CHECKPOINT.checks("DL-CP-18")
def the_codec_is_the_tables(view: CheckpointView) -> Iterator[Found]:
    options = _options(view)
    if options is None or not view.scan.codecs:
        return
    wanted = _CODECS.get(options.codec, options.codec)
    if view.scan.codecs - {wanted, "uncompressed"}:
        message = f"compressed as {sorted(view.scan.codecs)}, the table wants {wanted}"
        yield view.found("DL-CP-18", message, at_most=Severity.INFO)


@CHECKPOINT.checks("DL-STAT-01")
def statistics_are_json(view: CheckpointView) -> Iterator[Found]:
    broken = view.scan.broken_stats
    if broken:
        yield view.found("DL-STAT-01", f"{broken} files have statistics that are not JSON")


def _options(view: CheckpointView) -> CheckpointOptions | None:
    protocol = next((a for a in view.scan.others if isinstance(a, TableProtocol)), None)
    metadata = next((a for a in view.scan.others if isinstance(a, MetaData)), None)
    if protocol is None or metadata is None:
        return None
    return checkpoint_options(protocol, metadata)


def _members(schema: pa.Schema, action: str) -> set[str]:
    index = schema.get_field_index(action)
    if index < 0 or not pa.types.is_struct(schema.field(index).type):
        return set()
    return {field.name for field in schema.field(index).type}


def _numbers(schema: pa.Schema) -> Iterator[tuple[str, pa.DataType, pa.DataType]]:
    """Each integer of the protocol that is there: its path, its type, and the one expected."""
    for field in schema:
        index = _SPARK.get_field_index(field.name)
        if index >= 0:
            yield from _inner(field.name, field.type, _SPARK.field(index).type)


def _inner(
    path: str, told: pa.DataType, expected: pa.DataType
) -> Iterator[tuple[str, pa.DataType, pa.DataType]]:
    if pa.types.is_struct(expected) and pa.types.is_struct(told):
        for member in told:
            index = expected.get_field_index(member.name)
            if index >= 0:
                inner = expected.field(index).type
                yield from _inner(f"{path}.{member.name}", member.type, inner)
    elif pa.types.is_integer(expected):
        yield path, told, expected
