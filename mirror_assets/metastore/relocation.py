"""A log that is published away from its data: relative paths become absolute ones.

The new log lies elsewhere, so every path that depends on the table's root has to name it: those
of data files, change files and deletion vectors (DL-DV-03 becomes DL-DV-04). Escapes stay as they
are: a relative path and the root's URI are both percent-encoded, so that joining them is enough.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote
from uuid import UUID

import msgspec

from mirror_assets.delta.actions import Action, AddFile, CdcFile, DeletionVector, RemoveFile
from mirror_assets.delta.commit_file import CommitFile, Line, decode
from mirror_assets.delta.path_rules import is_absolute
from mirror_assets.errors import MalformedActionError

_Z85: Final = (
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
)
_VALUES: Final = {character: value for value, character in enumerate(_Z85)}
_UUID_LENGTH: Final = 20
_GROUP: Final = 5


@dataclass(frozen=True, slots=True)
class Relocation:
    """Makes what a log says independent of where it lies."""

    #: URI of the table's root, without a slash at its end
    root: str

    def rewrite(self, data: bytes) -> tuple[bytes, int]:
        """The commit file with absolute paths, and how many of its lines changed.

        Raises MalformedActionError for what cannot be decoded.
        """
        file = decode(data)
        lines = [self._line(line) for line in file.lines]
        changed = sum(new is not old for new, old in zip(lines, file.lines, strict=True))
        raw = None if changed else file.raw
        return CommitFile(lines=lines, final_newline=file.final_newline, raw=raw).encode(), changed

    def apply(self, action: Action) -> Action:
        """The action with absolute paths; itself if it has none that are relative."""
        if isinstance(action, CdcFile):
            return self._with_path(action)
        if not isinstance(action, AddFile | RemoveFile):
            return action
        vector = action.deletion_vector
        if vector is not None and vector.storage_type == "u":
            action = msgspec.structs.replace(action, deletion_vector=self._absolute(vector))
        return self._with_path(action)

    def _line(self, line: Line) -> Line:
        action = self.apply(line.action)
        return line if action is line.action else replace(line, action=action, raw=None)

    def _with_path(self, action: AddFile | RemoveFile | CdcFile) -> Action:
        if is_absolute(action.path):
            return action
        return msgspec.structs.replace(action, path=f"{self.root}/{action.path}")

    def _absolute(self, vector: DeletionVector) -> DeletionVector:
        """Where the file of a vector is, whose name says prefix and UUID (DL-DV-03)."""
        prefix = vector.path_or_inline_dv[:-_UUID_LENGTH]
        uuid = UUID(bytes=z85_decode(vector.path_or_inline_dv[-_UUID_LENGTH:]))
        directory = f"{quote(prefix)}/" if prefix else ""
        path = f"{self.root}/{directory}deletion_vector_{uuid}.bin"
        return msgspec.structs.replace(vector, storage_type="p", path_or_inline_dv=path)


def z85_decode(text: str) -> bytes:
    """The bytes of a Z85 text (ZeroMQ RFC 32); MalformedActionError for what is none."""
    if len(text) % _GROUP or any(character not in _VALUES for character in text):
        message = f"{text!r} is no Z85 text"
        raise MalformedActionError(message, rule="DL-DV-03")
    words = []
    for start in range(0, len(text), _GROUP):
        word = 0
        for character in text[start : start + _GROUP]:
            word = word * len(_Z85) + _VALUES[character]
        words.append(word)
    if any(word >= 1 << 32 for word in words):
        message = f"{text!r} is no Z85 text"
        raise MalformedActionError(message, rule="DL-DV-03")
    return struct.pack(f">{len(words)}I", *words)
