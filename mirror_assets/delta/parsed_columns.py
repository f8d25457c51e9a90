"""`stats_parsed` and `partitionValues_parsed`: typed copies of an add's texts in checkpoints.

Names are physical, every member is optional (DL-CP-08), and statistics cover the columns that
Delta Spark would index. Texts are parsed a batch at a time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson
import pyarrow as pa

from mirror_assets.delta.arrays import array_of
from mirror_assets.delta.schema import (
    ArrayType,
    MapType,
    PrimitiveType,
    SchemaPath,
    StructField,
    StructType,
    parse_schema,
    physical_name,
)
from mirror_assets.delta.typed_values import (
    arrow_type,
    column_of_json,
    column_of_texts,
    has_bounds,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mirror_assets.delta.actions import MetaData, StringMap

_INDEXED_COUNT: Final = "delta.dataSkippingNumIndexedCols"
_INDEXED_NAMES: Final = "delta.dataSkippingStatsColumns"
_DEFAULT_INDEXED: Final = 32
#: texts whose dictionaries are held in memory together
_PARSED_AT_ONCE: Final = 2_048
_NAME: Final = re.compile(r"(?:`(?:[^`]|``)*`|[^`,.])+")
_COLUMN: Final = re.compile(r"(?:`(?:[^`]|``)*`|[^`,])+")
#: a decimal's digits must not pass through a double
_exact_json: Final = msgspec.json.Decoder(float_hook=Decimal)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A column with statistics: its logical and physical path."""

    path: SchemaPath
    physical: SchemaPath
    type: PrimitiveType | ArrayType | MapType


class ParsedStats:
    """`add.stats_parsed` of a table."""

    def __init__(self, metadata: MetaData) -> None:
        schema = parse_schema(metadata.schema_string)
        leaves = list(_indexed(schema, metadata))
        bounded = [leaf for leaf in leaves if _has_bounds(leaf)]
        bounds = _nested(bounded, _bound_type)
        nulls = _nested(leaves, lambda _: pa.int64())
        members = {
            "numRecords": pa.int64(),
            "minValues": bounds,
            "maxValues": bounds,
            "nullCount": nulls,
            "tightBounds": pa.bool_(),
        }
        self.type = pa.struct({name: kind for name, kind in members.items() if kind is not None})
        is_exact = any(_is_decimal(leaf) for leaf in bounded)
        self._loads: Callable[[str], Any] = _exact_json.decode if is_exact else orjson.loads

    def parse(self, texts: pa.StringArray) -> pa.StructArray:
        """The statistics of each row, null where there are none or they are broken."""
        slices = (texts.slice(start, _PARSED_AT_ONCE) for start in _starts(texts))
        return pa.concat_arrays([self._parse(part) for part in slices])

    def _parse(self, texts: pa.StringArray) -> pa.StructArray:
        return _structs([self._document(text) for text in texts.to_pylist()], self.type)

    def _document(self, text: str | None) -> Any:
        try:
            return None if text is None else self._loads(text)
        except (ValueError, RecursionError, msgspec.DecodeError):
            return None


class ParsedPartitions:
    """`add.partitionValues_parsed` of a table."""

    def __init__(self, metadata: MetaData) -> None:
        schema = parse_schema(metadata.schema_string)
        found = (schema.find(name) for name in metadata.partition_columns)
        self._columns = {
            physical_name(column): column.type
            for column in found
            if column is not None and isinstance(column.type, PrimitiveType)
        }
        self.type = pa.struct(
            {name: arrow_type(kind) or pa.string() for name, kind in self._columns.items()}
        )

    def __bool__(self) -> bool:
        return bool(self._columns)

    def parse(self, values: Sequence[StringMap]) -> pa.StructArray:
        """The typed values of each map."""
        columns = [
            column_of_texts([value.get(name) for value in values], kind)
            for name, kind in self._columns.items()
        ]
        return pa.StructArray.from_arrays(columns, fields=list(self.type))


def _starts(texts: pa.StringArray) -> range:
    """At least one, for an empty array has a type as well."""
    return range(0, max(len(texts), 1), _PARSED_AT_ONCE)


def _indexed(schema: StructType, metadata: MetaData) -> Iterator[_Leaf]:
    """The columns that have statistics, by the table's properties (DL-STAT-07)."""
    partitions = set(metadata.partition_columns)
    data = StructType(tuple(f for f in schema.fields if f.name not in partitions))
    leaves = _leaves(data, (), ())
    names = metadata.configuration.get(_INDEXED_NAMES)
    if names is not None:
        wanted = [_path(column) for column in _COLUMN.findall(names)]
        return (leaf for leaf in leaves if any(leaf.path[: len(path)] == path for path in wanted))
    text = metadata.configuration.get(_INDEXED_COUNT, "")
    count = int(text) if re.fullmatch(r"-1|[0-9]{1,9}", text) else _DEFAULT_INDEXED
    return leaves if count < 0 else islice(leaves, count)


def _path(column: str) -> SchemaPath:
    parts = (part.strip() for part in _NAME.findall(column.strip()))
    return tuple(p[1:-1].replace("``", "`") if p.startswith("`") else p for p in parts)


def _leaves(schema: StructType, path: SchemaPath, physical: SchemaPath) -> Iterator[_Leaf]:
    for member in schema.fields:
        here, there = (*path, member.name), (*physical, physical_name(member))
        if isinstance(member.type, StructType):
            yield from _leaves(member.type, here, there)
        elif not _is_void(member):
            yield _Leaf(here, there, member.type)


def _is_void(member: StructField) -> bool:
    return isinstance(member.type, PrimitiveType) and member.type.is_void


def _has_bounds(leaf: _Leaf) -> bool:
    return isinstance(leaf.type, PrimitiveType) and has_bounds(leaf.type)


def _is_decimal(leaf: _Leaf) -> bool:
    return isinstance(leaf.type, PrimitiveType) and leaf.type.decimal is not None


def _bound_type(leaf: _Leaf) -> pa.DataType | None:
    return arrow_type(leaf.type) if isinstance(leaf.type, PrimitiveType) else None


def _nested(
    leaves: Sequence[_Leaf], kind_of: Callable[[_Leaf], pa.DataType | None]
) -> pa.DataType | None:
    """Structs by physical path; None without any leaf, for Parquet has no empty struct."""
    tree: dict[str, Any] = {}
    for leaf in leaves:
        node = tree
        for name in leaf.physical[:-1]:
            node = node.setdefault(name, {})
        node[leaf.physical[-1]] = kind_of(leaf)
    return _struct_type(tree) if tree else None


def _struct_type(tree: dict[str, Any]) -> pa.DataType:
    return pa.struct(
        {name: _struct_type(k) if isinstance(k, dict) else k for name, k in tree.items()}
    )


def _structs(documents: list[Any], kind: pa.StructType) -> pa.StructArray:
    absent = [not isinstance(document, dict) for document in documents]
    if any(absent):
        documents = [document if isinstance(document, dict) else {} for document in documents]
    columns = []
    for member in kind:
        values = [document.get(member.name) for document in documents]
        is_struct = pa.types.is_struct(member.type)
        columns.append(
            _structs(values, member.type) if is_struct else column_of_json(values, member.type)
        )
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=array_of(absent, pa.bool_()))
