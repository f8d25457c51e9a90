"""Reading one table's `_delta_log`, wherever it lies.

Local directories are read with the operating system's own calls: a log may hold anything beside
the protocol's files (links, names that no object store takes), and it must not stop a listing.
Everything else goes through obstore. Failures become StorageError here and nowhere else.
"""

from __future__ import annotations

import io
import os
import re
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NoReturn, Protocol

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import MemoryStore, ObjectStore, from_url

from mirror_assets.delta.locations import Location, normalise_location
from mirror_assets.delta.log_paths import LOG_DIRECTORY, LogListing
from mirror_assets.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from obstore.store import RetryConfig

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
READ_AHEAD: Final = 1024 * 1024
_SMALL: Final = 32 * 1024
_PLAIN_NAME: Final = re.compile(r"\d[\d.a-z]*")
#: obstore's own default keeps on trying for three minutes
_RETRIES: Final[RetryConfig] = {"max_retries": 3, "retry_timeout": timedelta(seconds=30)}
#: settings of the connection; obstore takes them apart from those of the store
_CLIENT_OPTIONS: Final = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "pool_idle_timeout",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "read_timeout",
        "root_certificate",
        "timeout",
        "user_agent",
    }
)


class LogSource(Protocol):
    """Read-only access to a log. All names are relative to `_delta_log`."""

    @property
    def location(self) -> Location:
        """The table's root."""

    def list(self) -> LogListing:
        """All files of the log, those in its directories too.

        Raises StorageError if there is no log, or it cannot be listed.
        """

    def read(self, name: str) -> bytes:
        """The whole file. Raises StorageError if it is missing or cannot be read."""

    def open(self, name: str) -> BinaryIO:
        """The file as a seekable stream, for files too large to hold; raises as `read` does."""


def open_log(location: str | Location, *, options: Mapping[str, str] | None = None) -> LogSource:
    """The log of the table at the location; `options` are obstore's settings of the store.

    Raises LocationError for what cannot be a location, StorageError for wrong options. Whether
    there is a log tells `list`.
    """
    place = normalise_location(location) if isinstance(location, str) else location
    if place.scheme == "file":
        return LocalLog(place)
    if place.scheme == "memory":
        prefix = f"{place.path}/{LOG_DIRECTORY}/".lstrip("/")
        return ObjectStoreLog(place, memory_store(place.host), prefix)
    uri = f"{place.uri.removesuffix('/')}/{LOG_DIRECTORY}"
    with translated(place, "open the store"):
        return ObjectStoreLog(place, _store(uri, options or {}))


@cache
def memory_store(host: str) -> MemoryStore:
    """The store behind `memory://<host>/...`: one per host and process."""
    del host
    return MemoryStore()


@dataclass(frozen=True, slots=True)
class LocalLog:
    """A log in a directory of this machine."""

    location: Location

    def list(self) -> LogListing:
        """See LogSource."""
        with translated(self.location, "list the log"):
            if not self._directory.is_dir():
                raise _no_table(self.location)
            return LogListing.of(listed_files(self._directory))

    def read(self, name: str) -> bytes:
        """See LogSource."""
        try:
            return _whole(self._path(name))
        except (OSError, ValueError):
            with translated(self.location, f"read {name!r}"):
                raise

    def open(self, name: str) -> BinaryIO:
        """See LogSource."""
        with translated(self.location, f"read {name!r}"):
            return open(self._path(name), "rb")  # noqa: PTH123 - as for `read`

    def _path(self, name: str) -> str:
        # not by way of Path, which takes longer than the reading
        return f"{self.location.path}/{LOG_DIRECTORY}/{_checked(name)}"

    @property
    def _directory(self) -> Path:
        return Path(self.location.path) / LOG_DIRECTORY


@dataclass(frozen=True, slots=True)
class ObjectStoreLog:
    """A log behind obstore."""

    location: Location
    store: ObjectStore
    #: what stands before a file's name in the store
    prefix: str = ""

    def list(self) -> LogListing:
        """See LogSource."""
        with translated(self.location, "list the log"):
            listing = LogListing.of(listed_objects(self.store, self.prefix))
        if listing.is_empty:
            raise _no_table(self.location)
        return listing

    def read(self, name: str) -> bytes:
        """See LogSource."""
        with translated(self.location, f"read {name!r}"):
            return obstore.get(self.store, self.prefix + _checked(name)).bytes().to_bytes()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a store holds credentials and is not pickled; open it anew")

    def open(self, name: str) -> BinaryIO:
        """See LogSource."""
        with translated(self.location, f"read {name!r}"):
            path = self.prefix + _checked(name)
            size = obstore.head(self.store, path)["size"]
        raw = ObjectReader(self.location, self.store, path, size)
        return io.BufferedReader(raw, READ_AHEAD)


def listed_objects(
    store: ObjectStore, prefix: str, *, offset: str | None = None
) -> Iterator[tuple[str, int, int]]:
    """Name below the prefix, size and time of each object, behind the offset if there is one."""
    for chunk in obstore.list(store, prefix or None, offset=offset, chunk_size=1000):
        for meta in chunk:
            mtime_ms = (meta["last_modified"] - _EPOCH) // _MILLISECOND
            yield meta["path"].removeprefix(prefix), meta["size"], mtime_ms


def _store(uri: str, options: Mapping[str, str]) -> ObjectStore:
    """The store of the URI; obstore's types name its settings, ours come from a file."""
    client: Any = {key: value for key, value in options.items() if key in _CLIENT_OPTIONS}
    config: Any = {key: value for key, value in options.items() if key not in _CLIENT_OPTIONS}
    return from_url(uri, config=config, client_options=client, retry_config=_RETRIES)


class ObjectReader(io.RawIOBase):
    """An object as a raw stream of range requests."""

    def __init__(self, location: Location, store: ObjectStore, path: str, size: int) -> None:
        super().__init__()
        self._location = location
        self._store = store
        self._path = path
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        length = min(len(buffer), self._size - self._position)
        if length <= 0:
            return 0
        with translated(self._location, f"read {self._path!r}"):
            data = obstore.get_range(self._store, self._path, start=self._position, length=length)
        buffer[: len(data)] = memoryview(data)
        self._position += len(data)
        return len(data)


def listed_files(directory: Path) -> Iterator[tuple[str, int, int]]:
    """Each file below the directory; links to directories are not followed."""
    folders = [("", str(directory))]
    while folders:
        prefix, folder = folders.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append((f"{prefix}{entry.name}/", entry.path))
                    continue
                try:
                    status = entry.stat()
                except FileNotFoundError:  # a dangling link, or deleted since
                    continue
                if not stat.S_ISDIR(status.st_mode):
                    yield prefix + entry.name, status.st_size, status.st_mtime_ns // 1_000_000


def _whole(path: str) -> bytes:
    """In fewer steps than a file object takes: a log is many small files."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        data = os.read(descriptor, _SMALL)
        if len(data) < _SMALL:
            return data
        with open(descriptor, "rb", closefd=False) as rest:
            return data + rest.read()
    finally:
        os.close(descriptor)


def _checked(name: str) -> str:
    """The name, if it stays below `_delta_log`: names of sidecars come from foreign files."""
    if _PLAIN_NAME.fullmatch(name):
        return name
    if any(part in ("", ".", "..") for part in name.split("/")) or "\\" in name or "\0" in name:
        raise StorageError(f"{name!r} is no name of a file below {LOG_DIRECTORY}")
    return name


@contextmanager
def translated(location: Location, attempt: str) -> Iterator[None]:
    """The one place where failures of stores become ours, by type."""
    try:
        yield
    except (PermissionDeniedError, UnauthenticatedError, PermissionError) as exc:
        remedy = "grant read access to the location, or correct the credentials"
        raise _failed(location, attempt, exc, remedy) from exc
    except FileNotFoundError as exc:
        remedy = "check the location; the file may have been cleaned up since the listing"
        raise _failed(location, attempt, exc, remedy) from exc
    except (BaseError, OSError, ValueError) as exc:
        remedy = "check the location, the store's options and the connection"
        raise _failed(location, attempt, exc, remedy) from exc


def _failed(location: Location, attempt: str, exc: Exception, remedy: str) -> StorageError:
    reason = str(exc).partition("\n")[0]
    return StorageError(f"cannot {attempt} at {location}: {reason}", remedy=remedy)


def _no_table(location: Location) -> StorageError:
    return StorageError(
        f"no Delta table at {location}: it has no {LOG_DIRECTORY}",
        remedy="give the table's root directory, the one above _delta_log",
    )
