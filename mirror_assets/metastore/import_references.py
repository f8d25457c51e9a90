"""Which version each file of a log ends at, worked out without SQL.

Every add and remove leaves one reference of 24 bytes. The newest reference of a key wins
(DL-REC-01), so the version that ends a reference is that of the next one with its key. In one
version an add stands after a remove, whatever the order of the lines (DL-CMT-16).
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirror_assets.metastore.import_parts import FileRefs

    Integers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_Kind = TypeVar("_Kind", np.int64, np.bool_)

_BLOCK: Final = 1 << 17
_CHUNK: Final = 1 << 16
#: the end of what has none
NEVER: Final = -1
_ORDINAL_BITS: Final = 32
#: what makes the ordinals of a checkpoint's state positive
_NEGATIVE: Final = 1 << 31
_LOCAL: Final = b"file:"
_FIRST_BYTE: Final = itemgetter(slice(1))
_FIRST_BYTES: Final = {b"/", _LOCAL[:1]}


class References:
    """The references of a log, in the order of their versions."""

    def __init__(self) -> None:
        self._hashes = _Column(np.int64)
        self._places = _Column(np.int64)
        self._sizes = _Column(np.int64)
        self._are_adds = _Column(np.bool_)
        #: the hashes of the one spelling of each key, if one has several
        self._spelled: _Column[np.int64] | None = None

    def add(self, version: int, files: FileRefs) -> None:
        """Note the references of a version; versions ascend."""
        count = len(files.keys)
        self._are_adds.extend(np.full(count, files.is_add))
        hashes = np.fromiter(map(hash, files.keys), np.int64, count)
        self._note_spellings(files.keys, hashes)
        self._hashes.extend(hashes)
        self._places.extend(places_of(version, files.ordinals))
        self._sizes.extend(files.sizes)

    def resolve(self) -> Resolved:
        """The ends of all references."""
        self._arrange()
        return self._resolve(self._hashes.values)

    def resolve_tolerantly(self) -> Resolved | None:
        """As `resolve`, with all spellings of a local path as one; None if there are none."""
        if self._spelled is None:
            return None
        self._arrange()
        return self._resolve(self._spelled.values)

    def _note_spellings(self, keys: list[bytes], hashes: Integers) -> None:
        spelled = hashes
        if not _FIRST_BYTES.isdisjoint(map(_FIRST_BYTE, keys)):
            spelled = np.fromiter((hash(one_spelling(key)) for key in keys), np.int64, len(keys))
        if self._spelled is None:
            if spelled is hashes or (spelled == hashes).all():
                return
            self._spelled = _Column(np.int64)
            self._spelled.extend(self._hashes.values)
        self._spelled.extend(spelled)

    def _arrange(self) -> None:
        """Bring the references into the order of their places."""
        places = self._places.values
        if (places[1:] > places[:-1]).all():
            return
        order = np.argsort(places, kind="stable")
        del places
        for column in (self._hashes, self._places, self._sizes, self._are_adds, self._spelled):
            if column is not None:
                column.reorder(order)

    def _resolve(self, hashes: Integers) -> Resolved:
        places, is_add = self._places.values, self._are_adds.values
        earlier, later = _successions(hashes, places, is_add)
        ends = np.full(len(hashes), NEVER, np.int64)
        ends[earlier] = versions_of(places[later])
        unmatched = ~is_add
        unmatched[later] &= ~is_add[earlier]
        return Resolved(
            hashes=hashes,
            places=places,
            sizes=self._sizes.values,
            is_add=is_add,
            ends=ends,
            unmatched=unmatched,
        )


class _Column(Generic[_Kind]):
    """Values that become more: in a few blocks, not scattered between what comes and goes."""

    def __init__(self, kind: type[_Kind]) -> None:
        self._kind: type[_Kind] = kind
        self._full: list[NDArray[_Kind]] = []
        self._block: NDArray[_Kind] = np.empty(_BLOCK, kind)
        self._used = 0

    def extend(self, values: NDArray[_Kind]) -> None:
        while len(values):
            taken = values[: _BLOCK - self._used]
            self._block[self._used : self._used + len(taken)] = taken
            self._used += len(taken)
            values = values[len(taken) :]
            if self._used == _BLOCK:
                self._full.append(self._block)
                self._block, self._used = np.empty(_BLOCK, self._kind), 0

    @property
    def values(self) -> NDArray[_Kind]:
        """All of them, in one piece from now on."""
        if len(self._full) != 1 or self._used:
            self._full = [np.concatenate([*self._full, self._block[: self._used]])]
            self._used = 0
        return self._full[0]

    def reorder(self, order: NDArray[np.intp]) -> None:
        self._full = [self.values[order]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Resolved:
    """References, column by column, with their ends."""

    hashes: Integers
    #: version and ordinal in one number, ascending
    places: Integers
    sizes: Integers
    is_add: Flags
    #: the version that ends each, or NEVER
    ends: Integers
    #: removes of files that were not live
    unmatched: Flags

    def live_at(self, version: int) -> Flags:
        """Which adds are live at a version."""
        going_on = (self.ends == NEVER) | (self.ends > version)
        live: Flags = self.is_add & (versions_of(self.places) <= version) & going_on
        return live

    def num_unmatched(self) -> int:
        """How many removes of commits met no live file; a checkpoint's tombstones never do."""
        of_commits = self.places & ((1 << _ORDINAL_BITS) - 1) >= _NEGATIVE
        return int((self.unmatched & of_commits).sum())

    def totals(self, floor: int, head: int) -> tuple[Integers, Integers]:
        """Number and size of the live files at each version from the floor to the head."""
        numbers, sizes = np.zeros((2, head - floor + 1), np.int64)
        for start in range(0, len(self.places), _CHUNK):
            part = slice(start, start + _CHUNK)
            is_add, size, ends = self.is_add[part], self.sizes[part], self.ends[part]
            begins = versions_of(self.places[part])[is_add] - floor
            np.add.at(numbers, begins, 1)
            np.add.at(sizes, begins, size[is_add])
            ended = is_add & (ends != NEVER)
            np.subtract.at(numbers, ends[ended] - floor, 1)
            np.subtract.at(sizes, ends[ended] - floor, size[ended])
        return numbers.cumsum(), sizes.cumsum()


def one_spelling(key: bytes) -> bytes:
    """The key with a local path as Spark compares it: `/x`, `file:/x` and `file:///x` are one."""
    if not key.startswith((b"/", _LOCAL)):
        return key
    return b"/" + key.removeprefix(_LOCAL).lstrip(b"/")


def places_of(versions: int | Integers, ordinals: Integers) -> Integers:
    """Version and ordinal in one number, in their order."""
    return (np.asarray(versions, np.int64) << _ORDINAL_BITS) + ordinals + _NEGATIVE


def versions_of(places: Integers) -> Integers:
    return places >> _ORDINAL_BITS


def _successions(
    hashes: Integers, places: Integers, is_add: Flags
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Pairs of references with one key, of which the second follows the first."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    same = ordered[1:] == ordered[:-1]
    earlier, later = order[:-1][same], order[1:][same]
    # versions ascend already, so that only what a key has in one version is not in order
    if (versions_of(places[earlier]) == versions_of(places[later])).any():
        order = np.lexsort((places, is_add, versions_of(places), hashes))
        same = hashes[order[1:]] == hashes[order[:-1]]
        earlier, later = order[:-1][same], order[1:][same]
    return earlier, later
