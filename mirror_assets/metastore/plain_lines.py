"""The fast lane of an import: plain file lines, found in a window of a commit file unparsed.

Most lines of most logs are adds and removes of a few shapes. A line is plain if it consists of
the literals of a shape, in their order, with nothing but simple values between them. Such a line
is valid JSON and its own canonical form, so that its values can be taken as they stand. This is
proven for a whole window at once, by where its unescaped quotes are. All other lines are left to
`commit_file.decode_line`; a test holds both ways to the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from itertools import compress, pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson

from mirror_assets.delta.commit_file import canonical_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_NEWLINE: Final = 10
_FIRST_PRINTABLE: Final = 32
_QUOTE: Final = 34
_ZERO: Final = 48
_BACKSLASH: Final = 92
_LAST_ASCII: Final = 127
#: longer texts are taken one by one
_MAX_WIDTH: Final = 400
#: more digits might not fit 64 bit
_MAX_DIGITS: Final = 18
_POWERS: Final = 10 ** np.arange(_MAX_DIGITS - 1, -1, -1, dtype=np.int64)
_CACHED_MAPS: Final = 65_536


class Value(Enum):
    """What may stand between two literals of a shape."""

    PATH = auto()
    MAP = auto()
    INTEGER = auto()
    FLAG = auto()
    TEXT = auto()


class PlainMaps:
    """Texts of partition values that are plain.

    Tables have far fewer partitions than files, so that each text is parsed once.
    """

    def __init__(self) -> None:
        self._plain: set[bytes] = set()

    def are_plain(self, texts: list[bytes]) -> Flags:
        unknown = set(texts) - self._plain
        if len(self._plain) > _CACHED_MAPS:
            self._plain.clear()
        plain = {text for text in unknown if _is_plain_map(text)}
        self._plain |= plain
        if len(plain) == len(unknown):
            return np.ones(len(texts), np.bool_)
        odd = unknown - plain
        return np.array([text not in odd for text in texts], np.bool_)


class Scratch:
    """Room for the flags of a window's bytes, used again by the next window.

    Fresh memory is costly: the system clears every page of it.
    """

    def __init__(self) -> None:
        self._rows = np.empty((3, 0), np.bool_)

    def rows(self, length: int) -> NDArray[np.bool_]:
        """Three rows of flags."""
        if self._rows.shape[1] < length:
            self._rows = np.empty((3, length), np.bool_)
        return self._rows[:, :length]


class Window:
    """Some whole lines of a commit file, and where their quotes are."""

    def __init__(self, data: memoryview, scratch: Scratch) -> None:
        self.data = data
        self.bytes = np.frombuffer(data, np.uint8)
        flags, escapes, quotes = scratch.rows(len(data))
        low = np.flatnonzero(np.less(self.bytes, _FIRST_PRINTABLE, out=flags))
        is_end = self.bytes[low] == _NEWLINE
        self.ends = low[is_end]
        if not self.ends_with_newline:
            self.ends = np.append(self.ends, len(data))
        self.starts = np.concatenate(([0], self.ends[:-1] + 1))
        escapes = np.equal(self.bytes[:-1], _BACKSLASH, out=escapes[1:])
        quotes = np.equal(self.bytes[1:], _QUOTE, out=quotes[1:])
        # of two flags, greater means this and not that
        self._quotes = np.flatnonzero(np.greater(quotes, escapes, out=flags[1:])) + 1
        self._past_quotes = np.searchsorted(self._quotes, self.ends)
        self._first_quote = np.concatenate(([0], self._past_quotes[:-1]))
        #: lines that no shape has taken yet
        self.free = np.ones(len(self.ends), np.bool_)
        self._simple = np.ones(len(self.ends), np.bool_)
        odd = np.greater(escapes, quotes, out=flags[1:])
        if not is_end.all() or odd.any():
            places = np.concatenate((np.flatnonzero(odd), low[~is_end]))
            self._simple[np.searchsorted(self.ends, places)] = False
        if self.bytes.max(initial=0) > _LAST_ASCII and not _is_utf8(bytes(data)):
            self._simple[:] = False

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def ends_with_newline(self) -> bool:
        return bool((self.bytes[-1:] == _NEWLINE).all())

    def line(self, number: int) -> bytes:
        return bytes(self.data[self.starts[number] : self.ends[number]])

    def candidates(self, shape: Shape) -> Integers:
        """The free lines with enough quotes for the shape, and no escapes but that of a quote."""
        chosen = self._past_quotes - self._first_quote >= shape.num_quotes
        chosen &= self.ends - self.starts >= shape.min_length
        return np.flatnonzero(chosen & self._simple & self.free)

    def quote(self, lines: Integers, index: int) -> Integers:
        """Where the n-th quote of each line is; negative ones are counted from the end."""
        base = self._first_quote if index >= 0 else self._past_quotes
        places: Integers = self._quotes[base[lines] + index]
        return places

    def holds(self, literal: bytes, at: Integers) -> Flags:
        """Whether the literal stands at these places, which ascend."""
        views = self._views(len(literal))
        if len(at) and 0 <= at[0] <= at[-1] < len(views):
            same: Flags = views[at] == literal
            return same
        inside: Flags = (at >= 0) & (at < len(views))
        inside[inside] = views[at[inside]] == literal
        return inside

    def texts(self, starts: Integers, ends: Integers) -> list[bytes]:
        """What stands there; the places ascend."""
        lengths = ends - starts
        width = int(lengths.max(initial=1))
        if width > _MAX_WIDTH or starts[-1:].sum() + width > len(self.data):
            data = self.data
            return [bytes(data[a:b]) for a, b in zip(starts, ends, strict=True)]
        # all as long as the longest, then cut: a NUL at its end is no part of numpy's text
        texts = self._views(width)[starts]
        if lengths.min(initial=width) < width:
            texts.view(np.uint8).reshape(-1, width)[np.arange(width) >= lengths[:, None]] = 0
        found: list[bytes] = texts.tolist()
        return found

    def integers(self, starts: Integers, ends: Integers) -> tuple[Integers, Flags]:
        """The numbers there, and which of them are canonical integers without sign."""
        lengths = ends - starts
        sound = (lengths > 0) & (lengths <= _MAX_DIGITS)
        sound &= (lengths == 1) | (self.bytes[starts] != _ZERO)
        width = int(lengths.max(initial=1, where=sound))
        texts = self._views(width)[np.maximum(ends - width, 0)]
        digits = texts.view(np.uint8).reshape(-1, width) - np.uint8(_ZERO)
        digits[np.arange(width) < (width - lengths)[:, None]] = 0
        sound &= (digits <= 9).all(axis=1)  # noqa: PLR2004 - below zero is far above
        return digits @ _POWERS[-width:], sound

    def _views(self, length: int) -> NDArray[np.bytes_]:
        """At each place the text of this length that begins there."""
        count = max(len(self.data) - length + 1, 0)
        return np.ndarray(count, f"S{length}", self.data, strides=(1,))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainFiles:
    """The lines of one shape in one window."""

    shape: Shape
    window: Window
    #: numbers of the lines, from 0, ascending
    lines: Integers
    #: where each literal begins
    places: list[Integers]
    paths: list[bytes]
    sizes: Integers

    def columns(self) -> dict[str, list[bytes]]:
        """The values by name, as their bytes stand in the file."""
        bounds = self.shape.bounds(self.places)
        return {name: self.window.texts(*bounds[name]) for name in self.shape.names}


class Shape:
    """A sequence of literals and named values: a path, a size, and one map among them."""

    def __init__(self, *parts: bytes | tuple[str, Value]) -> None:
        self.literals = [part for part in parts if isinstance(part, bytes)]
        self._values = [part for part in parts if not isinstance(part, bytes)]
        self.num_quotes = sum(literal.count(b'"') for literal in self.literals)
        self.min_length = sum(map(len, self.literals))
        self._anchors = self._find_anchors()

    @property
    def names(self) -> list[str]:
        """Of its values, in their order."""
        return [name for name, _ in self._values]

    def find(self, window: Window, maps: PlainMaps) -> PlainFiles | None:
        """The free lines of this shape; they are taken then."""
        lines = window.candidates(self)
        if len(lines):
            lines = lines[window.holds(self.literals[0], window.starts[lines])]
        if not len(lines):
            return None
        places = self._places(window, lines)
        keep = np.ones(len(lines), np.bool_)
        for place, literal in zip(places[1:], self.literals[1:], strict=True):
            keep &= window.holds(literal, place)
        for (before, after), literal in zip(pairwise(places), self.literals, strict=False):
            keep &= after >= before + len(literal)
        if not keep.all():
            lines, places = lines[keep], [place[keep] for place in places]
        return self._checked(window, maps, lines, places)

    def bounds(self, places: Sequence[Integers]) -> dict[str, tuple[Integers, Integers]]:
        """Where each value begins and ends."""
        return {
            name: (places[index] + len(self.literals[index]), places[index + 1])
            for index, (name, _) in enumerate(self._values)
        }

    def _find_anchors(self) -> list[tuple[int, int]]:
        """The quote to find each inner literal by: its number, and where it is in the literal.

        Quotes are counted from the side where the map, which has any number of them, is not.
        """
        kinds = [value for _, value in self._values]
        before, anchors = self.literals[0].count(b'"'), []
        for index, literal in enumerate(self.literals[1:-1], start=1):
            past_map = Value.MAP in kinds[:index]
            anchors.append((before - self.num_quotes * past_map, literal.index(b'"')))
            before += literal.count(b'"')
        return anchors

    def _places(self, window: Window, lines: Integers) -> list[Integers]:
        inner = [window.quote(lines, number) - offset for number, offset in self._anchors]
        return [window.starts[lines], *inner, window.ends[lines] - len(self.literals[-1])]

    def _checked(
        self, window: Window, maps: PlainMaps, lines: Integers, places: list[Integers]
    ) -> PlainFiles:
        bounds = self.bounds(places)
        paths = window.texts(*bounds["path"])
        sizes, keep = window.integers(*bounds["size"])
        keep &= _are_plain_paths(paths)
        for name, value in self._values:
            if name != "size":
                keep &= _are_plain(value, window, maps, *bounds[name])
        if not keep.all():
            lines, places = lines[keep], [place[keep] for place in places]
            paths, sizes = list(compress(paths, keep)), sizes[keep]
        window.free[lines] = False
        return PlainFiles(
            shape=self, window=window, lines=lines, places=places, paths=paths, sizes=sizes
        )


def _are_plain(
    value: Value, window: Window, maps: PlainMaps, starts: Integers, ends: Integers
) -> Flags:
    lengths = ends - starts
    match value:
        case Value.PATH | Value.TEXT:
            # of one byte it would look like the mark of a null in COPY
            return lengths > 1
        case Value.FLAG:
            true, false = window.holds(b"true", starts), window.holds(b"false", starts)
            flags: Flags = (true & (lengths == 4)) | (false & (lengths == 5))  # noqa: PLR2004 - of the words
            return flags
        case Value.INTEGER:
            return window.integers(starts, ends)[1]
        case Value.MAP:
            return maps.are_plain(window.texts(starts, ends))


def _are_plain_paths(paths: list[bytes]) -> Flags:
    if b"\\" not in b"".join(paths):
        return np.ones(len(paths), np.bool_)
    return np.array([b"\\" not in path for path in paths], np.bool_)


def _is_plain_map(raw: bytes) -> bool:
    try:
        value: Any = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return False
    if b"\\" in raw or not isinstance(value, dict) or canonical_json(value) != raw:
        return False
    return all(item is None or isinstance(item, str) for item in value.values())


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
