"""What was published, for whoever reports it elsewhere, and how far they have come.

A reporter keeps a cursor per table and artifact in `dl_settings`, in a scope that no table can
have. It moves after the report, so that a crash between the two repeats a report and loses none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from sqlalchemy import Connection, and_, select

from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_reader import find_table
from mirror_assets.metastore.tables import (
    dl_mirror_events,
    dl_mirror_status,
    dl_mirror_tables,
    dl_settings,
    dl_table_versions,
    dl_tables,
)

COMMIT: Final = "commit"
CHECKPOINT: Final = "checkpoint"
_SCOPE: Final = "@reported"


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """A commit, and its file in the log."""

    version: int
    operation: str | None
    actions: int
    adds: int
    removes: int
    num_files: int | None
    size_bytes: int | None
    byte_length: int
    sha256: str
    committed_at_ms: int
    published_at_ms: int | None
    lag_ms: int | None
    resolved_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPublication:
    """A checkpoint in the log; its measures where the audit trail has them."""

    version: int
    published_at_ms: int | None
    lag_ms: int | None
    resolved_by: str | None
    actions: int | None = None
    size_bytes: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreported:
    """A table of which something was published since the last report."""

    table_id: int
    table: str
    location: str
    first_version: int
    mirrored_version: int
    checkpoint_version: int
    #: newest version that was reported; None before the first report
    commits_reported: int | None
    checkpoints_reported: int | None


def read_publications(metastore: Metastore, name: str, first: int, last: int) -> list[Publication]:
    """The commits of a range of versions, the oldest first."""
    version, status = dl_table_versions, dl_mirror_status
    of_commit = and_(
        status.c.table_id == version.c.table_id,
        status.c.version == version.c.version,
        status.c.artifact == COMMIT,
    )
    with metastore.read() as connection:
        table = find_table(connection, name)
        query = (
            select(
                version.c.version,
                version.c.operation,
                version.c.num_actions.label("actions"),
                version.c.num_adds.label("adds"),
                version.c.num_removes.label("removes"),
                *(version.c[n] for n in ("num_files", "size_bytes", "byte_length", "sha256")),
                version.c.committed_at_ms,
                *(status.c[n] for n in ("published_at_ms", "lag_ms", "resolved_by")),
            )
            .join(status, of_commit, isouter=True)
            .where(version.c.table_id == table.table_id, version.c.version.between(first, last))
            .order_by(version.c.version)
        )
        return [Publication(**row) for row in connection.execute(query).mappings()]


def read_checkpoint_publications(
    metastore: Metastore, name: str, first: int, last: int
) -> list[CheckpointPublication]:
    """The published checkpoints of a range of versions, the oldest first."""
    status, event = dl_mirror_status, dl_mirror_events
    with metastore.read() as connection:
        table = find_table(connection, name)
        built = connection.execute(
            select(event.c.version, event.c.detail)
            .where(
                event.c.table_id == table.table_id,
                event.c.event == "checkpoint_published",
                event.c.version.between(first, last),
            )
            .order_by(event.c.at_ms)
        )
        measures = {row.version: orjson.loads(row.detail or "{}") for row in built}
        query = (
            select(*(status.c[n] for n in ("version", "published_at_ms", "lag_ms", "resolved_by")))
            .where(
                status.c.table_id == table.table_id,
                status.c.artifact == CHECKPOINT,
                status.c.status == "SUCCESS",
                status.c.version.between(first, last),
            )
            .order_by(status.c.version)
        )
        rows = connection.execute(query).mappings().all()
    return [_checkpoint(dict(row), measures.get(row["version"], {})) for row in rows]


def read_unreported(metastore: Metastore) -> list[Unreported]:
    """The tables whose log went on since the last report."""
    mirror, own = dl_mirror_tables, ("table_id", "name", "location", "first_version")
    query = (
        select(
            *(dl_tables.c[name] for name in (*own, "mirrored_version")),
            mirror.c.checkpoint_version,
        )
        .join(mirror, mirror.c.table_id == dl_tables.c.table_id)
        .order_by(dl_tables.c.table_id)
    )
    with metastore.read() as connection:
        rows = connection.execute(query).mappings().all()
        cursors = _cursors(connection)
    found = [
        Unreported(
            table=row["name"],
            **{key: value for key, value in row.items() if key != "name"},
            commits_reported=cursors.get(f"{COMMIT}:{row['table_id']}"),
            checkpoints_reported=cursors.get(f"{CHECKPOINT}:{row['table_id']}"),
        )
        for row in rows
    ]
    return [table for table in found if _is_unreported(table)]


def record_reported(metastore: Metastore, artifact: str, reached: Mapping[int, int]) -> None:
    """Move the cursors of tables, by id; none goes back."""
    with metastore.write() as connection:
        now_ms = int(connection.execute(select(metastore.dialect.now_ms())).scalar_one())
        known = _cursors(connection, [f"{artifact}:{table_id}" for table_id in reached])
        for table_id, version in reached.items():
            key = f"{artifact}:{table_id}"
            row = {"value": str(version), "updated_at_ms": now_ms}
            if key not in known:
                new = {"scope": _SCOPE, "key": key, "revision": 1, **row}
                connection.execute(dl_settings.insert(), new)
            elif known[key] < version:
                is_ours = (dl_settings.c.scope == _SCOPE, dl_settings.c.key == key)
                connection.execute(dl_settings.update().where(*is_ours).values(row))


def _cursors(connection: Connection, keys: Sequence[str] | None = None) -> dict[str, int]:
    query = select(dl_settings.c.key, dl_settings.c.value).where(dl_settings.c.scope == _SCOPE)
    if keys is not None:
        query = query.where(dl_settings.c.key.in_(keys))
    return {row.key: int(row.value) for row in connection.execute(query)}


def _is_unreported(table: Unreported) -> bool:
    commits = -1 if table.commits_reported is None else table.commits_reported
    checkpoints = -1 if table.checkpoints_reported is None else table.checkpoints_reported
    return table.mirrored_version > commits or table.checkpoint_version > checkpoints


def _checkpoint(row: dict[str, Any], measures: dict[str, Any]) -> CheckpointPublication:
    return CheckpointPublication(
        **row,
        actions=measures.get("actions"),
        size_bytes=measures.get("bytes"),
        seconds=measures.get("seconds"),
    )
