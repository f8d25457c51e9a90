"""Files as columns of numbers: what the rules ask of millions of them, in few bytes each.

A path is its 64-bit hash (Python's own, salted per process), and so is everything else that need
only be compared. A column whose files all agree takes no memory: numpy repeats one number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from mirror_assets.delta.actions import StringMap

Numbers = npt.NDArray[np.int64]
_Number = TypeVar("_Number", int, Numbers)

#: absent
NONE: Final = -1
#: odd, so that no step of the mixing loses anything
_ODD: Final = 0x1E37_79B9_7F4A_7C15
_ADDEND: Final = 0x2545_F491_4F6C_DD1D
_MASK: Final = 2**64 - 1
_SIGN: Final = 2**63


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


@dataclass(frozen=True, slots=True, kw_only=True)
class FileColumns:
    """The same of many adds, a column for each member of `LiveFile`."""

    #: of the path
    key: Numbers
    vector: Numbers
    fingerprint: Numbers
    size: Numbers
    deleted: Numbers
    base_row_id: Numbers
    row_commit_version: Numbers
    records: Numbers
    has_stats: Numbers

    @classmethod
    def of(cls, files: Iterable[tuple[str, LiveFile]]) -> Self:
        """From paths and what is known of each."""
        rows = np.array([(hash(path), *file) for path, file in files], np.int64)
        columns = rows.reshape(len(rows), len(_NAMES)).T
        return cls(**{name: columns[place].copy() for place, name in enumerate(_NAMES)})

    def __len__(self) -> int:
        return len(self.key)

    @property
    def logical_key(self) -> Numbers:
        """`key_hash` of each file."""
        return self.key if _is_constant(self.vector, 0) else self.key ^ self.vector

    def file(self, place: int) -> LiveFile:
        """One of them."""
        return LiveFile._make(int(getattr(self, name)[place]) for name in LiveFile._fields)

    def take(self, places: npt.NDArray[np.intp]) -> FileColumns:
        """The files at these places, in this order."""
        return FileColumns(**{name: _taken(getattr(self, name), places) for name in _NAMES})

    def where(self, chosen: npt.NDArray[np.bool_]) -> FileColumns:
        """The files that are chosen."""
        return self if chosen.all() else self.take(np.flatnonzero(chosen))

    def without(self, keys: Numbers) -> FileColumns:
        """The files, ascending by key, but for some."""
        kept = np.ones(len(self), np.bool_)
        places = _places(keys, self.key)
        kept[places[places >= 0]] = False
        return self.where(kept)

    def ordered(self) -> FileColumns:
        """Ascending by key."""
        return ColumnParts([self]).ordered()

    def against(self, other: FileColumns) -> Comparison:
        """What two sets of files, both ascending by key, have in common and what not."""
        known = _places(self.key, other.key)
        there = known >= 0
        return Comparison(
            only_here=self.take(np.flatnonzero(~there)),
            only_there=other.take(np.flatnonzero(_places(other.key, self.key) < 0)),
            here=self.where(there),
            there=other.take(known[there]),
        )

    def place_of(self, key: int) -> int | None:
        """Where in ascending files a key is."""
        place = int(np.searchsorted(self.key, key))
        return place if place < len(self) and self.key[place] == key else None


class ColumnParts:
    """Files as they are read, until all are there."""

    def __init__(self, parts: Iterable[FileColumns] = ()) -> None:
        self._columns: dict[str, list[Numbers]] = {name: [] for name in _NAMES}
        for part in parts:
            self.add(part)

    def add(self, files: FileColumns) -> None:
        """Take some more."""
        for name, parts in self._columns.items():
            parts.append(getattr(files, name))

    def ordered(self) -> FileColumns:
        """All, ascending by key; a column at a time, so that they are not held twice."""
        order = np.argsort(_joined(self._columns["key"]), kind="stable")
        return FileColumns(
            **{name: _taken(_joined(self._columns.pop(name)), order) for name in _NAMES}
        )


class Comparison(NamedTuple):
    """Two sets of files beside each other."""

    only_here: FileColumns
    only_there: FileColumns
    #: those that both have, in one order
    here: FileColumns
    there: FileColumns


_NAMES: Final = ("key", *LiveFile._fields)
NO_FILES: Final = FileColumns.of(())


def key_hash(path: str, dv_id: str) -> int:
    """A logical file's key (DL-REC-01); the hash of an empty text is 0."""
    return hash(path) ^ hash(dv_id)


def map_hash(values: StringMap | None) -> int:
    """The same whatever the order; the empty text is null, and an empty map is none."""
    if not values:
        return 0
    return sum(pair_hash(hash(name), hash(value or "")) for name, value in values.items())


def pair_hash(name: _Number, value: _Number) -> _Number:
    """One entry of a map, by the hashes of its sides."""
    return (name | 1) * (value + _ADDEND)


def fingerprint(*members: int) -> int:
    """A hash of what a checkpoint must repeat of an add."""
    mixed = _mixed(*members) & _MASK
    return mixed - 2 * (mixed & _SIGN)


def fingerprints(*members: Numbers) -> Numbers:
    """The same of many; numpy's integers overflow silently, as they are meant to."""
    return _mixed(*members)


def constant(value: int, count: int) -> Numbers:
    """One number, so many times."""
    return np.broadcast_to(np.int64(value), (count,))


def repeats(keys: Numbers) -> Numbers:
    """The keys that came before, once for each time."""
    ordered = np.sort(keys)
    found: Numbers = ordered[1:][ordered[1:] == ordered[:-1]]
    return found


def _mixed(first: _Number, *others: _Number) -> _Number:
    for other in others:
        first = first * _ODD + other
    return first


def _places(keys: Numbers, among: Numbers) -> npt.NDArray[np.intp]:
    """Where each of some keys is among others, which ascend; -1 for nowhere."""
    if not len(among):
        return np.full(len(keys), -1, np.intp)
    places = np.searchsorted(among, keys)
    places[places == len(among)] = 0
    places[among[places] != keys] = -1
    return places


def _is_constant(column: Numbers, value: int | None = None) -> bool:
    if column.strides != (0,) and len(column):
        return False
    return value is None or not len(column) or int(column[0]) == value


def _taken(column: Numbers, places: npt.NDArray[np.intp]) -> Numbers:
    if len(column) and _is_constant(column):
        return constant(int(column[0]), len(places))
    return column[places]


def _joined(columns: Sequence[Numbers]) -> Numbers:
    parts = [column for column in columns if len(column)]
    if parts and all(_is_constant(part, int(parts[0][0])) for part in parts):
        return constant(int(parts[0][0]), sum(map(len, parts)))
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
