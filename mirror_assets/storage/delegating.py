"""A store in front of another one, for those who want to change a single verb."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, Literal

from mirror_assets.delta.locations import Location
from mirror_assets.delta.log_paths import CommitName, LastCheckpoint, LogListing, LogPath
from mirror_assets.storage.local_files import digest_of
from mirror_assets.storage.log_source import LogSource
from mirror_assets.storage.log_store import (
    Created,
    Different,
    Identical,
    LogKey,
    LogStore,
    Moved,
    Over,
    Put,
    Replaced,
    digest,
)


class DelegatingStore:
    """See LogStore: everything is what the inner store does."""

    def __init__(self, inner: LogStore) -> None:
        self.inner = inner

    @property
    def location(self) -> Location:
        """See LogStore."""
        return self.inner.location

    @property
    def source(self) -> LogSource:
        """See LogStore."""
        return self.inner.source

    def put_if_absent(self, path: LogKey, data: bytes, *, mtime_ms: int | None = None) -> Put:
        """See LogStore."""
        return self.inner.put_if_absent(path, data, mtime_ms=mtime_ms)

    def put_file_if_absent(self, path: LogKey, file: Path) -> Put:
        """See LogStore."""
        return self.inner.put_file_if_absent(path, file)

    def read(self, path: LogPath) -> bytes | None:
        """See LogStore."""
        return self.inner.read(path)

    def size(self, path: LogPath) -> int | None:
        """See LogStore."""
        return self.inner.size(path)

    def open(self, path: LogPath) -> BinaryIO | None:
        """See LogStore."""
        return self.inner.open(path)

    def list(self, after: int | None = None) -> LogListing:
        """See LogStore."""
        return self.inner.list(after)

    def replace(
        self,
        path: LastCheckpoint,
        data: bytes,
        *,
        over: bytes | Literal[Over.ANYTHING] | None = Over.ANYTHING,
    ) -> Replaced | Moved:
        """See LogStore."""
        return self.inner.replace(path, data, over=over)

    def delete(self, path: LogKey) -> None:
        """See LogStore."""
        self.inner.delete(path)

    def set_mtime(self, path: LogKey, mtime_ms: int) -> None:
        """See LogStore."""
        self.inner.set_mtime(path, mtime_ms)

    def remove_orphans(self, older_than_s: float) -> tuple[str, ...]:
        """See LogStore."""
        return self.inner.remove_orphans(older_than_s)


class LookingFirst(DelegatingStore):
    """For stores that ignore conditions: look whether the file is there, and only then write.

    Between the look and the write another one may write, and be overwritten: nothing but the lease
    in SQL keeps our own workers apart, and nothing at all keeps out others.
    """

    def put_if_absent(self, path: LogKey, data: bytes, *, mtime_ms: int | None = None) -> Put:
        """See LogStore."""
        found = self._found(path, digest(data))
        return found or self.inner.put_if_absent(path, data, mtime_ms=mtime_ms)

    def put_file_if_absent(self, path: LogKey, file: Path) -> Put:
        """See LogStore."""
        found = None if self.inner.size(path) is None else self._found(path, digest_of(file))
        return found or self.inner.put_file_if_absent(path, file)

    def _found(self, path: LogKey, expected: str) -> Identical | Different | None:
        data = self.inner.read(path)
        if data is None:
            return None
        sha256 = digest(data)
        if sha256 == expected:
            return Identical()
        return Different(found_size=len(data), found_sha256=sha256)


def ignores_conditions(store: LogStore, path: CommitName, data: bytes) -> bool | None:
    """Whether the store accepts a second create of a file that has just been created.

    With the same bytes, so that nothing is harmed if it does; None if it did not say.
    """
    again = store.put_if_absent(path, data)
    return True if again == Created() else False if again == Identical() else None
