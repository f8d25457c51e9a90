"""The table schema: the `schemaString` of a metaData action as frozen values.

Parsing refuses what has no meaning (DL-SCH-01 to 04) and keeps everything else, column metadata
verbatim. `check_schema` finds what a reader or another writer stumbles over.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import orjson

from mirror_assets.errors import RuleViolationError
from mirror_assets.findings import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

COLUMN_MAPPING_ID: Final = "delta.columnMapping.id"
COLUMN_MAPPING_PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"
MAX_DECIMAL_PRECISION: Final = 38

#: the last segment of a path inside a map or an array
ELEMENT: Final = "element"
KEY: Final = "key"
VALUE: Final = "value"

_SPEC_TYPES: Final = frozenset(
    (
        *("string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary"),
        *("date", "timestamp", "timestamp_ntz", "void", "variant"),
    )
)
#: names that real tables use besides: old Spark for void and decimal(10,0), and RFCs
_TOLERATED: Final = re.compile(
    r"null|decimal|(?:interval|geometry|geography)\b.*|string collate \S+|(?:var)?char\(\d+\)"
)
_DECIMAL: Final = re.compile(r"decimal\(\s*(\d+)\s*,\s*(-?\d+)\s*\)")
#: walking a schema must not exhaust the stack
_DEEPEST: Final = 100
#: how much of a value a message shows
_SHOWN: Final = 100
_UNWRITABLE: Final = frozenset(" ,;{}()\n\t=")
_Kind = TypeVar("_Kind")


@dataclass(frozen=True, slots=True)
class PrimitiveType:
    """A type without parts, by its name in the schema."""

    name: str

    @property
    def decimal(self) -> tuple[int, int] | None:
        """Precision and scale, if it is a decimal."""
        if self.name == "decimal":
            return 10, 0
        match = _DECIMAL.fullmatch(self.name)
        return None if match is None else (int(match[1]), int(match[2]))

    @property
    def is_void(self) -> bool:
        """Whether no data file holds a column of this type."""
        return self.name in ("void", "null")


@dataclass(frozen=True, slots=True)
class ArrayType:
    """A list of elements."""

    element: DataType
    contains_null: bool


@dataclass(frozen=True, slots=True)
class MapType:
    """Keys with values."""

    key: DataType
    value: DataType
    value_contains_null: bool


@dataclass(frozen=True, slots=True)
class StructField:
    """A named column, or a member of a nested one."""

    name: str
    type: DataType
    nullable: bool
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class StructType:
    """Fields in their order; the table's schema is one."""

    fields: tuple[StructField, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The logical names of its own fields."""
        return tuple(member.name for member in self.fields)

    def find(self, name: str) -> StructField | None:
        """Its own field of exactly this name."""
        return next((member for member in self.fields if member.name == name), None)


DataType = PrimitiveType | ArrayType | MapType | StructType
#: where a field or type is: names, with ELEMENT, KEY and VALUE for what has none
SchemaPath = tuple[str, ...]


@lru_cache(maxsize=512)
def parse_schema(text: str) -> StructType:
    """Read a `schemaString`.

    Raises RuleViolationError (DL-SCH-01 to 04) for what is not a schema.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as exc:
        raise _broken("DL-SCH-01", f"schemaString is not JSON: {exc}") from exc
    try:
        parsed = _parse_type(value, ())
    except RecursionError as exc:
        raise _broken("DL-SCH-01", "the schema is nested too deep") from exc
    if not isinstance(parsed, StructType):
        raise _broken("DL-SCH-01", f"the schema is not a struct but {short(value)}")
    return parsed


def physical_name(member: StructField) -> str:
    """The name in data files, statistics and partition values: that of column mapping, if any."""
    name = member.metadata.get(COLUMN_MAPPING_PHYSICAL_NAME)
    return name if isinstance(name, str) else member.name


def walk_fields(schema: StructType) -> Iterator[tuple[SchemaPath, StructField]]:
    """All fields with their path, also those inside structs, arrays and maps; parents first."""
    return ((path, node) for path, node in _walk(schema, ()) if isinstance(node, StructField))


def walk_types(schema: StructType) -> Iterator[tuple[SchemaPath, PrimitiveType]]:
    """All primitive types with the path of the column or element that has them."""
    return ((path, node) for path, node in _walk(schema, ()) if isinstance(node, PrimitiveType))


def check_schema(schema: StructType, *, column_mapping: bool = False) -> Iterator[Finding]:
    """What breaks DL-SCH-02, 05 and 09 in a schema that could be parsed.

    Names that Spark refuses to write (DL-SCH-09) are warnings: readers accept them.
    """
    yield from _check_struct_names(schema, ())
    for path, kind in walk_types(schema):
        yield from _check_type_name(path, kind)
    if column_mapping:
        return
    for path, member in walk_fields(schema):
        if not _UNWRITABLE.isdisjoint(member.name):
            message = f"the column name {dotted(path)} holds one of ' ,;{{}}()\\n\\t='"
            remedy = "rename it, or enable column mapping"
            yield _finding("DL-SCH-09", "warning", message, remedy)


def dotted(path: SchemaPath) -> str:
    """A path for a message."""
    return short(".".join(path))


def short(value: object) -> str:
    """A value for a message: its repr, cut."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _walk(
    node: DataType | StructField, path: SchemaPath
) -> Iterator[tuple[SchemaPath, DataType | StructField]]:
    yield path, node
    match node:
        case StructType():
            for member in node.fields:
                yield from _walk(member, (*path, member.name))
        case StructField():
            yield from _walk(node.type, path)
        case ArrayType():
            yield from _walk(node.element, (*path, ELEMENT))
        case MapType():
            yield from _walk(node.key, (*path, KEY))
            yield from _walk(node.value, (*path, VALUE))
        case PrimitiveType():
            pass


def _parse_type(value: object, path: SchemaPath) -> DataType:
    if len(path) > _DEEPEST:
        raise _broken("DL-SCH-01", f"the schema is nested deeper than {_DEEPEST} levels")
    if isinstance(value, str):
        if value in _SPEC_TYPES or _DECIMAL.fullmatch(value) or _TOLERATED.fullmatch(value):
            return PrimitiveType(value)
        raise _broken("DL-SCH-02", f"{dotted(path)} has the unknown type {short(value)}")
    if not isinstance(value, dict):
        raise _broken("DL-SCH-02", f"the type of {dotted(path)} is {short(value)}")
    match value.get("type"):
        case "struct":
            return StructType(tuple(_parse_fields(value, path)))
        case "array":
            element = _part(value, "elementType", object, path, "DL-SCH-04")
            nulls = _part(value, "containsNull", bool, path, "DL-SCH-04")
            return ArrayType(_parse_type(element, (*path, ELEMENT)), nulls)
        case "map":
            return _parse_map(value, path)
        case "udt":
            # a Spark user-defined type is stored as its `sqlType`
            return _parse_type(_part(value, "sqlType", object, path, "DL-SCH-02"), path)
        case other:
            raise _broken("DL-SCH-02", f"the type of {dotted(path)} is {short(other)}")


def _parse_map(value: dict[str, Any], path: SchemaPath) -> MapType:
    key = _part(value, "keyType", object, path, "DL-SCH-04")
    item = _part(value, "valueType", object, path, "DL-SCH-04")
    nulls = _part(value, "valueContainsNull", bool, path, "DL-SCH-04")
    return MapType(_parse_type(key, (*path, KEY)), _parse_type(item, (*path, VALUE)), nulls)


def _parse_fields(value: dict[str, Any], path: SchemaPath) -> Iterator[StructField]:
    for member in _part(value, "fields", list, path, "DL-SCH-01"):
        if not isinstance(member, dict):
            raise _broken("DL-SCH-03", f"a field of {dotted(path)} is {short(member)}")
        name = _part(member, "name", str, path, "DL-SCH-03")
        inner = (*path, name)
        yield StructField(
            name=name,
            type=_parse_type(_part(member, "type", object, inner, "DL-SCH-03"), inner),
            nullable=_part(member, "nullable", bool, inner, "DL-SCH-03"),
            metadata=_part(member, "metadata", dict, inner, "DL-SCH-03"),
        )


def _part(value: dict[str, Any], key: str, kind: type[_Kind], path: SchemaPath, rule: str) -> _Kind:
    part = value.get(key)
    if part is None or not isinstance(part, kind):
        raise _broken(rule, f"{key!r} of {dotted(path)} is {short(part)}, not {kind.__name__}")
    return part


def _check_struct_names(schema: StructType, path: SchemaPath) -> Iterator[Finding]:
    for inner, node in _walk(schema, path):
        if not isinstance(node, StructType):
            continue
        counts = Counter(name.lower() for name in node.names)
        for name in (name for name, count in counts.items() if count > 1):
            message = f"{dotted((*inner, name))} occurs {counts[name]} times, ignoring case"
            yield _finding("DL-SCH-05", "error", message, "give each column a name of its own")


def _check_type_name(path: SchemaPath, kind: PrimitiveType) -> Iterator[Finding]:
    if (parameters := kind.decimal) is not None:
        precision, scale = parameters
        if not 1 <= precision <= MAX_DECIMAL_PRECISION or not 0 <= scale <= precision:
            message = f"{dotted(path)} has the impossible type {kind.name}"
            yield _finding("DL-SCH-02", "error", message, "precision 1 to 38, scale up to it")
    elif kind.name not in _SPEC_TYPES:
        message = f"{dotted(path)} has the type {short(kind.name)}, which the protocol lacks"
        yield _finding("DL-SCH-02", "warning", message, "not every reader knows this type")


def _finding(
    rule: str, severity: Literal["error", "warning"], message: str, remedy: str
) -> Finding:
    return Finding(rule=rule, severity=Severity(severity), message=message, remedy=remedy)


def _broken(rule: str, message: str) -> RuleViolationError:
    return RuleViolationError(message, rule=rule, remedy="correct the schemaString")
