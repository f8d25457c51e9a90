"""Python values as Arrow arrays, for the types that actions are made of.

Does what `pa.array` does for them. That function, though, loads pandas wherever it is installed:
half a second and forty megabytes, more than a small checkpoint costs.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence, Sized


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Strings, integers, booleans, lists, and dictionaries as maps or structures; None is null.

    Strings may come encoded. Members that a dictionary lacks are null, those that the structure
    lacks are left out.
    """
    nulls = values.count(None)
    if nulls == len(values):
        return pa.nulls(nulls, kind)
    if pa.types.is_struct(kind):
        members = [
            array_of([None if v is None else v.get(field.name) for v in values], field.type)
            for field in kind
        ]
        return _array(kind, values, nulls, [], members)
    if pa.types.is_map(kind):
        maps = [value or {} for value in values]
        return _array(kind, values, nulls, [_offsets(maps)], [_entries(maps, kind)])
    if pa.types.is_list(kind):
        lists = [value or [] for value in values]
        items = array_of(list(chain.from_iterable(lists)), kind.value_type)
        return _array(kind, values, nulls, [_offsets(lists)], [items])
    return _leaves(values, kind, nulls)


def _entries(maps: Sequence[dict[str, Any]], kind: pa.MapType) -> pa.StructArray:
    keys = array_of(list(chain.from_iterable(maps)), kind.key_type)
    items = array_of(list(chain.from_iterable(m.values() for m in maps)), kind.item_type)
    fields = [kind.key_field, kind.item_field]
    return pa.StructArray.from_arrays([keys, items], fields=fields)


def _leaves(values: Sequence[Any], kind: pa.DataType, nulls: int) -> pa.Array:
    if pa.types.is_string(kind):
        encoded = _encoded(values, nulls)
        return _array(kind, values, nulls, [_offsets(encoded), pa.py_buffer(b"".join(encoded))])
    if pa.types.is_boolean(kind):
        return _array(kind, values, nulls, [_bitmap(map(bool, values))])
    numbers = [value or 0 for value in values] if nulls else values
    return _array(kind, values, nulls, [pa.py_buffer(np.array(numbers, kind.to_pandas_dtype()))])


def _encoded(values: Sequence[Any], nulls: int) -> Sequence[bytes]:
    if isinstance(next(value for value in values if value is not None), str):
        return [b"" if value is None else value.encode() for value in values]
    return [value or b"" for value in values] if nulls else values


def _array(
    kind: pa.DataType,
    values: Sequence[Any],
    nulls: int,
    buffers: list[pa.Buffer],
    children: list[pa.Array] | None = None,
) -> pa.Array:
    validity = _bitmap(value is not None for value in values) if nulls else None
    return pa.Array.from_buffers(kind, len(values), [validity, *buffers], nulls, children=children)


def _offsets(items: Sequence[Sized]) -> pa.Buffer:
    offsets = np.zeros(len(items) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, items), np.int32, len(items)), out=offsets[1:])
    return pa.py_buffer(offsets)


def _bitmap(flags: Iterable[bool]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(np.fromiter(flags, np.bool_), bitorder="little"))
