"""Files and directories of this machine: whole, synced, and never through a planted link.

Directories are walked from the root by descriptors that follow no link: a link that is put in
place between two calls is met as an error, not followed out of the root.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import re
import stat
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Final

from mirror_assets.delta.locations import Location
from mirror_assets.delta.log_paths import LOG_DIRECTORY, Unknown, parse_log_path
from mirror_assets.errors import LocationError, StoreConfigError, StoreUnavailableError

_START: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_BELOW: Final = _START | os.O_NOFOLLOW
#: not to wait for whoever would write into a pipe of that name
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_TEMPORARY: Final = re.compile(r"\.[0-9a-f]{32}\.tmp")
#: what obstore's own local store, and engines built on it, leave after a crash
_STAGED: Final = re.compile(r"(.+)#[0-9]+")
_CHUNK: Final = 8 * 1024 * 1024
_LOCK_TRIES: Final = 50
_LOCK_PAUSE_S: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirectory:
    """The `_delta_log` of a table, wherever links inside of its root lead to.

    `root` is the allowed place above the table, which must exist (it may be a file system that
    is not mounted); without one the table's own directory is the root, and is made.
    """

    table: Location
    root: Location | None
    durable: bool

    def real_path(self) -> Path:
        """The directory without links. Raises LocationError if it is outside of the root."""
        root = _real((self.root or self.table).path)
        log = _real(f"{self.table.path}/{LOG_DIRECTORY}")
        if not log.is_relative_to(root):
            message = f"{self.table}/{LOG_DIRECTORY} leaves its root {root} by a link to {log}"
            raise LocationError(message, remedy="replace the link by a directory")
        return log

    @contextmanager
    def holding(self, name: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        """A descriptor of the directory that holds the file, and the file's name in it.

        Raises FileNotFoundError if a directory is missing that may not be made.
        """
        *above, base = name.split("/")
        try:
            start, parts = self._as_written(create=create)
            folder = self._walk(start, [*parts, *above], create=create)
        except LocationError:  # there is a link, which may well stay inside of the root
            start, parts = self._without_links()
            folder = self._walk(start, [*parts, *above], create=create)
        try:
            yield folder, base
        finally:
            os.close(folder)

    @contextmanager
    def temporary(
        self, folder: int, fill: Callable[[int], None], mtime_ms: int | None = None
    ) -> Iterator[str]:
        """A synced file under a temporary name, which is gone afterwards."""
        name = f".{uuid.uuid4().hex}.tmp"
        fd = os.open(name, _WRITE, 0o666, dir_fd=folder)
        try:
            try:
                fill(fd)
                if mtime_ms is not None:
                    os.utime(fd, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))
                self.sync(fd)
            finally:
                os.close(fd)
            yield name
        finally:
            with suppress(FileNotFoundError):  # renamed
                os.unlink(name, dir_fd=folder)

    def sync(self, fd: int) -> None:
        """Have the file or directory on the disk, if that is wanted."""
        if self.durable:
            os.fsync(fd)

    def _as_written(self, *, create: bool) -> tuple[str, list[str]]:
        """Where the walk starts, and the directories from there to the log."""
        start = (self.root or self.table).path
        below = self.table.path[len(start) :].split("/")
        while create and self.root is None and not Path(start).is_dir():
            start, _, last = start.rpartition("/")
            start, below = start or "/", [last, *below]
        return start, [*(part for part in below if part), LOG_DIRECTORY]

    def _without_links(self) -> tuple[str, list[str]]:
        start = _real((self.root or self.table).path)
        return str(start), list(self.real_path().relative_to(start).parts)

    def _walk(self, start: str, parts: list[str], *, create: bool) -> int:
        """A descriptor of the last directory. Raises LocationError at a link."""
        try:
            folder = os.open(start, _START)
        except FileNotFoundError as exc:
            if self.root is None:
                raise
            message = f"the root {self.root} does not exist"
            remedy = "create it, or mount its file system"
            raise StoreConfigError(message, remedy=remedy) from exc
        try:
            for part in parts:
                below = self._below(folder, part, create=create)
                os.close(folder)
                folder = below
        except BaseException:
            os.close(folder)
            raise
        return folder

    def _below(self, folder: int, part: str, *, create: bool) -> int:
        try:
            return _open_directory(folder, part)
        except FileNotFoundError:
            if not create:
                raise
        with suppress(FileExistsError):
            os.mkdir(part, dir_fd=folder)
        self.sync(folder)
        return _open_directory(folder, part)


def open_file(folder: int, base: str) -> io.BufferedReader:
    """The file as a stream; a link, pipe or directory in its place is an error."""
    return io.BufferedReader(_open_regular(folder, base))


def read_file(folder: int, base: str) -> bytes:
    """All of the file; a link, pipe or directory in its place is an error."""
    with _open_regular(folder, base) as file:
        return file.readall()


def _open_regular(folder: int, base: str) -> io.FileIO:
    fd = os.open(base, _READ, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise StoreConfigError(f"{base!r} is no regular file", remedy="remove it from the log")
    return io.FileIO(fd)


def exists(folder: int, base: str) -> bool:
    """Whether the name is taken, if only by a link."""
    try:
        os.stat(base, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def write(fd: int, data: bytes) -> None:
    """Write all of it: one call to the system may take less."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def copy(file: Path, fd: int) -> None:
    """Write all of the file, in bounded memory."""
    with file.open("rb") as source:
        while chunk := source.read(_CHUNK):
            write(fd, chunk)


def digest_of(file: Path) -> str:
    """The SHA-256 of the file."""
    with file.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()


def lock(folder: int) -> None:
    """Lock the directory until it is closed; a stopped holder must not stop us for ever."""
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE_S)
        else:
            return
    raise StoreUnavailableError("another process holds the lock of the log's directory")


def remove_orphans(folder: int, above: str, oldest: float) -> Iterator[str]:
    """Remove what crashed writers left here before, and give the names below the log."""
    for name in os.listdir(folder):
        if _is_orphan(above, name) and _remove_old(folder, name, oldest):
            yield above + name


def _open_directory(folder: int, part: str) -> int:
    try:
        return os.open(part, _BELOW, dir_fd=folder)
    except OSError as exc:
        if exc.errno in (errno.ENOTDIR, errno.ELOOP) and _is_link(folder, part):
            raise LocationError(f"{part!r} in the log's path is a link") from exc
        raise


def _is_link(folder: int, part: str) -> bool:
    try:
        os.readlink(part, dir_fd=folder)
    except OSError:
        return False
    return True


def _real(path: str) -> Path:
    return Path(os.path.realpath(path))


def _is_orphan(above: str, name: str) -> bool:
    """Whether the name is a temporary one of ours, or of obstore for a file of the protocol."""
    staged = _STAGED.fullmatch(name)
    if staged is not None:
        return not isinstance(parse_log_path(above + staged[1]), Unknown)
    return _TEMPORARY.fullmatch(name) is not None


def _remove_old(folder: int, name: str, oldest: float) -> bool:
    """Remove the file, if it is old by the time of its last change, which nobody can set."""
    try:
        if os.stat(name, dir_fd=folder, follow_symlinks=False).st_ctime > oldest:
            return False
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True
