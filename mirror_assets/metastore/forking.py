"""A table moves: its rows stay as they are, its log is another one.

While it moves it is FORKING, and nobody commits to it or publishes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, and_, select

from mirror_assets.delta.locations import Location
from mirror_assets.errors import TableExistsError
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.handover import move, note, require_state, take_lease
from mirror_assets.metastore.heads import TableState
from mirror_assets.metastore.log_reader import TableRecord, find_table
from mirror_assets.metastore.tables import (
    dl_mirror_status,
    dl_mirror_tables,
    dl_tables,
)

_FORKED_FROM = (
    TableState.ACTIVE,
    TableState.RELEASING,
    TableState.RELEASED,
    TableState.FORKING,
)


def require_forkable(metastore: Metastore, name: str, target: Location) -> TableRecord:
    """The table; TableStateError if it is in other hands, TableExistsError for a taken place."""
    with metastore.read() as connection:
        return _forkable(connection, name, target)


@contextmanager
def closed_for_fork(metastore: Metastore, name: str, target: Location) -> Iterator[TableRecord]:
    """Keep writers and mirrors away inside the block; an error lets them in again."""
    with metastore.write() as connection:
        table_id = _forkable(connection, name, target).table_id
        take_lease(connection, table_id)
        mine = select(dl_tables.c.table_id).where(dl_tables.c.table_id == table_id)
        connection.execute(metastore.dialect.lock(mine))
        table = _forkable(connection, name, target)
        move(connection, table_id, TableState.FORKING)
    was = table.state if table.state != TableState.FORKING else TableState.ACTIVE
    try:
        yield table
    except Exception:
        with metastore.write() as connection:
            move(connection, table_id, was)
        raise


def move_to(metastore: Metastore, table: TableRecord, target: Location) -> None:
    """The log at the target is the table's: it has all versions, and a checkpoint of the head."""
    status, mirror, mine = dl_mirror_status, dl_mirror_tables, table.table_id
    pending = and_(
        status.c.table_id == mine, status.c.artifact == "commit", status.c.status != "SUCCESS"
    )
    with metastore.write() as connection:
        take_lease(connection, mine)
        values = {"status": "SUCCESS", "resolved_by": "put", "reason_code": None}
        connection.execute(status.update().where(pending).values({**values, "last_error": None}))
        stopped = {"state": "OK", "reason": None, "failures": 0, "next_attempt_at_ms": 0}
        connection.execute(
            mirror.update()
            .where(mirror.c.table_id == mine)
            .values({**stopped, "checkpoint_version": table.head_version})
        )
        moved = {"location": target.uri, "location_key": target.key, "state": TableState.ACTIVE}
        connection.execute(
            dl_tables.update()
            .where(dl_tables.c.table_id == mine)
            .values({**moved, "mirrored_version": table.head_version})
        )
        note(metastore, connection, table, "forked", f"from {table.location} to {target.uri}")


def _forkable(connection: Connection, name: str, target: Location) -> TableRecord:
    table = find_table(connection, name)
    require_state(table, *_FORKED_FROM)
    query = select(dl_tables.c.name).where(dl_tables.c.location_key == target.key)
    taken = connection.execute(query).scalar()
    if taken is not None:
        message = f"the location {target.uri} is taken by the table {taken!r}"
        raise TableExistsError(message, table=name, remedy="give another place")
    return table
