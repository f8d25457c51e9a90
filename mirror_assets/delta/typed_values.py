"""Values of statistics and partitions as typed Arrow columns.

Statistics come as JSON values, partition values as text (section 5.1 of the rules). What does not
fit its type becomes null: a reader then knows nothing of it, while a wrong bound would hide rows.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from mirror_assets.delta.arrays import array_of
from mirror_assets.delta.partition_values import text_check
from mirror_assets.delta.schema import PrimitiveType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Convert = Callable[[Any], Any]

_TYPES: Final = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
#: the types of JSON values that are converted together, and without loss or not at all
_PLAIN: Final = {
    pa.string(): frozenset({str}),
    pa.bool_(): frozenset({bool}),
    **dict.fromkeys((pa.int64(), pa.int32(), pa.int16(), pa.int8()), frozenset({int})),
    **dict.fromkeys((pa.float64(), pa.float32()), frozenset({int, float})),
}
_AS_TEXT: Final = frozenset({str, int, Decimal})
_TEXTUAL: Final = ("char(", "varchar(", "string collate")


def arrow_type(kind: PrimitiveType) -> pa.DataType | None:
    """The type of a column's values; None for types whose values no checkpoint types."""
    if (parameters := kind.decimal) is not None:
        return pa.decimal128(*parameters)
    return pa.string() if kind.name.startswith(_TEXTUAL) else _TYPES.get(kind.name)


def has_bounds(kind: PrimitiveType) -> bool:
    """Whether statistics hold a smallest and a largest value, as Delta Spark sees it."""
    found = arrow_type(kind)
    return found is not None and found not in (pa.bool_(), pa.binary())


def column_of_json(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """JSON values as a column; what is not of the type is null."""
    found = set(map(type, values)) - {type(None)}
    try:
        if found <= _AS_TEXT and (pa.types.is_temporal(kind) or pa.types.is_decimal(kind)):
            texts = [value if value is None else str(value) for value in values]
            return array_of(texts, pa.string()).cast(kind)
        if found <= _PLAIN.get(kind, frozenset()):
            return array_of(values, kind)
    except (pa.ArrowException, ValueError, OverflowError):
        pass
    return _one_by_one(values, kind, _json_converter(kind))


def column_of_texts(texts: Iterable[str | None], kind: PrimitiveType) -> pa.Array:
    """Partition values as a column; null for null, for the empty text and for nonsense."""
    type_ = arrow_type(kind) or pa.string()
    convert, is_value = _text_converter(type_), text_check(kind)
    values = [text if text and is_value(text) else None for text in texts]
    return _one_by_one(values, type_, convert)


def _one_by_one(values: Iterable[Any], kind: pa.DataType, convert: Convert) -> pa.Array:
    return pa.array(
        [None if value is None else _fitting(value, kind, convert) for value in values], kind
    )


def _fitting(value: Any, kind: pa.DataType, convert: Convert) -> Any:
    try:
        converted = convert(value)
        pa.scalar(converted, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, InvalidOperation):
        return None
    return converted


def _json_converter(kind: pa.DataType) -> Convert:
    if pa.types.is_decimal(kind):
        return _decimal(kind)
    if pa.types.is_integer(kind):
        return _whole
    if pa.types.is_floating(kind):
        return float
    if pa.types.is_date(kind):
        return date.fromisoformat
    if pa.types.is_timestamp(kind):
        return _instant if kind.tz else _local_time
    return _as_is


def _text_converter(kind: pa.DataType) -> Convert:
    if pa.types.is_integer(kind):
        return int
    if pa.types.is_boolean(kind):
        return _boolean
    if pa.types.is_binary(kind):
        return _encoded
    if pa.types.is_timestamp(kind) and kind.tz:
        return _instant_or_utc
    return _json_converter(kind)


def _as_is(value: Any) -> Any:
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool | str) or value != int(value):
        raise ValueError(value)
    return int(value)


def _boolean(text: str) -> bool:
    return text == "true"


def _encoded(text: str) -> bytes:
    return text.encode()


def _decimal(kind: pa.DataType) -> Convert:
    """To a decimal of exactly this scale; ValueError where digits would get lost."""
    unit = Decimal(1).scaleb(-kind.scale)

    def convert(value: Any) -> Decimal:
        number = Decimal(value) if isinstance(value, int | str | Decimal) else Decimal(repr(value))
        if number != (fitted := number.quantize(unit)):
            raise ValueError(value)
        return fitted

    return convert


def _instant(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(text)
    return moment.astimezone(UTC)


def _instant_or_utc(text: str) -> datetime:
    """A partition value without a zone has that of its writer, taken for UTC."""
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _local_time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is not None:
        raise ValueError(text)
    return moment
