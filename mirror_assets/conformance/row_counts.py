"""How many rows files have, by their statistics; everything else in them is only proven JSON."""

from __future__ import annotations

from operator import attrgetter
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from mirror_assets.conformance.file_columns import NONE, Numbers


class _Counted(msgspec.Struct, gc=False, rename="camel"):
    num_records: int | None = None


_DECODER: Final = msgspec.json.Decoder(_Counted)
_NUMBER: Final = attrgetter("num_records")


def num_records(stats: str | None) -> int | None:
    """What the statistics of a file count; None if they do not. Their bounds are passed over."""
    if not stats:
        return None
    try:
        return _DECODER.decode(stats).num_records
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return None


def counts_of(texts: pa.StringArray) -> tuple[Numbers, int]:
    """The same of many, -1 where they do not tell; and how many texts are not JSON."""
    together = _counted_together(texts)
    if together is not None:
        return together, 0
    broken, found = 0, []
    for text in texts.to_pylist():
        try:
            count = None if text is None else _DECODER.decode(text).num_records
        except (msgspec.MsgspecError, UnicodeEncodeError):
            broken, count = broken + 1, None
        found.append(NONE if count is None else count)
    return np.array(found, np.int64), broken


def _counted_together(texts: pa.StringArray) -> Numbers | None:
    """All by one decoding, for they lie behind each other; None where some text is unusual."""
    if texts.null_count:
        return None
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    try:
        counted = _DECODER.decode_lines(memoryview(data)[bounds[0] : bounds[-1]])
        if len(counted) != len(texts):
            return None
        return np.fromiter(map(_NUMBER, counted), np.int64, len(texts))
    except (msgspec.MsgspecError, TypeError, OverflowError):  # TypeError: one does not count
        return None
