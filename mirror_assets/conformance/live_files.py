"""The live files of a table, in few bytes each, while a log is replayed.

A table may have millions of files. What is asked of them is little: is this path live, with which
deletion vector, how large is it, and is a checkpoint's entry the same. So they are columns of
numbers (`file_columns`); recent changes lie in a dictionary over them and are folded in now and
then.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

from mirror_assets.conformance.file_columns import (
    NO_FILES,
    NONE,
    ColumnParts,
    FileColumns,
    LiveFile,
    fingerprint,
    map_hash,
)
from mirror_assets.conformance.row_counts import num_records
from mirror_assets.delta.actions import AddFile

#: changes that are held as they are before they become numbers
_FOLD: Final = 50_000
#: paths that are kept for messages
_NAMED: Final = 200_000


def live_file(add: AddFile, records: int | None) -> LiveFile:
    """The row of an add."""
    vector, base, version = add.deletion_vector, add.base_row_id, add.default_row_commit_version
    dv_hash = 0 if vector is None else hash(vector.unique_id)
    base = NONE if base is None else base
    version = NONE if version is None else version
    repeated = fingerprint(
        dv_hash,
        add.size,
        add.modification_time,
        map_hash(add.partition_values),
        map_hash(add.tags),
        base,
        version,
        hash(add.clustering_provider or ""),
    )
    return LiveFile(
        dv_hash,
        repeated,
        add.size,
        0 if vector is None else vector.cardinality,
        base,
        version,
        NONE if records is None else records,
        int(bool(add.stats)),
    )


class PathNames:
    """Paths behind their hashes, for messages: the first so many."""

    def __init__(self) -> None:
        self._known: dict[int, str] = {}
        self._columns: list[pa.StringArray] = []
        self._room = _NAMED

    def take(self, paths: pa.StringArray) -> None:
        """Keep what there is room for, as it is: hardly ever is one asked for."""
        if self._room:
            self._columns.append(paths.slice(0, self._room))
            self._room -= len(self._columns[-1])

    def note(self, path: str) -> None:
        """Keep a single one."""
        if self._room:
            self._known[hash(path)] = path
            self._room -= 1

    def of(self, key: int) -> str:
        """The path, as far as it is still known."""
        for column in self._columns:
            self._known |= {hash(path): path for path in column.to_pylist()}
        self._columns.clear()
        return self._known.get(key, "a file whose path was not kept")


class _Change(NamedTuple):
    """A file that became live: the add, and how many rows it counts."""

    add: AddFile
    records: int | None


class LiveFiles:
    """The files of one version; changes as commits are applied."""

    def __init__(self, files: FileColumns = NO_FILES, names: PathNames | None = None) -> None:
        """Begin with the files of a checkpoint, ascending by key, or with none."""
        self._files = files
        self._changes: dict[str, _Change | None] = {}
        self._names = names or PathNames()
        self.count = len(files)
        self.size_bytes = int(files.size.sum())
        self.deleted_records = int(files.deleted.sum())
        self.vectors = int(np.count_nonzero(files.vector))
        self._uncounted = int(np.count_nonzero(files.records < 0))
        self._records = int(files.records.sum()) + self._uncounted

    @classmethod
    def of(cls, adds: Iterable[AddFile]) -> Self:
        """All at once, where there may be millions."""
        parts, names, rest = ColumnParts(), PathNames(), iter(adds)
        while batch := list(islice(rest, _FOLD)):
            for add in batch:
                names.note(add.path)
            known = ((add.path, live_file(add, num_records(add.stats))) for add in batch)
            parts.add(FileColumns.of(known))
        return cls(parts.ordered(), names)

    @property
    def records(self) -> int | None:
        """Rows that are not deleted; None where some statistics do not tell."""
        return None if self._uncounted else self._records - self.deleted_records

    def get(self, path: str) -> LiveFile | None:
        """The live file of this path."""
        if path in self._changes:
            change = self._changes[path]
            return None if change is None else live_file(*change)
        if not len(self._files):
            return None
        place = self._files.place_of(hash(path))
        return None if place is None else self._files.file(place)

    def put(self, add: AddFile) -> None:
        """Make the file live, in place of one with the same path."""
        self.drop(add.path)
        records, vector = num_records(add.stats), add.deletion_vector
        self.count += 1
        self.size_bytes += add.size
        if records is None:
            self._uncounted += 1
        else:
            self._records += records
        if vector is not None:
            self.vectors += 1
            self.deleted_records += vector.cardinality
        self._changes[add.path] = _Change(add, records)
        if len(self._changes) > _FOLD:
            self._fold()

    def drop(self, path: str) -> None:
        """Make the file dead, if it lives."""
        file = self.get(path)
        if file is None:
            return
        self.count -= 1
        self.size_bytes -= file.size
        self.deleted_records -= file.deleted
        self.vectors -= file.vector != 0
        self._records -= max(file.records, 0)
        self._uncounted -= file.records < 0
        self._changes[path] = None

    def files(self) -> FileColumns:
        """All files, ascending by key."""
        self._fold()
        return self._files

    def path_of(self, key: int) -> str:
        """The path behind a hash, as far as it is still known."""
        self._fold()
        return self._names.of(key)

    def _fold(self) -> None:
        if not self._changes:
            return
        changed = np.fromiter(map(hash, self._changes), np.int64, len(self._changes))
        alive = [(path, change) for path, change in self._changes.items() if change is not None]
        for path, _ in alive:
            self._names.note(path)
        added = FileColumns.of((path, live_file(*change)) for path, change in alive)
        self._changes = {}
        self._files = ColumnParts([self._files.without(changed), added]).ordered()
