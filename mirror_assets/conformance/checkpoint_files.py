"""File actions of a checkpoint as columns of numbers, by Arrow's kernels where there are many."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import repeat
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mirror_assets.conformance.checkpoint_entries import Entries
from mirror_assets.conformance.file_columns import (
    NONE,
    FileColumns,
    Numbers,
    constant,
    fingerprints,
    key_hash,
    pair_hash,
)
from mirror_assets.conformance.row_counts import counts_of
from mirror_assets.delta.actions import DeletionVector, RemoveFile
from mirror_assets.delta.checkpoint_rows import Members

_STRING: Final = pa.string()
_INT64: Final = pa.int64()


@dataclass(frozen=True, slots=True)
class Adds:
    """Adds of one batch."""

    files: FileColumns
    paths: pa.StringArray
    data_changes: int
    #: files whose statistics are not JSON
    broken_stats: int
    #: deletion vectors by path
    vectors: dict[str, DeletionVector]


@dataclass(frozen=True, slots=True)
class Removes:
    """Removes of one batch."""

    #: `key_hash` of each
    keys: Numbers
    #: when it was removed
    times: Numbers
    data_changes: int = 0
    #: whether some carry statistics
    has_extras: bool = False

    @classmethod
    def of(cls, actions: list[RemoveFile]) -> Removes:
        """Removes that came as actions."""
        keys = [key_hash(remove.path, remove.dv_id) for remove in actions]
        times = [remove.deletion_timestamp or 0 for remove in actions]
        return cls(np.array(keys, np.int64), np.array(times, np.int64))


def read_adds(column: pa.StructArray, entries: Entries) -> Adds:
    """The adds of a batch; every row holds one. What is unusual is noted in `entries`."""
    members, count = Members("add", column), len(column)
    paths = members.required_column("path", _STRING)
    sizes = _numbers(members.required_column("size", _INT64), count)
    bases = _numbers(members.column("baseRowId", _INT64), count)
    versions = _numbers(members.column("defaultRowCommitVersion", _INT64), count)
    descriptors = members.deletion_vectors()
    vectors, deleted = _vectors(descriptors, count)
    stats = members.column("stats", _STRING)
    records, broken = (constant(NONE, count), 0) if stats is None else counts_of(stats)
    times = _numbers(members.required_column("modificationTime", _INT64), count)
    partitions = members.column("partitionValues")
    values = _map_hashes(partitions, count)
    entries.look_at_paths(paths)
    entries.look_at_times(times)
    entries.look_at_values(partitions, values, paths)
    files = FileColumns(
        key=_hashes(paths),
        vector=vectors,
        fingerprint=fingerprints(
            vectors,
            sizes,
            times,
            values,
            _map_hashes(members.column("tags"), count),
            bases,
            versions,
            _distinct_hashes(members.column("clusteringProvider", _STRING), count),
        ),
        size=sizes,
        deleted=deleted,
        base_row_id=bases,
        row_commit_version=versions,
        records=records,
        has_stats=_has_any(stats, members.column("stats_parsed"), count=count),
    )
    return Adds(files, paths, _true(members, "dataChange"), broken, _by_path(paths, descriptors))


def read_removes(column: pa.StructArray) -> Removes:
    """The removes of a batch; every row holds one."""
    members, count = Members("remove", column), len(column)
    keys = _hashes(members.required_column("path", _STRING))
    vectors, _ = _vectors(members.deletion_vectors(), count)
    return Removes(
        keys ^ vectors,
        _numbers(members.column("deletionTimestamp", _INT64), count, absent=0),
        _true(members, "dataChange"),
        has_extras=members.column("stats", _STRING) is not None,
    )


def presence(values: pa.Array) -> npt.NDArray[np.int8]:
    """1 where a value is there; `to_numpy` would load pandas for this."""
    flags = values.is_valid().cast(pa.int8())
    return np.frombuffer(flags.buffers()[1], np.int8, len(flags), flags.offset)


def _numbers(values: pa.Array | None, count: int, *, absent: int = NONE) -> Numbers:
    if values is None:
        return constant(absent, count)
    if values.null_count:
        values = values.fill_null(absent)
    return np.frombuffer(values.buffers()[1], np.int64, count, values.offset * 8)


def _hashes(texts: pa.StringArray) -> Numbers:
    return np.fromiter(map(hash, texts.to_pylist()), np.int64, len(texts))


def _distinct_hashes(texts: pa.StringArray | None, count: int) -> Numbers:
    """Hashes of texts that repeat from row to row; of none, that of the empty one."""
    if texts is None:
        return constant(0, count)
    encoded = texts.dictionary_encode()
    known = np.append(_hashes(encoded.dictionary), 0)
    places = _numbers(encoded.indices.cast(_INT64), count)
    return known[places]


def _map_hashes(maps: pa.MapArray | None, count: int) -> Numbers:
    """Each map's `map_hash`: the sum over its entries."""
    if maps is None or not pa.types.is_map(maps.type):
        return constant(0, count)
    names, values = maps.keys, maps.items
    entries = len(names)
    sums = np.zeros(entries + 1, np.int64)
    pairs = pair_hash(_distinct_hashes(names, entries), _distinct_hashes(values, entries))
    np.cumsum(pairs, out=sums[1:])
    bounds = np.frombuffer(maps.offsets.buffers()[1], np.int32, count + 1, maps.offsets.offset * 4)
    found: Numbers = sums[bounds[1:]] - sums[bounds[:-1]]
    return found * presence(maps) if maps.null_count else found


def _by_path(
    paths: pa.StringArray, vectors: Iterable[DeletionVector | None]
) -> dict[str, DeletionVector]:
    if isinstance(vectors, repeat):
        return {}
    pairs = zip(paths.to_pylist(), vectors, strict=True)
    return {path: vector for path, vector in pairs if vector is not None}


def _vectors(vectors: Iterable[DeletionVector | None], count: int) -> tuple[Numbers, Numbers]:
    """The hash of each deletion vector's id, and how many rows it takes away."""
    if isinstance(vectors, repeat):
        return constant(0, count), constant(0, count)
    pairs = [(0, 0) if vector is None else _vector(vector) for vector in vectors]
    hashes, deleted = np.array(pairs, np.int64).T
    return hashes.copy(), deleted.copy()


def _vector(vector: DeletionVector) -> tuple[int, int]:
    return hash(vector.unique_id), vector.cardinality


def _has_any(*columns: pa.Array | None, count: int) -> Numbers:
    """1 where one of the columns has a value; a single number where all rows have."""
    found = np.zeros(count, np.bool_)
    for column in columns:
        if column is not None:
            found |= presence(column).astype(np.bool_)
    return constant(1, count) if found.all() else found.astype(np.int64)


def _true(members: Members, name: str) -> int:
    column = members.column(name, pa.bool_())
    return 0 if column is None else column.true_count
