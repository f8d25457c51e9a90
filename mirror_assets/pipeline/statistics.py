"""Parquet footers become the statistics that Delta writes: `numRecords`, bounds and null counts.

Equal to Delta Spark's own as parsed JSON, but for what a footer cannot tell, which is left out, so
that no reader skips a file wrongly: null counts of arrays and maps, bounds where a NaN or a text
of more than 4 kB is among the values, and bounds before the year 1 or after 9999.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final

import numpy as np
import orjson
import pyarrow.parquet as pq

from mirror_assets.delta.schema import (
    PrimitiveType,
    SchemaPath,
    StructField,
    StructType,
)

_INDEXED_COLUMNS: Final = "delta.dataSkippingNumIndexedCols"
_NAMED_COLUMNS: Final = "delta.dataSkippingStatsColumns"
_DEFAULT_INDEXED: Final = 32
_TEXT_PREFIX: Final = 32
_ASCII_MAX: Final = "\x7f"
_UNICODE_MAX: Final = "\U0010ffff"
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - the clock's own, made UTC by a suffix
_INTEGERS: Final = frozenset({"byte", "short", "integer", "long"})

#: a raw bound as JSON, or None if it has none
Encode = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsPlan:
    """The leaf columns of which statistics are kept, by their path."""

    leaves: tuple[tuple[SchemaPath, PrimitiveType], ...]
    #: whether the table has deletion vectors, which make bounds wide later
    says_tight: bool = False

    @classmethod
    def of(
        cls,
        schema: StructType,
        partition_columns: list[str],
        configuration: Mapping[str, str],
    ) -> StatisticsPlan:
        """Delta's choice: the named columns, or the first 32 leaves of the data columns."""
        data = StructType(tuple(f for f in schema.fields if f.name not in partition_columns))
        return cls(
            leaves=tuple(
                (path, kind)
                for path, kind in _chosen(data, configuration)
                if isinstance(kind, PrimitiveType)
            ),
            says_tight=configuration.get("delta.enableDeletionVectors", "").lower() == "true",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStatistics:
    """What a footer tells of a file."""

    num_records: int
    #: as an add action has it
    text: str
    #: by dotted path, for those that are known
    null_counts: Mapping[str, int]


def footer_statistics(footer: pq.FileMetaData, plan: StatisticsPlan) -> FileStatistics:
    """The statistics of a file from its footer."""
    columns = _columns_by_path(footer)
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    null_counts: dict[str, int] = {}
    for path, kind in plan.leaves:
        number = columns.get(".".join(path))
        found = _absent(footer) if number is None else _column(footer, number, kind)
        if found.nulls is not None:
            _put(nulls, path, found.nulls)
            null_counts[".".join(path)] = found.nulls
        if (encode := _encoders(kind)) is None:
            continue
        low, high = encode
        if found.low is not None and (text := low(found.low)) is not None:
            _put(lowest, path, text)
        if found.high is not None and (text := high(found.high)) is not None:
            _put(highest, path, text)
    document = {
        "numRecords": footer.num_rows,
        "minValues": lowest,
        "maxValues": highest,
        "nullCount": nulls,
    }
    if plan.says_tight:
        document["tightBounds"] = True
    text = orjson.dumps(document).decode()
    return FileStatistics(num_records=footer.num_rows, text=text, null_counts=null_counts)


@dataclass(frozen=True, slots=True)
class _Found:
    low: Any
    high: Any
    nulls: int | None


def _chosen(data: StructType, configuration: Mapping[str, str]) -> Iterator[tuple[SchemaPath, Any]]:
    leaves = list(_leaves(data, ()))
    named = configuration.get(_NAMED_COLUMNS)
    if named is not None:
        wanted = [_name_path(name) for name in named.split(",")]
        yield from (
            (path, kind) for path, kind in leaves if any(path[: len(w)] == w for w in wanted)
        )
        return
    text = configuration.get(_INDEXED_COLUMNS, "")
    limit = int(text) if text.lstrip("-").isdecimal() else _DEFAULT_INDEXED
    yield from leaves if limit < 0 else leaves[:limit]


def _name_path(name: str) -> SchemaPath:
    """`a.b` or with back quotes; a quoted name with a dot in it is taken as a whole."""
    bare = name.strip()
    if bare.startswith("`") and bare.endswith("`") and bare.count("`") == 2:  # noqa: PLR2004
        return (bare[1:-1],)
    return tuple(part.strip("`") for part in bare.split("."))


def _leaves(struct: StructType, path: SchemaPath) -> Iterator[tuple[SchemaPath, Any]]:
    """Arrays and maps are leaves too: they count, though nothing is known of them."""
    member: StructField
    for member in struct.fields:
        inner = (*path, member.name)
        if isinstance(member.type, StructType):
            yield from _leaves(member.type, inner)
        else:
            yield inner, member.type


def _columns_by_path(footer: pq.FileMetaData) -> dict[str, int]:
    """Leaf columns by their names joined with dots, as Parquet shows them."""
    return {footer.schema.column(n).path: n for n in range(footer.num_columns)}


def _absent(footer: pq.FileMetaData) -> _Found:
    """A column that the file does not have is null in each row."""
    return _Found(None, None, footer.num_rows)


def _column(footer: pq.FileMetaData, number: int, kind: PrimitiveType) -> _Found:
    lows: list[Any] = []
    highs: list[Any] = []
    nulls, nulls_known, bounds_known = 0, True, True
    for group in range(footer.num_row_groups):
        chunk = footer.row_group(group).column(number)
        statistics = chunk.statistics
        if statistics is None or not statistics.has_null_count:
            nulls_known = bounds_known = False
            continue
        nulls += statistics.null_count
        if statistics.null_count == chunk.num_values:
            continue
        if not statistics.has_min_max:
            bounds_known = False
            continue
        lows.append(_raw(statistics.min_raw, kind))
        highs.append(_raw(statistics.max_raw, kind))
    known = bounds_known and bool(lows)
    return _Found(
        min(lows) if known else None,
        max(highs) if known else None,
        nulls if nulls_known else None,
    )


def _raw(value: Any, kind: PrimitiveType) -> Any:
    """A physical value in an order that is the logical one."""
    if kind.decimal is not None and isinstance(value, bytes):
        return int.from_bytes(value, "big", signed=True)
    return value


def _encoders(kind: PrimitiveType) -> tuple[Encode, Encode] | None:
    """How bounds of a type are written, low and high; None for types without them."""
    if kind.name in _INTEGERS:
        return int, int
    if (decimal := kind.decimal) is not None:
        scale = decimal[1]
        return _decimal(scale), _decimal(scale)
    return _ENCODERS.get(kind.name)


def _decimal(scale: int) -> Encode:
    """With all its digits, which a float, or Python's own 28 of a Decimal, would lose."""

    def encode(unscaled: int) -> orjson.Fragment:
        digits = str(abs(unscaled)).rjust(scale + 1, "0")
        whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :]
        sign, point = "-" if unscaled < 0 else "", "." if scale else ""
        return orjson.Fragment(f"{sign}{whole}{point}{fraction}".encode())

    return encode


def _float(value: float) -> Any:
    # a writer of Parquet makes a zero minimum -0.0; the sum makes it 0.0 again
    text = str(np.float32(value) + np.float32(0.0))
    return orjson.Fragment(text.encode()) if np.isfinite(value) else None


def _double(value: float) -> float | None:
    return value + 0.0 if np.isfinite(value) else None


def _date(days: int) -> str | None:
    try:
        return (date(1970, 1, 1) + timedelta(days=days)).isoformat()
    except OverflowError:
        return None


def _local_timestamp(micros: int) -> str | None:
    """Cut to milliseconds, as Delta does; readers allow for it."""
    try:
        moment = _EPOCH + timedelta(milliseconds=micros // 1000)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds")


def _timestamp(micros: int) -> str | None:
    text = _local_timestamp(micros)
    return None if text is None else f"{text}Z"


def _low_text(value: bytes) -> str | None:
    text = _decoded(value)
    return None if text is None else text[:_TEXT_PREFIX]


def _high_text(value: bytes) -> str | None:
    """A cut text with something behind it that sorts after all that was cut off."""
    text = _decoded(value)
    if text is None or len(text) <= _TEXT_PREFIX:
        return text
    for end in range(_TEXT_PREFIX, len(text)):
        if text[end] < _ASCII_MAX:
            return text[:end] + _ASCII_MAX
        if text[end] < _UNICODE_MAX:
            return text[:end] + _UNICODE_MAX
    return text


def _decoded(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _put(document: dict[str, Any], path: SchemaPath, value: Any) -> None:
    for name in path[:-1]:
        document = document.setdefault(name, {})
    document[path[-1]] = value


_ENCODERS: Final[dict[str, tuple[Encode, Encode]]] = {
    "float": (_float, _float),
    "double": (_double, _double),
    "date": (_date, _date),
    "timestamp": (_timestamp, _timestamp),
    "timestamp_ntz": (_local_timestamp, _local_timestamp),
    "string": (_low_text, _high_text),
}
