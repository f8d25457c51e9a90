"""The data files below a table's root: listed, read and, by a vacuum, deleted.

Names are relative to the root and decoded, as the store has them. Whoever writes data files does
it elsewhere (Spark's own writer); nothing here creates or replaces one.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn, Protocol

import obstore

from mirror_assets.delta.locations import Location, normalise_location
from mirror_assets.errors import LocationError
from mirror_assets.storage.clients import Clients, clients_of
from mirror_assets.storage.log_source import (
    READ_AHEAD,
    ObjectReader,
    listed_files,
    listed_objects,
)
from mirror_assets.storage.options import StoreOptions
from mirror_assets.storage.stores import allowed_root
from mirror_assets.storage.translation import translated


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file as a listing shows it."""

    path: str
    size: int
    mtime_ms: int


class DataFiles(Protocol):
    """The files below one root; methods raise the errors of a store."""

    @property
    def location(self) -> Location:
        """The root."""

    def list(self, below: str = "") -> Iterator[StoredFile]:
        """All files below a directory; none if it is not there."""

    def open(self, path: str) -> BinaryIO:
        """A file as a seekable stream."""

    def delete(self, path: str) -> None:
        """Remove a file; that it is gone already is fine."""


def open_data_files(
    location: str | Location,
    options: StoreOptions | None = None,
    *,
    allowed_roots: Sequence[str | Location] = (),
) -> DataFiles:
    """The files below the location; no request is made yet.

    Raises LocationError for a place outside of the allowed roots.
    """
    place = normalise_location(location) if isinstance(location, str) else location
    allowed_root(place, allowed_roots)
    if place.scheme == "file":
        return LocalDataFiles(place)
    return ObjectDataFiles(place, clients_of(place, options or StoreOptions()))


@dataclass(frozen=True, slots=True)
class LocalDataFiles:
    """A directory of this machine."""

    location: Location

    def list(self, below: str = "") -> Iterator[StoredFile]:
        """See DataFiles."""
        directory = self._path(below) if below else Path(self.location.path)
        with translated(self.location, f"list {below!r}"):
            if not directory.is_dir():
                return
            for name, size, mtime_ms in listed_files(directory):
                path = f"{below}/{name}" if below else name
                yield StoredFile(path=path, size=size, mtime_ms=mtime_ms)

    def open(self, path: str) -> BinaryIO:
        """See DataFiles."""
        with translated(self.location, f"read {path!r}"):
            return self._path(path).open("rb")

    def delete(self, path: str) -> None:
        """See DataFiles; Hadoop's shadow of it and directories that became empty go too."""
        file = self._path(path)
        with translated(self.location, f"delete {path!r}"):
            file.unlink(missing_ok=True)
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
            root = Path(self.location.path)
            for directory in file.parents:
                if directory == root or not directory.is_relative_to(root):
                    break
                with suppress(OSError):
                    directory.rmdir()

    def _path(self, path: str) -> Path:
        return Path(self.location.path) / _checked(path)


@dataclass(frozen=True, slots=True)
class ObjectDataFiles:
    """A prefix of a bucket."""

    location: Location
    clients: Clients

    def list(self, below: str = "") -> Iterator[StoredFile]:
        """See DataFiles."""
        prefix = self._key(below) + "/" if below else self._root
        with translated(self.location, f"list {below!r}"):
            for name, size, mtime_ms in listed_objects(self.clients.reads, prefix):
                path = f"{below}/{name}" if below else name
                yield StoredFile(path=path, size=size, mtime_ms=mtime_ms)

    def open(self, path: str) -> BinaryIO:
        """See DataFiles."""
        key = self._key(path)
        with translated(self.location, f"read {path!r}"):
            size = obstore.head(self.clients.reads, key)["size"]
        raw = ObjectReader(self.location, self.clients.reads, key, size)
        return io.BufferedReader(raw, READ_AHEAD)

    def delete(self, path: str) -> None:
        """See DataFiles."""
        with translated(self.location, f"delete {path!r}"), suppress(FileNotFoundError):
            obstore.delete(self.clients.reads, self._key(path))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a store holds credentials and is not pickled; open it anew")

    @property
    def _root(self) -> str:
        path = self.location.path.lstrip("/")
        return f"{path}/" if path else ""

    def _key(self, path: str) -> str:
        return self._root + _checked(path)


def _checked(path: str) -> str:
    """Paths come from commits, foreign ones too."""
    if any(part in ("", ".", "..") for part in path.split("/")) or "\0" in path:
        raise LocationError(f"{path!r} is no name of a file below the table's root")
    return path
