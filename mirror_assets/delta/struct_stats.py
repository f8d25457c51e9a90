"""Statistics that a checkpoint holds as typed columns only, back to Delta's JSON text.

Writers may leave out `add.stats` and write `add.stats_parsed` alone (DL-CP-07). The text made here
is the one that Delta Spark would have written: absent values left out, instants in UTC with
milliseconds, decimals as plain numbers, numbers that JSON does not know as text.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable

_TO_MILLISECOND = "%Y-%m-%dT%H:%M:%S"


def stats_texts(
    parsed: pa.StructArray, *, path: str = "", instants: frozenset[str] = frozenset()
) -> list[str | None]:
    """The JSON text of each row, None where there are no statistics.

    `instants` names, by dotted path from `path` on, the timestamps that carry no time zone and
    yet are instants: Parquet's INT96.
    """
    return [
        None if value is None else orjson.dumps(value).decode()
        for value in _values(parsed, path, instants)
    ]


def _values(array: pa.Array, path: str, instants: frozenset[str]) -> list[Any]:
    """Values that orjson writes as Delta does; None for absent ones and for unknown types."""
    kind = array.type
    if pa.types.is_struct(kind):
        return _structs(array, path, instants)
    if pa.types.is_timestamp(kind):
        return _timestamps(array, is_instant=kind.tz is not None or path in instants)
    for matches, convert in _LEAVES:
        if matches(kind):
            return [None if value is None else convert(value) for value in array.to_pylist()]
    return [None] * len(array)


def _structs(array: pa.StructArray, path: str, instants: frozenset[str]) -> list[Any]:
    names = [field.name for field in array.type]
    columns = [
        _values(child, f"{path}.{name}", instants)
        for name, child in zip(names, array.flatten(), strict=True)
    ]
    rows = zip(*columns, strict=True) if columns else [()] * len(array)
    return [
        {name: value for name, value in zip(names, row, strict=True) if value is not None}
        if valid
        else None
        for valid, row in zip(array.is_valid().to_pylist(), rows, strict=True)
    ]


def _timestamps(array: pa.Array, *, is_instant: bool) -> list[Any]:
    """Cut to milliseconds, as Delta's statistics are (DL-STAT-06)."""
    floored = pc.floor_temporal(array.cast(pa.timestamp(array.type.unit)), unit="millisecond")
    texts = pc.strftime(floored.cast(pa.timestamp("ms")), format=_TO_MILLISECOND).to_pylist()
    return [text and f"{text}Z" for text in texts] if is_instant else list(texts)


def _float64(value: float) -> Any:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _float32(value: float) -> Any:
    """With the digits of the short type, not of the double that holds it."""
    return _float64(float(str(np.float32(value))))


def _as_is(value: Any) -> Any:
    return value


_LEAVES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]], ...] = (
    (pa.types.is_integer, _as_is),
    (pa.types.is_boolean, _as_is),
    (pa.types.is_string, _as_is),
    (pa.types.is_large_string, _as_is),
    (pa.types.is_float64, _float64),
    (pa.types.is_float32, _float32),
    (pa.types.is_decimal, lambda value: orjson.Fragment(format(value, "f"))),
    (pa.types.is_date, lambda value: value.isoformat()),
)
