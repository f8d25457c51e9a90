"""The files of a batch: which references end which, inside of the batch and before it.

Memory is bounded by the batch. Of all earlier files only a filter of fixed size is kept: it tells
which keys may have been seen before, so that new files need not be looked up in SQL.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from itertools import compress
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirror_assets.metastore.import_parts import FileRefs

#: bits of the filter: a million keys take one in thirty of them
_SLOTS: Final = 1 << 25


class Reference(NamedTuple):
    """One add or remove; of two with one key the greater one stands."""

    version: int
    is_add: bool
    ordinal: int
    size: int


class End(NamedTuple):
    """A row that ends, and the version that ends it."""

    is_add: bool
    version: int
    ordinal: int
    at: int


class SeenKeys:
    """A filter: of keys not seen before it says so, but for a few."""

    def __init__(self) -> None:
        self._bits = np.zeros(_SLOTS // 8, np.uint8)

    def meet(self, keys: dict[bytes, int]) -> list[bytes]:
        """Those of the keys that may have been seen; all are, from now on."""
        slots = np.fromiter(map(hash, keys), np.int64, len(keys)) & (_SLOTS - 1)
        places, bits = slots >> 3, np.uint8(1) << (slots & 7).astype(np.uint8)
        seen = self._bits[places] & bits
        np.bitwise_or.at(self._bits, places, bits)
        return list(compress(keys, seen)) if seen.any() else []


class AllKeys(SeenKeys):
    """For a table that has files already: every key may have been seen."""

    def meet(self, keys: dict[bytes, int]) -> list[bytes]:
        """All of them."""
        return list(keys)


class FileBatch:
    """The references of a batch, and what they end."""

    def __init__(self) -> None:
        self.ends: list[End] = []
        #: change of the number and the size of live files, by version
        self.changes: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])
        #: the newest reference of each key, by its number in the batch
        self.newest: dict[bytes, int] = {}
        #: the version of the first reference, where there are several
        self._firsts: dict[bytes, int] = {}
        self._segments: list[tuple[int, FileRefs]] = []
        self._starts: list[int] = []
        self._count = 0

    def add(self, version: int, files: FileRefs) -> None:
        """Take the references of a version."""
        first, count = self._count, len(files.keys)
        self._segments.append((version, files))
        self._starts.append(first)
        self._count += count
        if files.is_add:
            self.change(version, count, int(files.sizes.sum()))
        known = len(self.newest)
        if self.newest.keys().isdisjoint(files.keys):
            self.newest.update(zip(files.keys, range(first, first + count), strict=True))
            if len(self.newest) == known + count:
                return
            for key in files.keys:
                self.newest.pop(key, None)
        for number, key in enumerate(files.keys, start=first):
            self._follow(key, number)

    def end_older(self, key: bytes, older: Reference) -> None:
        """End a row of an earlier batch by the first reference with its key.

        Of a version that began in an earlier batch the newer row may be the older one's.
        """
        at = self.first_version(key)
        if older.version == at and older > (newest := self._reference(self.newest[key])):
            self._end(newest, at)
        else:
            self._end(older, at)

    def first_version(self, key: bytes) -> int:
        """The version of the first reference with this key."""
        found = self._firsts.get(key)
        if found is None:
            found = self._segments[bisect_right(self._starts, self.newest[key]) - 1][0]
        return found

    def change(self, version: int, number: int, size: int) -> None:
        """Note a change of the live files."""
        change = self.changes[version]
        change[0] += number
        change[1] += size

    def _follow(self, key: bytes, number: int) -> None:
        previous = self.newest.get(key)
        if previous is None:
            self.newest[key] = number
            return
        before, after = self._reference(previous), self._reference(number)
        self._firsts.setdefault(key, before.version)
        if after > before:
            self._end(before, after.version)
            self.newest[key] = number
        else:
            self._end(after, before.version)

    def _end(self, reference: Reference, at: int) -> None:
        self.ends.append(End(reference.is_add, reference.version, reference.ordinal, at))
        if reference.is_add:
            self.change(at, -1, -reference.size)

    def _reference(self, number: int) -> Reference:
        segment = bisect_right(self._starts, number) - 1
        version, files = self._segments[segment]
        index = number - self._starts[segment]
        ordinals: NDArray[np.int64] = files.ordinals
        return Reference(version, files.is_add, int(ordinals[index]), int(files.sizes[index]))
