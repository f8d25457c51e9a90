"""Does a DataFrame fit a table? Columns are matched by name, and never narrowed.

A missing column that may be null is null. A new column is refused, unless the caller asks for
`merge_schema`: then it joins the table at the end, in the same commit as its first rows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it
from pyspark.sql.types import StructType as SparkStruct

from mirror_assets.delta.schema import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    SchemaPath,
    StructField,
    StructType,
    dotted,
    parse_schema,
)
from mirror_assets.errors import SchemaMismatchError

_WIDER: Final = {
    "byte": {"short", "integer", "long", "float", "double"},
    "short": {"integer", "long", "float", "double"},
    "integer": {"long", "double"},
    "float": {"double"},
}
#: whole digits that an integer type needs as a decimal
_DIGITS: Final = {"byte": 3, "short": 5, "integer": 10, "long": 19}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A DataFrame with exactly the table's columns, and the schema that the table then has."""

    frame: DataFrame
    schema: StructType
    #: the new `schemaString`; None if nothing is new
    schema_string: str | None


def fit(frame: DataFrame, table: str, schema_string: str, *, merge_schema: bool = False) -> Fit:
    """Make the DataFrame fit. Raises SchemaMismatchError, which names every difference."""
    wanted = parse_schema(schema_string)
    given = parse_schema(frame.schema.json())
    problems: list[str] = []
    merged = _merged(wanted, given, (), problems, may_grow=merge_schema)
    if problems:
        raise SchemaMismatchError("; ".join(problems), table=table)
    columns = [_column(member, given) for member in merged.fields]
    is_new = merged != wanted
    return Fit(
        frame=frame.select(*columns),
        schema=merged,
        schema_string=schema_json(merged) if is_new else None,
    )


def spark_schema(schema: StructType) -> SparkStruct:
    """The schema as Spark has it."""
    return SparkStruct.fromJson(json.loads(schema_json(schema)))


def schema_json(schema: StructType) -> str:
    """The `schemaString` of a schema."""
    return json.dumps(_document(schema), separators=(",", ":"), ensure_ascii=False)


def new_schema_string(frame: DataFrame) -> str:
    """The schema of a new table that takes the DataFrame's rows; every column may be null."""
    return schema_json(_nullable(parse_schema(frame.schema.json())))


def _merged(
    wanted: StructType, given: StructType, path: SchemaPath, problems: list[str], *, may_grow: bool
) -> StructType:
    by_name = _by_name(given, path, problems)
    fields: list[StructField] = []
    for member in wanted.fields:
        found = by_name.pop(member.name.lower(), None)
        inner = (*path, member.name)
        if found is None:
            if not member.nullable:
                problems.append(f"{dotted(inner)} is missing, and may not be null")
            fields.append(member)
            continue
        kind = _merged_type(member.type, found.type, inner, problems, may_grow=may_grow)
        fields.append(
            StructField(member.name, kind, nullable=member.nullable, metadata=member.metadata)
        )
    for extra in by_name.values():
        if may_grow:
            fields.append(_nullable_field(extra))
        else:
            problems.append(f"{dotted((*path, extra.name))} is no column of the table")
    return StructType(tuple(fields))


def _merged_type(
    wanted: DataType, given: DataType, path: SchemaPath, problems: list[str], *, may_grow: bool
) -> DataType:
    match wanted, given:
        case StructType(), StructType():
            return _merged(wanted, given, path, problems, may_grow=may_grow)
        case ArrayType(), ArrayType():
            element = (*path, "element")
            _require_same(wanted.element, given.element, element, problems)
        case MapType(), MapType():
            _require_same(wanted.key, given.key, (*path, "key"), problems)
            _require_same(wanted.value, given.value, (*path, "value"), problems)
        case PrimitiveType(), PrimitiveType():
            if not _holds(wanted, given):
                problems.append(f"{dotted(path)} is {given.name}, the table has {wanted.name}")
        case _:
            problems.append(f"{dotted(path)} is {_kind(given)}, the table has {_kind(wanted)}")
    return wanted


def _require_same(wanted: DataType, given: DataType, path: SchemaPath, problems: list[str]) -> None:
    """Inside arrays and maps nothing is rearranged: names, order and types must be the same."""
    if _shape(wanted) != _shape(given):
        problems.append(f"{dotted(path)} is {_shape(given)}, the table has {_shape(wanted)}")


def _shape(kind: DataType) -> str:
    match kind:
        case PrimitiveType():
            return kind.name
        case ArrayType():
            return f"array<{_shape(kind.element)}>"
        case MapType():
            return f"map<{_shape(kind.key)},{_shape(kind.value)}>"
        case StructType():
            inner = ",".join(f"{f.name.lower()}:{_shape(f.type)}" for f in kind.fields)
            return f"struct<{inner}>"


def _holds(wanted: PrimitiveType, given: PrimitiveType) -> bool:
    """Whether every value of the given type is one of the wanted type."""
    if wanted.name == given.name or given.is_void:
        return True
    if wanted.decimal is None:
        return wanted.name in _WIDER.get(given.name, set())
    precision, scale = wanted.decimal
    if given.decimal is not None:
        return given.decimal[1] <= scale and given.decimal[0] - given.decimal[1] <= (
            precision - scale
        )
    return given.name in _DIGITS and _DIGITS[given.name] <= precision - scale


def _column(member: StructField, given: StructType) -> Column:
    found = next((f for f in given.fields if f.name.lower() == member.name.lower()), None)
    column = None if found is None else F.col(quoted(found.name))
    built = _built(column, member.type, None if found is None else found.type)
    return built.alias(member.name)


def _built(column: Column | None, wanted: DataType, given: DataType | None) -> Column:
    if column is None or given is None:
        return F.lit(None).cast(_spark_type(wanted))
    if isinstance(wanted, StructType) and isinstance(given, StructType) and wanted != given:
        return _rebuilt(column, wanted, given)
    return column if wanted == given else column.cast(_spark_type(wanted))


def _rebuilt(column: Column, wanted: StructType, given: StructType) -> Column:
    """A struct member by member; a null struct stays null."""
    parts: list[Column] = []
    for member in wanted.fields:
        found = next((f for f in given.fields if f.name.lower() == member.name.lower()), None)
        inner = None if found is None else column.getField(found.name)
        part = _built(inner, member.type, None if found is None else found.type)
        parts.append(part.alias(member.name))
    return F.when(column.isNotNull(), F.struct(*parts))


def _spark_type(kind: DataType) -> Any:
    document = {
        "type": "struct",
        "fields": [_field_document(StructField("c", kind, nullable=True))],
    }
    return SparkStruct.fromJson(document).fields[0].dataType


def _by_name(given: StructType, path: SchemaPath, problems: list[str]) -> dict[str, StructField]:
    found: dict[str, StructField] = {}
    for member in given.fields:
        if member.name.lower() in found:
            problems.append(f"{dotted((*path, member.name))} occurs twice, ignoring case")
        found[member.name.lower()] = member
    return found


def quoted(name: str) -> str:
    """A column's name as Spark's SQL takes it."""
    return "`" + name.replace("`", "``") + "`"


def _kind(kind: DataType) -> str:
    return kind.name if isinstance(kind, PrimitiveType) else _shape(kind)


def _nullable(schema: StructType) -> StructType:
    return StructType(tuple(_nullable_field(member) for member in schema.fields))


def _nullable_field(member: StructField) -> StructField:
    kind = _nullable(member.type) if isinstance(member.type, StructType) else member.type
    return StructField(member.name, kind, nullable=True, metadata=member.metadata)


def _document(kind: DataType) -> Any:
    match kind:
        case PrimitiveType():
            return kind.name
        case ArrayType():
            element = _document(kind.element)
            return {"type": "array", "elementType": element, "containsNull": kind.contains_null}
        case MapType():
            return {
                "type": "map",
                "keyType": _document(kind.key),
                "valueType": _document(kind.value),
                "valueContainsNull": kind.value_contains_null,
            }
        case StructType():
            return {"type": "struct", "fields": [_field_document(f) for f in kind.fields]}


def _field_document(member: StructField) -> dict[str, Any]:
    return {
        "name": member.name,
        "type": _document(member.type),
        "nullable": member.nullable,
        "metadata": dict(member.metadata),
    }
