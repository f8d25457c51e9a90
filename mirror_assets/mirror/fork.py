"""`fork`: where SQL and the log tell different things, SQL's history goes on at another place.

    copy the data files yourself -> look whether they are all there -> rebuild the log -> move

The new log is byte for byte what SQL ratified, so its relative paths are seen from the new place:
paths back to the old one would not be read by everybody, and whoever owns the old place now may
vacuum it. The old place is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote

from mirror_assets.delta.actions import AddFile
from mirror_assets.errors import TableExistsError, TableStateError
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.forking import closed_for_fork, move_to, require_forkable
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.relocation import Relocation
from mirror_assets.mirror.rebuild import Rebuilt, rebuild
from mirror_assets.storage.data_files import DataFiles
from mirror_assets.storage.log_store import LogStore

#: names of missing files that are told
_SHOWN: Final = 20
_RELATIVE: Final = "relative:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """What would move, or has."""

    table: str
    head_version: int
    #: where the log was, and is then
    left: str
    location: str
    #: live files and deletion vectors that must be at the new place; their bytes as far as known
    files: int
    size_bytes: int
    #: how many of them are not there, or have another size; the first of them
    num_missing: int
    missing: tuple[str, ...]
    rebuilt: Rebuilt | None = None


def plan_fork(metastore: Metastore, name: str, store: LogStore, data: DataFiles) -> Fork:
    """Look whether a table can go on at another place; nothing is written.

    Raises TableNotFoundError, TableStateError for a table in other hands, TableExistsError for a
    place with a log or with another table.
    """
    table = require_forkable(metastore, name, store.location)
    _require_no_log(store, name)
    wanted = dict(_wanted(LogReader(metastore).live_files(name)))
    files, size = len(wanted), sum(filter(None, wanted.values()))
    for file in data.list():
        if file.path in wanted and wanted[file.path] in (None, file.size):
            del wanted[file.path]
    return Fork(
        table=name,
        head_version=table.head_version,
        left=table.location,
        location=store.location.uri,
        files=files,
        size_bytes=size,
        num_missing=len(wanted),
        missing=tuple(sorted(wanted)[:_SHOWN]),
    )


def fork(metastore: Metastore, name: str, store: LogStore, data: DataFiles) -> Fork:
    """Publish SQL's history at another place, which is the table's from then on.

    Raises what `plan_fork` and `rebuild` raise, and TableStateError while data files are missing;
    then the table stays where it is.
    """
    require_forkable(metastore, name, store.location)
    _require_no_log(store, name)
    with closed_for_fork(metastore, name, store.location) as table:
        plan = plan_fork(metastore, name, store, data)
        _require_files(plan)
        rebuilt = rebuild(metastore, name, store)
        move_to(metastore, table, store.location)
    return replace(plan, rebuilt=rebuilt)


def _wanted(adds: Iterable[AddFile]) -> Iterator[tuple[str, int | None]]:
    """The files that are named relative to the root, and their sizes where the log tells them."""
    relocation = Relocation(_RELATIVE)
    for add in adds:
        moved = relocation.apply(add)
        assert isinstance(moved, AddFile)  # noqa: S101 - as it was
        if moved.path != add.path:
            yield unquote(add.path), add.size
        vector = moved.deletion_vector
        if vector is not None and vector != add.deletion_vector:
            yield unquote(vector.path_or_inline_dv.removeprefix(f"{_RELATIVE}/")), None


def _require_no_log(store: LogStore, name: str) -> None:
    if not store.list().is_empty:
        message = f"there are files of a log at {store.location} already"
        raise TableExistsError(message, table=name, remedy="give a place without one")


def _require_files(plan: Fork) -> None:
    if not plan.num_missing:
        return
    some = ", ".join(plan.missing[:3])
    message = f"{plan.num_missing} of {plan.files} data files are not at {plan.location}: {some}"
    remedy = (
        f"copy the data files there from {plan.left}, without `_delta_log`, then fork again; "
        "nothing was changed"
    )
    raise TableStateError(message, table=plan.table, remedy=remedy)
