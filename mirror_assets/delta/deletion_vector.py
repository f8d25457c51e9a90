"""Deletion vectors: where one lies, and what its bytes say (rules DL-DV-03 to 05).

A vector is a magic number and a set of row indexes as a 64-bit roaring bitmap in the portable
format. It stands inline in base 85, or in a file behind its length and before its CRC-32.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final

from mirror_assets.delta.actions import DeletionVector
from mirror_assets.errors import RuleViolationError

_Z85: Final = (
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
)
_DIGITS: Final = {character: value for value, character in enumerate(_Z85)}
_UUID_LENGTH: Final = 20
_MAGIC: Final = 1_681_511_377
_FILE_VERSION: Final = 1
_WITH_RUNS: Final = 12_347
_WITHOUT_RUNS: Final = 12_346
#: fewer containers come without a table of offsets
_OFFSETS_FROM: Final = 4
_LARGEST_ARRAY: Final = 4_096
_BITMAP_BYTES: Final = 8_192


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSet:
    """What a bitmap holds: how many rows, and the largest index; -1 for none."""

    cardinality: int
    largest: int


def relative_path(vector: DeletionVector) -> str:
    """The file of a vector of storage type `u`, relative to the table.

    Raises RuleViolationError (DL-DV-03) for what is no name.
    """
    text = vector.path_or_inline_dv
    prefix, encoded = text[:-_UUID_LENGTH], text[-_UUID_LENGTH:]
    identity = decode_base85(encoded)
    if identity is None or len(encoded) != _UUID_LENGTH:
        raise RuleViolationError(f"{text!r} does not end with an encoded UUID", rule="DL-DV-03")
    hexed = identity.hex()
    uuid = "-".join((hexed[:8], hexed[8:12], hexed[12:16], hexed[16:20], hexed[20:]))
    return f"{prefix}/deletion_vector_{uuid}.bin".lstrip("/")


def inline_rows(vector: DeletionVector) -> RowSet:
    """The rows of a vector that stands inline.

    Raises RuleViolationError (DL-DV-04, DL-DV-05) for what is none.
    """
    data = decode_base85(vector.path_or_inline_dv)
    if data is None or not len(data) - 4 < vector.size_in_bytes <= len(data):
        message = f"the inline vector does not decode to {vector.size_in_bytes} bytes"
        raise RuleViolationError(message, rule="DL-DV-04")
    return rows_of(data[: vector.size_in_bytes])


def stored_rows(vector: DeletionVector, file: bytes) -> RowSet:
    """The rows of a vector in the file that holds it.

    Raises RuleViolationError (DL-DV-05) for what is none.
    """
    start = vector.offset if vector.offset is not None else 1
    if file[:1] != bytes([_FILE_VERSION]):
        raise _broken(f"the file's version is {file[:1].hex() or 'missing'}, not 01")
    (size,) = _unpack(">i", file, start)
    data = file[start + 4 : start + 4 + size]
    if size != vector.size_in_bytes or len(data) != size:
        raise _broken(f"the vector has {size} bytes at offset {start}, not {vector.size_in_bytes}")
    (checksum,) = _unpack(">I", file, start + 4 + size)
    if checksum != zlib.crc32(data):
        raise _broken("the checksum is not that of the vector's bytes")
    return rows_of(data)


def rows_of(data: bytes) -> RowSet:
    """Count a payload: magic number, then the bitmap."""
    (magic,) = _unpack("<i", data, 0)
    if magic != _MAGIC:
        raise _broken(f"the magic number is {magic}")
    (buckets,) = _unpack("<q", data, 4)
    position, cardinality, largest = 12, 0, -1
    for _ in range(buckets):
        (high,) = _unpack("<I", data, position)
        position, count, low = _bitmap32(data, position + 4)
        cardinality += count
        largest = max(largest, (high << 32) | low) if count else largest
    return RowSet(cardinality=cardinality, largest=largest)


def decode_base85(text: str) -> bytes | None:
    """Bytes of a text in Z85; None for what is not."""
    if len(text) % 5 or any(character not in _DIGITS for character in text):
        return None
    out = bytearray()
    for start in range(0, len(text), 5):
        value = 0
        for character in text[start : start + 5]:
            value = value * 85 + _DIGITS[character]
        if value >= 1 << 32:
            return None
        out += value.to_bytes(4, "big")
    return bytes(out)


def _bitmap32(data: bytes, start: int) -> tuple[int, int, int]:
    """The end of a 32-bit bitmap, its cardinality and its largest member."""
    (cookie,) = _unpack("<I", data, start)
    position, runs = start + 4, b""
    if cookie & 0xFFFF == _WITH_RUNS:
        size = (cookie >> 16) + 1
        length = (size + 7) // 8
        runs, position = data[position : position + length], position + length
    elif cookie == _WITHOUT_RUNS:
        (size,) = _unpack("<I", data, position)
        position += 4
    else:
        raise _broken(f"the bitmap begins with {cookie}")
    heads = _unpack(f"<{2 * size}H", data, position)
    position += 4 * size
    if not runs or size >= _OFFSETS_FROM:
        position += 4 * size
    total, largest = 0, -1
    for index in range(size):
        key, count = heads[2 * index], heads[2 * index + 1] + 1
        is_run = bool(runs) and bool(runs[index // 8] >> (index % 8) & 1)
        position, low = _container(data, position, count, is_run=is_run)
        total, largest = total + count, (key << 16) | low
    return position, total, largest


def _container(data: bytes, position: int, count: int, *, is_run: bool) -> tuple[int, int]:
    """The end of a container, and its largest member."""
    if is_run:
        (number,) = _unpack("<H", data, position)
        pairs = _unpack(f"<{2 * number}H", data, position + 2)
        return position + 2 + 4 * number, (pairs[-2] + pairs[-1] if pairs else 0)
    if count <= _LARGEST_ARRAY:
        (last,) = _unpack("<H", data, position + 2 * (count - 1))
        return position + 2 * count, last
    bits = int.from_bytes(data[position : position + _BITMAP_BYTES], "little")
    return position + _BITMAP_BYTES, bits.bit_length() - 1


def _unpack(form: str, data: bytes, position: int) -> tuple[int, ...]:
    try:
        return struct.unpack_from(form, data, position)
    except struct.error as exc:
        raise _broken(f"the bytes end too early: {exc}") from exc


def _broken(message: str) -> RuleViolationError:
    return RuleViolationError(message, rule="DL-DV-05")
