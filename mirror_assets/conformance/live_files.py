"""The live files of a table, in few bytes each, while a log is replayed.

A table may have millions of files. What is asked of them is little: is this path live, with which
deletion vector, how large is it, and is a checkpoint's entry the same. So a file is one row of
numbers, its path a 64-bit hash (Python's own, salted per process). Recent changes lie in a
dictionary over the rows and are folded into them now and then.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mirror_assets.delta.actions import AddFile, StringMap

#: changes that are held with their paths before they become numbers
_FOLD: Final = 200_000
_NONE: Final = -1

Rows = npt.NDArray[np.int64]


class LiveFile(NamedTuple):
    """What is remembered of an add."""

    #: of the deletion vector's id; 0 without one
    vector: int
    #: of everything that a checkpoint must repeat
    fingerprint: int
    size: int
    #: rows that the deletion vector takes away
    deleted: int
    #: -1 for absent
    base_row_id: int
    row_commit_version: int
    #: -1 where the statistics do not tell
    records: int
    has_stats: int


_COLUMNS: Final = 1 + len(LiveFile._fields)
_EMPTY: Final[Rows] = np.empty((0, _COLUMNS), np.int64)


def live_file(add: AddFile, records: int | None) -> LiveFile:
    """The row of an add."""
    vector = add.deletion_vector
    return LiveFile(
        vector=0 if vector is None else hash(vector.unique_id),
        fingerprint=fingerprint(
            add.dv_id,
            add.size,
            add.modification_time,
            map_hash(add.partition_values),
            map_hash(add.tags),
            add.base_row_id,
            add.default_row_commit_version,
            add.clustering_provider,
        ),
        size=add.size,
        deleted=0 if vector is None else vector.cardinality,
        base_row_id=_NONE if add.base_row_id is None else add.base_row_id,
        row_commit_version=(
            _NONE if add.default_row_commit_version is None else add.default_row_commit_version
        ),
        records=_NONE if records is None else records,
        has_stats=int(bool(add.stats)),
    )


def fingerprint(*members: object) -> int:
    """A hash of what a checkpoint must repeat of an add, maps as hashes of their own."""
    return hash(members)


def map_hash(values: StringMap | None) -> int:
    """The same whatever the order; the empty text is null, and an empty map is none."""
    return hash(frozenset((k, v or None) for k, v in values.items())) if values else 0


def key_hash(path: str, dv_id: str) -> int:
    """A logical file's key (DL-REC-01)."""
    return hash((path, dv_id)) if dv_id else hash(path)


class LiveFiles:
    """The files of one version; changes as commits are applied."""

    def __init__(self, rows: Rows | None = None, paths: Iterable[str] = ()) -> None:
        """Begin with the rows of a checkpoint, and some of their paths, or with no file."""
        self._rows = _EMPTY if rows is None else rows[np.argsort(rows[:, 0], kind="stable")]
        self._changes: dict[str, LiveFile | None] = {}
        #: for messages: the first so many
        self._paths: dict[int, str] = {hash(path): path for path in islice(paths, _FOLD)}
        self.count = len(self._rows)
        self.size_bytes = int(self._rows[:, 3].sum())
        self.deleted_records = int(self._rows[:, 4].sum())
        self.vectors = int(np.count_nonzero(self._rows[:, 1]))
        counted = self._rows[self._rows[:, 7] >= 0]
        self._uncounted = self.count - len(counted)
        self._records = int(counted[:, 7].sum())

    @property
    def records(self) -> int | None:
        """Rows that are not deleted; None where some statistics do not tell."""
        return None if self._uncounted else self._records - self.deleted_records

    def get(self, path: str) -> LiveFile | None:
        """The live file of this path."""
        if path in self._changes:
            return self._changes[path]
        return self._row(hash(path))

    def put(self, path: str, file: LiveFile) -> None:
        """Make the file live, in place of one with the same path."""
        self._count(self.get(path), -1)
        self._count(file, +1)
        self._change(path, file)

    def drop(self, path: str) -> None:
        """Make the file dead, if it lives."""
        self._count(self.get(path), -1)
        self._change(path, None)

    def rows(self) -> Rows:
        """All files, ascending by the hash of their paths."""
        self._fold()
        return self._rows

    def path_of(self, key: int) -> str:
        """The path behind a hash, as far as it is still known."""
        return self._paths.get(key, "a file whose path was not kept")

    def _change(self, path: str, file: LiveFile | None) -> None:
        self._changes[path] = file
        if file is not None and len(self._paths) < _FOLD:
            self._paths[hash(path)] = path
        if len(self._changes) > _FOLD:
            self._fold()

    def _count(self, file: LiveFile | None, sign: int) -> None:
        if file is None:
            return
        self.count += sign
        self.size_bytes += sign * file.size
        self.deleted_records += sign * file.deleted
        self.vectors += sign * (file.vector != 0)
        self._records += sign * max(file.records, 0)
        self._uncounted += sign * (file.records < 0)

    def _row(self, key: int) -> LiveFile | None:
        if not len(self._rows):
            return None
        place = int(np.searchsorted(self._rows[:, 0], key))
        if place < len(self._rows) and self._rows[place, 0] == key:
            return LiveFile._make(self._rows[place, 1:].tolist())
        return None

    def _fold(self) -> None:
        if not self._changes:
            return
        changed = np.fromiter(map(hash, self._changes), np.int64, len(self._changes))
        kept = self._rows[~np.isin(self._rows[:, 0], changed)]
        alive = [(hash(path), *file) for path, file in self._changes.items() if file is not None]
        added = np.array(alive, np.int64).reshape(len(alive), _COLUMNS)
        merged = np.concatenate([kept, added])
        self._rows = merged[np.argsort(merged[:, 0], kind="stable")]
        self._changes = {}
