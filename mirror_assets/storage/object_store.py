"""A table's log in an object store: S3-compatible, GCS, Azure, or memory.

A create is one PUT with `If-None-Match: *`, never multipart: completing a multipart upload is not
atomic in every store. Whatever is not a clean yes is *unknown*, also "already exists" (it may be
our own write whose reply got lost, or a conflict that stored nothing), and is read back.
"""

from __future__ import annotations

import io
import mmap
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Literal, NoReturn

import obstore

from mirror_assets.delta.locations import Location
from mirror_assets.delta.log_paths import LOG_DIRECTORY, LastCheckpoint, LogListing, LogPath
from mirror_assets.errors import MirrorAssetsError
from mirror_assets.storage.clients import LARGE_BYTES, Clients
from mirror_assets.storage.log_source import (
    READ_AHEAD,
    LogSource,
    ObjectReader,
    ObjectStoreLog,
    listed_objects,
)
from mirror_assets.storage.log_store import (
    Created,
    Different,
    Identical,
    LogKey,
    Moved,
    Over,
    Put,
    Replaced,
    after_version,
    digest,
    is_after,
    readable_name,
    replaceable_name,
    writable_name,
)
from mirror_assets.storage.translation import is_of_store, translate, translated

if TYPE_CHECKING:
    from obstore import GetResult, UpdateVersion

_CHUNK: Final = 8 * 1024 * 1024


class ObjectLogStore:
    """See LogStore. One per table; the connections are shared per bucket."""

    __slots__ = ("_clients", "_location", "_prefix")

    def __init__(self, location: Location, clients: Clients) -> None:
        self._location = location
        self._clients = clients
        self._prefix = f"{location.path.rstrip('/')}/{LOG_DIRECTORY}/".lstrip("/")

    @property
    def location(self) -> Location:
        """See LogStore."""
        return self._location

    @property
    def source(self) -> LogSource:
        """See LogStore."""
        return ObjectStoreLog(self._location, self._clients.reads, self._prefix)

    def put_if_absent(self, path: LogKey, data: bytes, *, mtime_ms: int | None = None) -> Put:
        """See LogStore."""
        del mtime_ms  # the store's own
        return self._create(path, data, lambda: digest(data))

    def put_file_if_absent(self, path: LogKey, file: Path) -> Put:
        """See LogStore.

        The file is mapped, not read: obstore sends and signs the mapped pages, which the system
        may drop at any time, so the process itself grows by nothing. One PUT takes 5 GiB on S3.
        """
        with translated(self._location, f"read {str(file)!r}"), file.open("rb") as stream:
            if stream.seek(0, io.SEEK_END) == 0:
                return self.put_if_absent(path, b"")
            pages = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            body = memoryview(pages)
            return self._create(path, body, lambda: digest(body))
        finally:
            # A request that timed out may still hold the pages; they go with it.
            with suppress(BufferError):
                body.release()
                pages.close()

    def read(self, path: LogPath) -> bytes | None:
        """See LogStore."""
        with translated(self._location, f"read {path.name!r}"):
            found = self._get(readable_name(path))
            return None if found is None else found.bytes().to_bytes()

    def size(self, path: LogPath) -> int | None:
        """See LogStore."""
        key = self._prefix + readable_name(path)
        with translated(self._location, f"look at {path.name!r}"):
            try:
                return obstore.head(self._clients.once, key)["size"]
            except FileNotFoundError:
                return None

    def open(self, path: LogPath) -> BinaryIO | None:
        """See LogStore."""
        size = self.size(path)
        if size is None:
            return None
        key = self._prefix + readable_name(path)
        raw = ObjectReader(self._location, self._clients.reads, key, size)
        return io.BufferedReader(raw, READ_AHEAD)

    def list(self, after: int | None = None) -> LogListing:
        """See LogStore."""
        offset = None if after is None else self._prefix + after_version(after)
        with translated(self._location, "list the log"):
            found = listed_objects(self._clients.reads, self._prefix, offset=offset)
            return LogListing.of(
                entry for entry in found if after is None or is_after(entry[0], after)
            )

    def replace(
        self,
        path: LastCheckpoint,
        data: bytes,
        *,
        over: bytes | Literal[Over.ANYTHING] | None = Over.ANYTHING,
    ) -> Replaced | Moved:
        """See LogStore."""
        name = replaceable_name(path)
        if over is None:
            created = self._create(path, data, lambda: digest(data))
            if isinstance(created, Different):
                return Moved(found=self.read(path))
            return Replaced(resolved_by=created.resolved_by)
        mode: Literal["overwrite"] | UpdateVersion = "overwrite"
        if over is not Over.ANYTHING:
            with translated(self._location, f"read {name!r}"):
                seen = self._get(name)
                found = None if seen is None else seen.bytes().to_bytes()
            if seen is None or found != over:
                return Moved(found=found)
            mode = _version_of(seen)
        return self._overwrite(path, data, over, mode)

    def delete(self, path: LogKey) -> None:
        """See LogStore."""
        key = self._prefix + writable_name(path)
        with (
            translated(self._location, f"delete {path.name!r}"),
            suppress(FileNotFoundError),
        ):
            obstore.delete(self._clients.once, key)

    def set_mtime(self, path: LogKey, mtime_ms: int) -> None:
        """See LogStore: the store's time cannot be set."""
        del mtime_ms
        writable_name(path)

    def remove_orphans(self, older_than_s: float) -> tuple[str, ...]:
        """See LogStore: a PUT leaves none."""
        del older_than_s
        return ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._location)!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a store holds credentials and is not pickled; open it anew")

    def _create(self, path: LogKey, body: bytes | memoryview, expected: Callable[[], str]) -> Put:
        name = writable_name(path)
        try:
            obstore.put(
                self._clients.fitting(len(body)),
                self._prefix + name,
                body,
                mode="create",
                use_multipart=False,
            )
        except BaseException as exc:
            if not is_of_store(exc):
                raise
            return self._resolve(name, expected, exc)
        return Created()

    def _resolve(self, name: str, expected: Callable[[], str], doubt: BaseException) -> Put:
        """What is there, after a create without a clean yes; raise if that cannot be said."""
        attempt = f"create {name!r}"
        try:
            found = self._found(name)
        except BaseException as exc:
            if not is_of_store(exc) and not isinstance(exc, MirrorAssetsError):
                raise
            exc.add_note(f"after the create of {name!r} failed: {str(doubt).partition(chr(10))[0]}")
            attempt += " and read it back: it is unknown whether it is stored"
            raise translate(exc, self._location, attempt) from exc
        if found is None:
            raise translate(doubt, self._location, attempt) from doubt
        size, sha = found
        if sha == expected():
            return Identical()
        return Different(found_size=size, found_sha256=sha)

    def _found(self, name: str) -> tuple[int, str] | None:
        """Size and digest of what is there, in bounded memory."""
        found = self._get(name)
        if found is None:
            return None
        size, hasher = 0, sha256()
        for chunk in found.stream(min_chunk_size=_CHUNK):
            hasher.update(chunk)
            size += len(chunk)
        return size, hasher.hexdigest()

    def _get(self, name: str) -> GetResult | None:
        """The object, its body unread; by a GET, because the answer to a HEAD has no reasons."""
        key = self._prefix + name
        try:
            found = obstore.get(self._clients.once, key)
            if found.meta["size"] > LARGE_BYTES:
                found = obstore.get(self._clients.large, key)
        except FileNotFoundError:
            return None
        return found

    def _overwrite(
        self,
        path: LastCheckpoint,
        data: bytes,
        over: bytes | Literal[Over.ANYTHING],
        mode: Literal["overwrite"] | UpdateVersion,
    ) -> Replaced | Moved:
        key = self._prefix + path.name
        try:
            obstore.put(self._clients.once, key, data, mode=mode, use_multipart=False)
        except BaseException as exc:
            if not is_of_store(exc):
                raise
            found = self.read(path)
            if found == data:
                return Replaced(resolved_by="readback")
            if over is not Over.ANYTHING and found != over:
                return Moved(found=found)
            raise translate(exc, self._location, f"replace {path.name!r}") from exc
        return Replaced(resolved_by="put")


def _version_of(seen: GetResult) -> UpdateVersion:
    """What was seen, as the condition of a write; obstore takes no None for what is missing."""
    meta = seen.meta
    version: UpdateVersion = {}
    if meta["e_tag"] is not None:
        version["e_tag"] = meta["e_tag"]
    if meta["version"] is not None:
        version["version"] = meta["version"]
    return version
