"""`_last_checkpoint`: a hint where to start reading, with a checksum of its own.

Real files are often broken or old, and a hint may be ignored, so parsing returns what is wrong
instead of raising. The checksum is the MD5 of a canonical form of the document (DL-LCP-09), for
which the protocol and Delta Spark sort differently (DL-LCP-10): both are computed, and one is
written only where they agree.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

import msgspec

from mirror_assets.delta.actions import INT64_MAX
from mirror_assets.delta.commit_file import canonical_json

if TYPE_CHECKING:
    from collections.abc import Iterator

_Count = Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]
_CHECKSUM: Final = "checksum"
#: names of old delta-rs files
_OLD_NAMES: Final = {"size_in_bytes": "sizeInBytes", "num_of_add_files": "numOfAddFiles"}


class CheckpointHint(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What `_last_checkpoint` says; the order of the members is that of its bytes."""

    version: _Count
    #: actions in the checkpoint, not bytes (DL-LCP-03)
    size: _Count
    #: only of multi-part checkpoints (DL-LCP-04)
    parts: _Count | None = None
    size_in_bytes: _Count | None = None
    num_of_add_files: _Count | None = None
    checkpoint_schema: dict[str, Any] | None = None
    #: Spark's own: path, sizeInBytes, modificationTime, nonFileActions, sidecarFiles
    v2_checkpoint: dict[str, Any] | None = msgspec.field(name="v2Checkpoint", default=None)
    tags: dict[str, str | None] | None = None
    #: as read; `encode_hint` computes its own
    checksum: str | None = None


@dataclass(frozen=True, slots=True)
class UnusableHint:
    """A `_last_checkpoint` that readers must do without."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checksums:
    """The MD5 of a document by the protocol's order and by Delta Spark's."""

    protocol: str
    spark: str


class ChecksumVerdict(StrEnum):
    """What a file's own checksum says of it."""

    ABSENT = "absent"
    VALID = "valid"
    INVALID = "invalid"


def parse_last_checkpoint(data: bytes) -> CheckpointHint | UnusableHint:
    """Read the file leniently: old names, unknown members and a wrong checksum do not matter."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as exc:
        return UnusableHint(f"not JSON: {exc}")
    if not isinstance(document, dict):
        return UnusableHint("not a JSON object")
    named = {_OLD_NAMES.get(name, name): value for name, value in document.items()}
    try:
        return msgspec.convert(named, CheckpointHint, strict=False)
    except msgspec.ValidationError as exc:
        return UnusableHint(str(exc))


def encode_hint(hint: CheckpointHint) -> bytes:
    """The file's bytes: canonical members, and the checksum if both orders give the same."""
    document: dict[str, Any] = msgspec.to_builtins(hint)
    document.pop(_CHECKSUM, None)
    sums = checksums(canonical_json(document))
    if sums.protocol == sums.spark:
        document[_CHECKSUM] = sums.protocol
    return canonical_json(document) + b"\n"


def verify_checksum(data: bytes) -> ChecksumVerdict:
    """Whether the file carries the checksum of its content, by either order.

    Raises ValueError if the file is not a JSON object, or names a member twice (DL-LCP-07).
    """
    document = _loads(data)
    given = document.get(_CHECKSUM)
    if given is None:
        return ChecksumVerdict.ABSENT
    sums = checksums(data)
    valid = given in (sums.protocol, sums.spark)
    return ChecksumVerdict.VALID if valid else ChecksumVerdict.INVALID


def checksums(data: bytes) -> Checksums:
    """The checksums of a JSON object, whose own `checksum` member does not count.

    Raises ValueError if it is not one, or names a member twice.
    """
    document = {name: value for name, value in _loads(data).items() if name != _CHECKSUM}
    pairs = list(_flattened("", document))
    by_path = [f"{path}={value}" for path, value in sorted(pairs)]
    return Checksums(protocol=_md5(by_path), spark=_md5(sorted(by_path)))


class _Number(str):
    """A number's text: it counts as written."""

    __slots__ = ()


def _loads(data: bytes) -> dict[str, Any]:
    document = json.loads(
        data,
        parse_int=_Number,
        parse_float=_Number,
        parse_constant=_Number,
        object_pairs_hook=_unique,
    )
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - one type for bad content
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        raise ValueError("a member is named twice")
    return document


def _flattened(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Each leaf with its path; empty objects and arrays have none."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _flattened(_joined(path, _quoted(name)), member)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _flattened(_joined(path, str(index)), item)
    else:
        yield path, _leaf(value)


def _joined(path: str, part: str) -> str:
    return f"{path}+{part}" if path else part


def _leaf(value: Any) -> str:
    if isinstance(value, _Number):
        return str(value)
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    return f'"{quote(text, safe="-._~")}"'


def _md5(lines: list[str]) -> str:
    return hashlib.md5(",".join(lines).encode(), usedforsecurity=False).hexdigest()
