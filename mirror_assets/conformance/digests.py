"""A digest of rows, whatever their order and whoever reads them.

Readers spell one value in many types; here it gets one spelling.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

_WORD: Final = 2**128


def digest_of(batches: Iterable[pa.RecordBatch]) -> tuple[int, str]:
    """Rows, and a digest of their values by name that no order of rows or columns changes."""
    rows, total = 0, 0
    for batch in batches:
        names = sorted(batch.schema.names)
        columns = [batch.column(name).to_pylist() for name in names]
        rows += batch.num_rows
        spelled = _text(names)
        for values in zip(*columns, strict=True):
            text = spelled + "".join(map(_text, values))
            total += int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest())
    return rows, f"{total % _WORD:032x}"


def _text(value: Any) -> str:  # noqa: C901, PLR0911 - one case per type
    """A value in one spelling for all readers; none is the beginning of another."""
    match value:
        case None:
            return "null;"
        case bool():
            return "true;" if value else "false;"
        case float() if math.isnan(value):
            return "NaN;"
        case float() if value.is_integer():
            return f"{int(value)};"
        case Decimal():
            # Not `normalize`: it rounds to the digits of a context.
            whole, _, part = f"{value:f}".partition(".")
            part = part.rstrip("0")
            return f"{whole}.{part};" if part else f"{whole};"
        case datetime():
            aware = value.astimezone(UTC) if value.tzinfo else value
            return aware.replace(tzinfo=None).isoformat(timespec="microseconds") + ";"
        case bytes():
            return _spelled_bytes(value)
        case str():
            return f"{len(value)}:{value};"
        case dict():
            return "{" + "".join(f"{_text(k)}{_text(v)}" for k, v in sorted(value.items())) + "}"
        case [tuple(), *_]:
            # The entries of a map, which have no order.
            return "<" + "".join(sorted(_text(key) + _text(held) for key, held in value)) + ">"
        case list():
            return "[" + "".join(map(_text, value)) + "]"
    return f"{value};"


def _spelled_bytes(value: bytes) -> str:
    """As the text that they are, if any: some readers have one type for both."""
    try:
        return _text(value.decode())
    except UnicodeDecodeError:
        return f"x{value.hex()};"
