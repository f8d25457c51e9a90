"""The narrow port through which a mirror writes one table's log.

Keys are the typed names of `delta.log_paths`, so nothing outside `_delta_log` can be written. The
error a store answers with does not tell whether a write was stored; so every create that did not
get a clean yes is read back, and the caller gets an outcome: created, identical or different.
Surprises are raised as errors that say by type whether trying again may help. Implementations
send each write once and never retry it: the caller owns the retries.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, ClassVar, Final, Literal, Protocol

from mirror_assets.delta.locations import Location
from mirror_assets.delta.log_paths import (
    CheckpointName,
    CommitName,
    Compaction,
    CutName,
    LastCheckpoint,
    LogListing,
    LogPath,
    SidecarName,
    StagedCommit,
    Unknown,
    VersionChecksum,
    parse_log_path,
)
from mirror_assets.errors import LocationError
from mirror_assets.storage.log_source import LogSource

#: what may be written: every name the protocol knows, and our cuts
LogKey = (
    CommitName
    | CheckpointName
    | SidecarName
    | Compaction
    | VersionChecksum
    | LastCheckpoint
    | StagedCommit
    | CutName
)

#: what no writer has touched for so long, a crashed one left behind
ORPHANED_S: Final = 3600.0

#: names of sidecars come from foreign files too; ours need no more than this
_PLAIN_SIDECAR: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,200}\.parquet")


@dataclass(frozen=True, slots=True)
class Created:
    """There was nothing; now these bytes are there, and the store said so."""

    resolved_by: ClassVar[Literal["put"]] = "put"


@dataclass(frozen=True, slots=True)
class Identical:
    """The same bytes are there, as a read-back says.

    They are this write's with a lost reply, an earlier attempt's, or another worker's: all the
    same in effect.
    """

    resolved_by: ClassVar[Literal["readback"]] = "readback"


@dataclass(frozen=True, slots=True, kw_only=True)
class Different:
    """Other bytes are there; they were left alone."""

    found_size: int
    found_sha256: str


Put = Created | Identical | Different


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """The file has the new bytes."""

    resolved_by: Literal["put", "readback"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """The file was no longer what the caller had seen; it was left alone."""

    found: bytes | None


class Over(Enum):
    """What `replace` may write over, beside given bytes."""

    ANYTHING = "anything"


class LogStore(Protocol):
    """One table's log, to read and to write.

    Every method may raise the errors of a store: StoreUnavailableError, StoreThrottledError and
    StorageFullError (trying again may help), StoreAuthError, ClockSkewError, TlsError,
    StoreConfigError and UnsafeStoreError (it will not), LocationError for a key that is no name
    of the protocol and for links that lead out of the root.
    """

    @property
    def location(self) -> Location:
        """The table's root."""

    @property
    def source(self) -> LogSource:
        """The same log to read only, by name; its requests are retried."""

    def put_if_absent(self, path: LogKey, data: bytes, *, mtime_ms: int | None = None) -> Put:
        """Create the file, if there is none, by one atomic conditional write.

        `mtime_ms` is the file's time where the store can set it, from the first moment it is
        visible. An error raised means: as far as could be read, not stored; or the read-back
        failed too. Either way the same call again is safe, and never makes a second content.
        """

    def put_file_if_absent(self, path: LogKey, file: Path) -> Put:
        """The same from a local file, in bounded memory; the file must not change meanwhile."""

    def read(self, path: LogPath) -> bytes | None:
        """The whole file; None if there is none."""

    def size(self, path: LogPath) -> int | None:
        """The file's length in bytes; None if there is none."""

    def open(self, path: LogPath) -> BinaryIO | None:
        """The file as a seekable stream, for files too large to hold; None if there is none."""

    def list(self, after: int | None = None) -> LogListing:
        """All files of the log; with `after`, only those whose name begins with a later version.

        A log that is not there lists as empty. A listing may lag or repeat: that a file is not
        in it proves nothing, `size` and `read` decide.
        """

    def replace(
        self,
        path: LastCheckpoint,
        data: bytes,
        *,
        over: bytes | Literal[Over.ANYTHING] | None = Over.ANYTHING,
    ) -> Replaced | Moved:
        """Write the pointer over, atomically; no other file is ever replaced.

        With `over`, only if the file still holds these bytes (None: is still absent): so that a
        worker that slept cannot move the pointer backwards.
        """

    def delete(self, path: LogKey) -> None:
        """Remove the file; that it is gone already is fine. For cleanup only."""

    def set_mtime(self, path: LogKey, mtime_ms: int) -> None:
        """Set the file's time where the store can, else do nothing.

        Readers take it for the commit's time in tables without in-commit timestamps.
        """

    def remove_orphans(self, older_than_s: float) -> tuple[str, ...]:
        """Remove what crashed writers left behind, and give the names; readers ignore them."""


def digest(data: bytes | memoryview) -> str:
    """The SHA-256 by which contents are compared, in hexadecimal."""
    return sha256(data).hexdigest()


def writable_name(path: LogKey) -> str:
    """The key's name below `_delta_log`. Raises LocationError for what the protocol cannot name.

    The types say it already; this is for values made from foreign input, and untyped callers.
    """
    name = path.name
    parsed = parse_log_path(name)
    if isinstance(parsed, Unknown) or parsed != path:
        raise LocationError(f"{name!r} is no name of a log file", remedy="this is a bug: report it")
    if isinstance(path, SidecarName) and not _PLAIN_SIDECAR.fullmatch(path.file):
        raise LocationError(f"{name!r} is no plain name of a sidecar", remedy="use <uuid>.parquet")
    return name


def replaceable_name(path: LastCheckpoint) -> str:
    """The pointer's name. Raises LocationError for every other file."""
    if not isinstance(path, LastCheckpoint):
        raise LocationError(f"{path.name!r} is never replaced", remedy="this is a bug: report it")
    return path.name


def readable_name(path: LogPath) -> str:
    """The name below `_delta_log`, of foreign files too. Raises LocationError if it leaves it."""
    name = path.name
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\\" in name or "\0" in name:
        raise LocationError(f"{name!r} is no name of a file below _delta_log")
    return name


def after_version(version: int) -> str:
    """A text that sorts behind all names of the version, and before those of the next."""
    return f"{version:020d}.~"


def is_after(name: str, version: int) -> bool:
    """Whether the name begins with a later version."""
    return name[:20].isdecimal() and name.isascii() and name > after_version(version)
