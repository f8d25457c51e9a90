"""Plain file lines as rows: tuples for every engine, or the text that PostgreSQL's COPY takes.

A plain line has the values of its row, and so does a line of COPY; what stands between them
differs. So the literals of the lines are overwritten in place: by tabs, and by what the line
lacks (table, version, ordinal), padded with blanks, which PostgreSQL skips around numbers and
booleans. The escapes of a JSON string mean the same in COPY, but for those of hexadecimal digits,
which no plain line has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mirror_assets.metastore.plain_lines import PlainFiles, PlainMaps, Shape, Value, Window
from mirror_assets.metastore.tables import dl_add_files, dl_remove_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from sqlalchemy import Table

    from mirror_assets.metastore.columns import Row

#: the text of a null in our COPY; no value of a plain line is of one byte, but numbers
COPY_NULL: Final = "-"
_DIGITS: Final = 10
_PATH: Final = ("path", Value.PATH)
_PARTITION: Final = ("partition_values", Value.MAP)
_SIZE: Final = ("size", Value.INTEGER)
_CHANGE: Final = ("data_change", Value.FLAG)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FileShape:
    """A shape of lines, and how it becomes rows of a table."""

    table: Table
    shape: Shape
    #: in the order of the bytes of a line of COPY
    copied: tuple[str, ...]
    #: what overwrites the literals, of the same lengths; `#` stands for the ordinal's digits
    overwriting: tuple[str, ...]


_ADD_HEAD: Final = (
    b'{"add":{"path":"',
    _PATH,
    b'","partitionValues":',
    _PARTITION,
    b',"size":',
    _SIZE,
    b',"modificationTime":',
    ("modification_time", Value.INTEGER),
    b',"dataChange":',
    _CHANGE,
)
_ADD_COPIED: Final = ("version", "path", "ordinal", "partition_values", "size")
_ADD_OVERWRITING: Final = ("{version:>15}\t", "\t        ##########\t", "\t       ")

ADD: Final = FileShape(
    table=dl_add_files,
    shape=Shape(*_ADD_HEAD, b',"stats":"', ("stats", Value.TEXT), b'"}}'),
    copied=(
        *_ADD_COPIED,
        "modification_time",
        "data_change",
        "table_id",
        "stats",
        "dv_id",
        "removed_version",
    ),
    overwriting=(
        *_ADD_OVERWRITING,
        "\t                   ",
        "\t             ",
        "\t{table_id:>8}\t",
        f"\t\t{COPY_NULL}",
    ),
)
ADD_WITHOUT_STATS: Final = FileShape(
    table=dl_add_files,
    shape=Shape(*_ADD_HEAD, b"}}"),
    copied=(*_ADD_COPIED, "table_id", "modification_time", "data_change", "dv_id"),
    overwriting=(*_ADD_OVERWRITING, "\t{table_id:>18}\t", "\t             ", " \t"),
)
REMOVE: Final = FileShape(
    table=dl_remove_files,
    shape=Shape(
        b'{"remove":{"path":"',
        _PATH,
        b'","deletionTimestamp":',
        ("deletion_timestamp", Value.INTEGER),
        b',"dataChange":',
        _CHANGE,
        b',"extendedFileMetadata":true,"partitionValues":',
        _PARTITION,
        b',"size":',
        _SIZE,
        b"}}",
    ),
    copied=(
        "version",
        "path",
        "ordinal",
        "deletion_timestamp",
        "data_change",
        "extended_file_metadata",
        "table_id",
        "partition_values",
        "size",
        "dv_id",
    ),
    overwriting=(
        "{version:>18}\t",
        "\t          ##########\t",
        "\t             ",
        "\t                   true\t{table_id:>21}\t",
        "\t       ",
        " \t",
    ),
)
SHAPES: Final = (ADD, ADD_WITHOUT_STATS, REMOVE)


def find_plain_files(window: Window, maps: PlainMaps) -> Iterator[tuple[FileShape, PlainFiles]]:
    """The window's plain lines by shape; the others stay free."""
    for shape in SHAPES:
        found = shape.shape.find(window, maps)
        if found is not None and len(found.lines):
            yield shape, found


def fits_copy(place: tuple[int, int, int]) -> bool:
    """Whether table and version fit into what they overwrite."""
    table_id, version, _ = place
    return table_id < 10**8 and version < 10**15


class CopyText:
    """Makes the text of COPY; keeps a table of numbers and a buffer, since making them costs."""

    def __init__(self) -> None:
        self._ordinals = _numbers(0)
        self._buffer = bytearray()

    def render(self, shape: FileShape, files: PlainFiles, place: tuple[int, int, int]) -> bytes:
        """The lines as rows of COPY; for `place` see `rows_of`."""
        table_id, version, first_line = place
        data = files.window.data
        if len(self._buffer) <= len(data):
            self._buffer = bytearray(len(data) + 1)
        buffer = memoryview(self._buffer)[: len(data) + 1]
        buffer[: len(data)] = data
        buffer[len(data) :] = b"\n"  # of a last line that has none
        for text, places in zip(shape.overwriting, files.places, strict=True):
            literal = text.format(version=version, table_id=table_id).encode()
            _write(buffer, places, len(literal), literal)
            if (offset := text.find("#")) >= 0:
                _write(buffer, places + offset, _DIGITS, self._texts(files.lines + first_line))
        return b"".join(_runs(buffer, files))

    def _texts(self, ordinals: NDArray[np.int64]) -> NDArray[np.bytes_]:
        if (needed := int(ordinals[-1]) + 1) > len(self._ordinals):
            self._ordinals = _numbers(max(needed, 2 * len(self._ordinals)))
        return self._ordinals[ordinals]


def rows_of(shape: FileShape, files: PlainFiles, place: tuple[int, int, int]) -> list[Row]:
    """The lines as rows in the order of the table's columns.

    `place` is table, version, and the ordinal of the window's first line.
    """
    table_id, version, first_line = place
    columns = files.columns()
    count = len(files.lines)
    values: dict[str, list[Any]] = {
        name: list(map(_CONVERTED[name], texts)) for name, texts in columns.items()
    }
    values["table_id"] = [table_id] * count
    values["version"] = [version] * count
    values["ordinal"] = (files.lines + first_line).tolist()
    values["dv_id"] = [""] * count
    if shape is REMOVE:
        values["extended_file_metadata"] = [True] * count
    empty = [None] * count
    names = [column.name for column in shape.table.columns]
    return list(zip(*(values.get(name, empty) for name in names), strict=True))


def _write(
    buffer: memoryview, places: NDArray[np.int64], length: int, text: bytes | NDArray[np.bytes_]
) -> None:
    count = len(buffer) - length + 1
    views: NDArray[np.bytes_] = np.ndarray(count, f"S{length}", buffer, strides=(1,))
    views[places] = text


def _runs(buffer: memoryview, files: PlainFiles) -> Iterator[memoryview]:
    """The lines with their newlines, as few slices."""
    window, lines = files.window, files.lines
    breaks = np.flatnonzero(np.diff(lines) > 1)
    firsts = lines[np.concatenate(([0], breaks + 1))]
    lasts = lines[np.concatenate((breaks, [len(lines) - 1]))]
    for first, last in zip(firsts, lasts, strict=True):
        yield buffer[window.starts[first] : window.ends[last] + 1]


def _numbers(count: int) -> NDArray[np.bytes_]:
    texts = [b"%*d" % (_DIGITS, number) for number in range(count)]
    return np.array(texts, f"S{_DIGITS}")


def _unescaped(raw: bytes) -> str:
    return raw.decode().replace('\\"', '"')


_CONVERTED: Final[dict[str, Any]] = {
    "path": bytes.decode,
    "partition_values": bytes.decode,
    "size": int,
    "modification_time": int,
    "deletion_timestamp": int,
    "data_change": b"true".__eq__,
    "stats": _unescaped,
}
