"""A table's log in a directory of this machine, durable.

A create writes a hidden temporary file, syncs it, links it to its name (which fails if the name
is taken), removes the temporary name and syncs the directory. So a visible file is whole, also
after `kill -9` or a power cut, and what a crash leaves behind matches no name of the protocol.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from hashlib import file_digest
from pathlib import Path
from typing import BinaryIO, Final, Literal

from mirror_assets.delta.locations import Location
from mirror_assets.delta.log_paths import (
    CUT_DIRECTORY,
    SIDECAR_DIRECTORY,
    LastCheckpoint,
    LogListing,
    LogPath,
)
from mirror_assets.errors import UnsafeStoreError
from mirror_assets.storage import local_files
from mirror_assets.storage.local_files import LogDirectory
from mirror_assets.storage.log_source import LocalLog, LogSource, listed_files
from mirror_assets.storage.log_store import (
    Created,
    Different,
    Identical,
    LogKey,
    Moved,
    Over,
    Put,
    Replaced,
    digest,
    is_after,
    readable_name,
    replaceable_name,
    writable_name,
)
from mirror_assets.storage.translation import translated

_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS})


class LocalLogStore:
    """See LogStore; `root` and `durable` are those of LogDirectory."""

    __slots__ = ("_directory", "_location")

    def __init__(
        self, location: Location, *, root: Location | None = None, durable: bool = True
    ) -> None:
        self._location = location
        self._directory = LogDirectory(table=location, root=root, durable=durable)

    @property
    def location(self) -> Location:
        """See LogStore."""
        return self._location

    @property
    def source(self) -> LogSource:
        """See LogStore."""
        self._directory.real_path()
        return LocalLog(self._location)

    def put_if_absent(self, path: LogKey, data: bytes, *, mtime_ms: int | None = None) -> Put:
        """See LogStore."""
        fill = partial(local_files.write, data=data)
        return self._create(path, fill, lambda: digest(data), mtime_ms)

    def put_file_if_absent(self, path: LogKey, file: Path) -> Put:
        """See LogStore."""
        fill = partial(local_files.copy, file)
        return self._create(path, fill, lambda: local_files.digest_of(file))

    def read(self, path: LogPath) -> bytes | None:
        """See LogStore."""
        name = readable_name(path)
        with translated(self._location, f"read {name!r}"):
            try:
                with self._directory.holding(name) as (folder, base):
                    return local_files.read_file(folder, base)
            except FileNotFoundError:
                return None

    def size(self, path: LogPath) -> int | None:
        """See LogStore."""
        with translated(self._location, f"look at {path.name!r}"):
            stream = self.open(path)
            if stream is None:
                return None
            with stream:
                return os.fstat(stream.fileno()).st_size

    def open(self, path: LogPath) -> BinaryIO | None:
        """See LogStore."""
        name = readable_name(path)
        with translated(self._location, f"read {name!r}"):
            try:
                with self._directory.holding(name) as (folder, base):
                    return local_files.open_file(folder, base)
            except FileNotFoundError:
                return None

    def list(self, after: int | None = None) -> LogListing:
        """See LogStore."""
        with translated(self._location, "list the log"):
            log = self._directory.real_path()
            try:
                found = listed_files(log) if after is None else _listed_after(log, after)
                return LogListing.of(found)
            except FileNotFoundError:
                return LogListing.of(())

    def replace(
        self,
        path: LastCheckpoint,
        data: bytes,
        *,
        over: bytes | Literal[Over.ANYTHING] | None = Over.ANYTHING,
    ) -> Replaced | Moved:
        """See LogStore."""
        name = replaceable_name(path)
        with (
            translated(self._location, f"replace {name!r}"),
            self._directory.holding(name, create=True) as (folder, base),
        ):
            if over is not Over.ANYTHING:
                local_files.lock(folder)
                found = self.read(path)
                if found != over:
                    return Moved(found=found)
            fill = partial(local_files.write, data=data)
            with self._directory.temporary(folder, fill) as temporary:
                os.rename(temporary, base, src_dir_fd=folder, dst_dir_fd=folder)
            self._directory.sync(folder)
        return Replaced(resolved_by="put")

    def delete(self, path: LogKey) -> None:
        """See LogStore."""
        name = writable_name(path)
        with (
            translated(self._location, f"delete {name!r}"),
            suppress(FileNotFoundError),
            self._directory.holding(name) as (folder, base),
        ):
            os.unlink(base, dir_fd=folder)
            self._directory.sync(folder)

    def set_mtime(self, path: LogKey, mtime_ms: int) -> None:
        """See LogStore."""
        name = writable_name(path)
        stamp = mtime_ms * 1_000_000
        with (
            translated(self._location, f"set the time of {name!r}"),
            suppress(FileNotFoundError),
            self._directory.holding(name) as (folder, base),
        ):
            os.utime(base, ns=(stamp, stamp), dir_fd=folder, follow_symlinks=False)

    def remove_orphans(self, older_than_s: float) -> tuple[str, ...]:
        """See LogStore."""
        oldest = time.time() - older_than_s
        removed: list[str] = []
        for above in ("", f"{SIDECAR_DIRECTORY}/", f"{CUT_DIRECTORY}/"):
            with (
                translated(self._location, "remove orphans"),
                suppress(FileNotFoundError),
                self._directory.holding(f"{above}*") as (folder, _),
            ):
                removed += local_files.remove_orphans(folder, above, oldest)
        return tuple(sorted(removed))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._location)!r})"

    def _create(
        self,
        path: LogKey,
        fill: Callable[[int], None],
        expected: Callable[[], str],
        mtime_ms: int | None = None,
    ) -> Put:
        name = writable_name(path)
        with (
            translated(self._location, f"create {name!r}"),
            self._directory.holding(name, create=True) as (folder, base),
        ):
            taken = local_files.exists(folder, base)
            created = not taken and self._link(folder, base, fill, mtime_ms)
            outcome = Created() if created else self._compare(folder, base, expected)
            self._directory.sync(folder)
            return outcome

    def _link(
        self, folder: int, base: str, fill: Callable[[int], None], mtime_ms: int | None
    ) -> bool:
        """Whether the file was linked to its name; if not, the name was taken."""
        with self._directory.temporary(folder, fill, mtime_ms) as temporary:
            try:
                os.link(
                    temporary, base, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False
                )
            except FileExistsError:
                return False
            except OSError as exc:
                if exc.errno not in _NO_LINKS:
                    raise
                message = f"the file system of {self._location} has no hard links: {exc.strerror}"
                remedy = "keep the table on another file system (ext4, xfs, apfs, nfs)"
                raise UnsafeStoreError(message, remedy=remedy) from exc
        return True

    def _compare(
        self, folder: int, base: str, expected: Callable[[], str]
    ) -> Identical | Different:
        with local_files.open_file(folder, base) as stream:
            found = file_digest(stream, "sha256").hexdigest()
            if found != expected():
                return Different(found_size=stream.tell(), found_sha256=found)
            # Another worker's, perhaps not synced yet: what we report must outlive a power cut.
            self._directory.sync(stream.fileno())
        return Identical()


def _listed_after(log: Path, version: int) -> Iterator[tuple[str, int, int]]:
    with os.scandir(log) as entries:
        for entry in entries:
            if is_after(entry.name, version):
                with suppress(FileNotFoundError):  # deleted since, or a dangling link
                    status = entry.stat()
                    yield entry.name, status.st_size, status.st_mtime_ns // 1_000_000
