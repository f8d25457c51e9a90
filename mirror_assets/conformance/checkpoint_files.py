"""File actions of a checkpoint as rows of numbers, a column at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mirror_assets.conformance.live_files import LiveFile, Rows, key_hash, map_hash
from mirror_assets.delta.actions import DeletionVector
from mirror_assets.delta.checkpoint_rows import Members

Keys = npt.NDArray[np.int64]


class _Counted(msgspec.Struct, gc=False, rename="camel"):
    num_records: int | None = None


_COUNTED: Final = msgspec.json.Decoder(_Counted)
_ALL_COUNTED: Final = msgspec.json.Decoder(list[_Counted])


@dataclass(frozen=True, slots=True)
class Adds:
    """Adds of one batch."""

    #: as in `LiveFiles`
    rows: Rows
    #: hash of path and deletion vector
    keys: Keys
    paths: list[str]
    data_changes: int
    #: statistics that are not JSON: place in the batch
    broken_stats: tuple[int, ...] = ()

    @classmethod
    def of(cls, files: Iterable[tuple[str, str, LiveFile]]) -> Adds:
        """Adds that came as actions."""
        listed = list(files)
        rows = np.array([(hash(path), *file) for path, _, file in listed], np.int64)
        keys = np.fromiter((key_hash(path, dv) for path, dv, _ in listed), np.int64, len(listed))
        return cls(rows.reshape(len(listed), 9), keys, [path for path, _, _ in listed], 0)


@dataclass(frozen=True, slots=True)
class Removes:
    """Removes of one batch: hash of path and deletion vector, and the time of the removal."""

    rows: Rows
    data_changes: int = 0
    #: whether some carry statistics or tags
    has_extras: bool = False

    @classmethod
    def of(cls, files: Iterable[tuple[str, str, int | None]]) -> Removes:
        """Removes that came as actions."""
        listed = [(key_hash(path, dv), when or 0) for path, dv, when in files]
        return cls(np.array(listed, np.int64).reshape(len(listed), 2))


def read_adds(column: pa.StructArray) -> Adds:
    """The adds of a batch; every row holds one."""
    members, count = Members("add", column), len(column)
    paths = list(members.required("path", pa.string()))
    sizes = list(members.required("size", pa.int64()))
    vectors = members.deletion_vectors()
    without = isinstance(vectors, repeat)
    holes = [] if without else list(vectors)
    ids: Iterable[str] = repeat("", count) if without else list(map(_id, holes))
    bases = list(members.optional("baseRowId", pa.int64()))
    versions = list(members.optional("defaultRowCommitVersion", pa.int64()))
    prints = zip(
        ids,
        sizes,
        members.required("modificationTime", pa.int64()),
        _map_hashes(column, "partitionValues"),
        _map_hashes(column, "tags"),
        bases,
        versions,
        members.optional("clusteringProvider", pa.string()),
        strict=True,
    )
    records, broken = _records(members.optional("stats", pa.string()))
    rows = np.empty((count, 9), np.int64)
    rows[:, 0] = np.fromiter(map(hash, paths), np.int64, count)
    rows[:, 2] = np.fromiter(map(hash, prints), np.int64, count)
    rows[:, 3] = sizes
    rows[:, 5] = _numbers(bases, count)
    rows[:, 6] = _numbers(versions, count)
    rows[:, 7] = np.maximum(records, -1)
    rows[:, 8] = (records > -2) | _has_member(column, "stats_parsed")  # noqa: PLR2004 - see _records
    rows[:, (1, 4)], keys = 0, rows[:, 0]
    if not without:
        rows[:, 1] = [hash(i) if i else 0 for i in ids]
        rows[:, 4] = [vector.cardinality if vector else 0 for vector in holes]
        keys = np.fromiter(map(key_hash, paths, ids), np.int64, count)
    changes = sum(1 for change in members.optional("dataChange", pa.bool_()) if change)
    return Adds(rows, keys, paths, changes, broken)


def read_removes(column: pa.StructArray) -> Removes:
    """The removes of a batch; every row holds one."""
    members, count = Members("remove", column), len(column)
    paths = members.required("path", pa.string())
    ids = (_id(vector) for vector in members.deletion_vectors())
    rows = np.empty((count, 2), np.int64)
    rows[:, 0] = np.fromiter(map(key_hash, paths, ids), np.int64, count)
    rows[:, 1] = [when or 0 for when in members.optional("deletionTimestamp", pa.int64())]
    changes = sum(1 for change in members.optional("dataChange", pa.bool_()) if change)
    extras = any(text is not None for text in members.optional("stats", pa.string()))
    return Removes(rows, changes, extras)


def _map_hashes(column: pa.StructArray, name: str) -> Iterable[int]:
    """Hashes as `map_hash` makes them; values repeat from file to file, and are hashed once."""
    index = column.type.get_field_index(name)
    values = column.flatten()[index] if index >= 0 else None
    if values is None or values.null_count == len(values) or not pa.types.is_map(values.type):
        return repeat(0, len(column))
    keys, items = values.keys.to_pylist(), values.items.to_pylist()
    if not keys:
        return repeat(0, len(column))
    offsets, known = values.offsets.to_pylist(), dict[tuple[Any, ...], int]()
    found = []
    for start, end in pairwise(offsets):
        key = (*keys[start:end], *items[start:end])
        value = known.get(key)
        if value is None:
            pairs = zip(keys[start:end], items[start:end], strict=True)
            value = known[key] = map_hash(dict(pairs))
        found.append(value)
    return found


def _id(vector: DeletionVector | None) -> str:
    return "" if vector is None else vector.unique_id


def _numbers(values: list[Any], count: int) -> Keys:
    return np.fromiter((-1 if value is None else value for value in values), np.int64, count)


def _records(texts: Iterable[str | None]) -> tuple[Keys, tuple[int, ...]]:
    """Records by the statistics; -1 where they do not tell, -2 where there are none."""
    if isinstance(texts, repeat):
        return np.full(len(list(texts)), -2, np.int64), ()
    listed = list(texts)
    together = _counted_together(listed)
    if together is not None:
        return together, ()
    found, broken = [], []
    for place, text in enumerate(listed):
        if text is None:
            found.append(-2)
            continue
        try:
            count = _COUNTED.decode(text).num_records
        except (msgspec.MsgspecError, UnicodeEncodeError):
            broken.append(place)
            count = None
        found.append(-1 if count is None else count)
    return np.array(found, np.int64), tuple(broken)


def _counted_together(texts: list[str | None]) -> Keys | None:
    """The records of all files by one decoding; None where some text is missing or broken."""
    try:
        counted = _ALL_COUNTED.decode(f"[{','.join(texts)}]")  # type: ignore[arg-type] # see below
    except (TypeError, msgspec.MsgspecError, UnicodeEncodeError):  # a text that is None, or no JSON
        return None
    if len(counted) != len(texts):
        return None
    numbers = (-1 if one.num_records is None else one.num_records for one in counted)
    return np.fromiter(numbers, np.int64, len(texts))


def _has_member(column: pa.StructArray, name: str) -> npt.NDArray[np.bool_]:
    index = column.type.get_field_index(name)
    if index < 0:
        return np.zeros(len(column), np.bool_)
    return presence(column.flatten()[index]).astype(np.bool_)


def presence(values: pa.Array) -> npt.NDArray[np.int8]:
    """1 where a value is there; `to_numpy` would load pandas for this."""
    flags = values.is_valid().cast(pa.int8())
    return np.frombuffer(flags.buffers()[1], np.int8, len(flags), flags.offset)
