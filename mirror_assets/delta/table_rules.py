"""What a table's protocol and metaData demand of its file actions, worked out once.

`rules_of` is cached by the text of the schema and by the properties, so that a commit of one file
does not pay for parsing the schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, Final

import msgspec

from mirror_assets.delta.actions import INT64_MAX, MetaData, TableProtocol
from mirror_assets.delta.features import effective_features
from mirror_assets.delta.partition_values import TextCheck, text_check
from mirror_assets.delta.schema import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructType,
    parse_schema,
    physical_name,
    walk_types,
)
from mirror_assets.errors import RuleViolationError

COLUMN_MAPPING_MODE: Final = "delta.columnMapping.mode"

#: writers make statistics of the first 32 columns; more would cost every file of a wide table
_LOOKED_AT: Final = 64
_COMPARED: Final = frozenset({"byte", "short", "integer", "long"})
_INT64 = Annotated[int, msgspec.Meta(ge=-INT64_MAX - 1, le=INT64_MAX)]
_COUNT = Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]


class FileStats(msgspec.Struct, gc=False, rename="camel"):
    """The part of a file's statistics that is checked; the rest is only proven to be JSON."""

    num_records: _COUNT | None = None
    tight_bounds: bool | None = None
    #: a structure of the primitive columns
    null_count: Any = None
    #: structures of the integer columns, in one order
    min_values: Any = None
    max_values: Any = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableRules:
    """The demands, by physical names."""

    features: frozenset[str]
    partition_names: frozenset[str]
    partition_checks: tuple[tuple[str, TextCheck], ...]
    stats: msgspec.json.Decoder[FileStats]
    #: why statistics are mandatory
    stats_needed_by: str | None
    #: why no data file may be added (DL-SCH-06)
    no_data_because: str | None
    append_only: bool
    deletion_vectors_enabled: bool
    change_data_feed_enabled: bool
    #: partition values that were found right: they repeat from file to file
    accepted: set[tuple[object, ...]] = field(default_factory=set)


def rules_of(protocol: TableProtocol, metadata: MetaData | None) -> TableRules:
    """The demands of a table. A schema in force that cannot be read demands less, not nothing."""
    return _rules(
        effective_features(protocol),
        "" if metadata is None else metadata.schema_string,
        () if metadata is None else tuple(metadata.partition_columns),
        () if metadata is None else tuple(metadata.configuration.items()),
    )


def is_on(configuration: Mapping[str, str], key: str) -> bool:
    """Whether a switch among the table properties is on."""
    return configuration.get(key, "").lower() == "true"


def uses_physical_names(configuration: Mapping[str, str]) -> bool:
    """Whether column mapping renames the columns of data files."""
    return configuration.get(COLUMN_MAPPING_MODE, "none").lower() in ("name", "id")


@lru_cache(maxsize=256)
def _rules(
    features: frozenset[str],
    schema_string: str,
    partition_columns: tuple[str, ...],
    properties: tuple[tuple[str, str], ...],
) -> TableRules:
    configuration = dict(properties)
    schema = _readable(schema_string)
    columns = _columns(schema, mapped=uses_physical_names(configuration))
    checks = {name: text_check(kind) for name, kind in _chosen(columns, partition_columns)}
    return TableRules(
        features=features,
        partition_names=frozenset(checks),
        partition_checks=tuple(checks.items()),
        stats=_stats_decoder(columns),
        stats_needed_by=next(filter(features.__contains__, _NEED_STATS), None),
        no_data_because=None if schema is None else _void_obstacle(schema),
        append_only="appendOnly" in features and is_on(configuration, "delta.appendOnly"),
        deletion_vectors_enabled=is_on(configuration, "delta.enableDeletionVectors"),
        change_data_feed_enabled=is_on(configuration, "delta.enableChangeDataFeed"),
    )


_NEED_STATS: Final = ("icebergCompatV1", "icebergCompatV2", "clustering")
_Columns = Mapping[str, tuple[str, PrimitiveType | None]]


def _readable(schema_string: str) -> StructType | None:
    try:
        return parse_schema(schema_string)
    except RuleViolationError:
        return None


def _columns(schema: StructType | None, *, mapped: bool) -> _Columns:
    """Logical name to physical name and type."""
    return {
        member.name: (
            physical_name(member) if mapped else member.name,
            member.type if isinstance(member.type, PrimitiveType) else None,
        )
        for member in (() if schema is None else schema.fields)
    }


def _chosen(columns: _Columns, names: Sequence[str]) -> list[tuple[str, PrimitiveType | None]]:
    return [columns.get(name, (name, None)) for name in names]


def _stats_decoder(columns: _Columns) -> msgspec.json.Decoder[FileStats]:
    """A decoder that makes no object for what nobody looks at; it is made for the schema."""
    primitive = {name: kind for name, kind in columns.values() if kind and _is_plain(name)}
    counted = list(primitive)[:_LOOKED_AT]
    compared = [name for name in counted if primitive[name].name in _COMPARED]
    counts = _structure("NullCounts", counted, _COUNT, 0)
    bounds = _structure("IntegerBounds", compared, _INT64, None)
    members = [
        ("null_count", counts | None, None),
        ("min_values", bounds | None, None),
        ("max_values", bounds | None, None),
    ]
    stats = msgspec.defstruct(
        "TypedFileStats", members, bases=(FileStats,), rename="camel", gc=False
    )
    return msgspec.json.Decoder(stats)


def _is_plain(name: str) -> bool:
    """Whether JSON writes a name without escapes; the decoder takes no other."""
    return name.isprintable() and '"' not in name and "\\" not in name


def _structure(name: str, columns: Sequence[str], kind: Any, default: int | None) -> Any:
    wire_names = {f"c{position}": column for position, column in enumerate(columns)}
    members = [(attribute, kind | None, default) for attribute in wire_names]
    return msgspec.defstruct(name, members, rename=wire_names, gc=False)


def _void_obstacle(schema: StructType) -> str | None:
    for member in schema.fields:
        if _hides_void(member.type, inside=False):
            return f"{member.name!r} holds a void inside an array or a map"
    types = [kind for _, kind in walk_types(schema)]
    return "every column is void" if types and all(kind.is_void for kind in types) else None


def _hides_void(kind: DataType, *, inside: bool) -> bool:
    match kind:
        case PrimitiveType():
            return inside and kind.is_void
        case StructType():
            return any(_hides_void(member.type, inside=inside) for member in kind.fields)
        case ArrayType():
            return _hides_void(kind.element, inside=True)
        case MapType():
            return _hides_void(kind.key, inside=True) or _hides_void(kind.value, inside=True)
