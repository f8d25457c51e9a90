"""A table changes hands: the rows that say who may commit and who publishes.

Leases are taken away first, so that a mirror at work records nothing of what was before, and in
the order in which a mirror locks rows itself.
"""

from __future__ import annotations

from typing import Final

import stamina
from sqlalchemy import Connection, select

from mirror_assets.errors import TableStateError
from mirror_assets.metastore.committing import Committing
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.dialect import OutcomeUnknownError, RetryableError
from mirror_assets.metastore.events import record_event
from mirror_assets.metastore.fencing import fence_request
from mirror_assets.metastore.heads import InForce, TableState, closed_error, lock_heads
from mirror_assets.metastore.log_reader import TableRecord, find_table
from mirror_assets.metastore.outcomes import new_commit_id
from mirror_assets.metastore.tables import dl_mirror_tables, dl_tables

_OK: Final = "OK"
_GOING: Final = (TableState.RELEASING, TableState.RELEASED)


@stamina.retry(on=(RetryableError, OutcomeUnknownError), attempts=10, timeout=30.0)
def begin_release(metastore: Metastore, name: str, *, engine_info: str) -> None:
    """Let the table take no commits any more; the last one takes its fence down, if it has one.

    Repeating it is harmless. Raises TableNotFoundError, and TableStateError for a table that is
    in other hands already, or whose mirror has stopped before its head.
    """
    with metastore.write() as connection:
        if find_table(connection, name).state in _GOING:
            return
        heads, now_ms = lock_heads(metastore.statements, connection, [name])
        head, in_force = heads[name], InForce()
        protocol, _ = in_force.at_head(connection, head)
        request = fence_request(name, protocol, head.head_version, fenced=False)
        if request is not None or head.head_version > head.mirrored_version:
            _require_publishing(connection, head)
        if request is not None:
            Committing(
                statements=metastore.statements,
                connection=connection,
                in_force=in_force,
                now_ms=now_ms,
                commit_id=new_commit_id(),
                group_id=None,
                engine_info=engine_info,
            ).commit(head, request)
        move(connection, head.table_id, TableState.RELEASING)


def end_release(metastore: Metastore, name: str) -> TableRecord:
    """The log belongs to file-based writers now; TableStateError while something is pending."""
    with metastore.write() as connection:
        table = find_table(connection, name)
        if table.state == TableState.RELEASED:
            return table
        take_lease(connection, table.table_id)
        table = find_table(connection, name)
        if table.state != TableState.RELEASING or table.mirrored_version < table.head_version:
            message = f"the log is at version {table.mirrored_version} of {table.head_version}"
            raise TableStateError(message, table=name, remedy=f"`mirror-assets mirror {name}`")
        move(connection, table.table_id, TableState.RELEASED)
        note(metastore, connection, table, "released", f"at version {table.head_version}")
        return find_table(connection, name)


def move(connection: Connection, table_id: int, state: str) -> None:
    """Give the table another state."""
    mine = dl_tables.c.table_id == table_id
    connection.execute(dl_tables.update().where(mine).values(state=state))


def take_lease(connection: Connection, table_id: int) -> None:
    """Take the table from whoever publishes it: what they record from now on is lost."""
    mirror = dl_mirror_tables
    connection.execute(
        mirror.update()
        .where(mirror.c.table_id == table_id)
        .values(fence=mirror.c.fence + 1, lease_owner=None, lease_until_ms=0)
    )


def resume_from(connection: Connection, table_id: int, states: tuple[str, ...]) -> None:
    """Publish again what had stopped in one of these states: a person has decided."""
    mirror = dl_mirror_tables
    connection.execute(
        mirror.update()
        .where(mirror.c.table_id == table_id, mirror.c.state.in_(states))
        .values(state=_OK, reason=None, failures=0, next_attempt_at_ms=0)
    )


def note(
    metastore: Metastore, connection: Connection, table: TableRecord, event: str, detail: str
) -> None:
    """Append to the audit trail."""
    now_ms = int(connection.execute(select(metastore.dialect.now_ms())).scalar_one())
    record_event(connection, at_ms=now_ms, event=event, table_id=table.table_id, detail=detail)


def require_state(table: TableRecord, *states: str) -> None:
    """Raise TableStateError for a table that is in other hands."""
    if table.state not in states:
        raise closed_error(table)


def _require_publishing(connection: Connection, head: TableRecord) -> None:
    query = select(dl_mirror_tables.c.state, dl_mirror_tables.c.reason).where(
        dl_mirror_tables.c.table_id == head.table_id
    )
    state, reason = connection.execute(query).one()
    if state == _OK:
        return
    remedy = f"`mirror-assets resume {head.name}`, then release it"
    if state in ("DIVERGED", "AHEAD"):
        remedy = (
            f"`mirror-assets diff {head.name}` shows it; first `adopt` what the log has, or "
            f"`fork` the table"
        )
    message = f"versions are not published, and the mirror is {state}: {reason}"
    raise TableStateError(message, table=head.name, version=head.mirrored_version, remedy=remedy)
