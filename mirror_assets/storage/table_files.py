"""Reading a table's other files, those that its log names: deletion vectors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import obstore
from obstore.store import ObjectStore

from mirror_assets.delta.locations import Location
from mirror_assets.errors import StorageError
from mirror_assets.storage.clients import clients_of
from mirror_assets.storage.log_source import translated
from mirror_assets.storage.options import StoreOptions

#: a path relative to the table's root, decoded, to the file's bytes; None if there is no file
FileReader = Callable[[str], bytes | None]


def table_files(place: Location, options: StoreOptions | None = None) -> FileReader:
    """A reader of the files below the table's root; what leads out of it is refused."""
    if place.scheme == "file":
        return _Local(Path(place.path)).read
    store = clients_of(place, options or StoreOptions()).reads
    return _Stored(place, store, f"{place.path}/".lstrip("/")).read


class _Local:
    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, path: str) -> bytes | None:
        file = self._root / _inside(path)
        return file.read_bytes() if file.is_file() else None


class _Stored:
    def __init__(self, place: Location, store: ObjectStore, prefix: str) -> None:
        self._place, self._store, self._prefix = place, store, prefix

    def read(self, path: str) -> bytes | None:
        try:
            answer = obstore.get(self._store, self._prefix + _inside(path))
        except FileNotFoundError:
            return None
        with translated(self._place, f"read {path!r}"):
            return answer.bytes().to_bytes()


def _inside(path: str) -> str:
    if path.startswith("/") or any(part in ("", ".", "..") for part in path.split("/")):
        raise StorageError(f"{path!r} is no file below the table's root")
    return path
