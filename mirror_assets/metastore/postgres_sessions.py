"""PostgreSQL sessions that do not hang: limits on waiting, and no dead connection from the pool.

A server that goes away, restarts or fails over leaves dead connections in the pool. Most of them
show it: bytes that nobody asked for wait in their socket, which costs no round trip to see. Such a
connection, and one that was idle for long, is asked before it is used, and replaced if it does not
answer, so that reads pass as well as commits.
"""

from __future__ import annotations

import select
import time
from typing import Any, Final

import psycopg
from sqlalchemy import Engine, event
from sqlalchemy.exc import DisconnectionError

#: what libpq gets unless the URL says otherwise: a peer that vanished is noticed within a minute
CONNECT_ARGS: Final[dict[str, str]] = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
#: for sessions whose role, database or URL sets none: nobody waits for a lock forever, and a
#: writer that hangs does not keep a table's head
_LIMITS: Final = """
select set_config(name, value, false)
from (values ('lock_timeout', '60s'), ('idle_in_transaction_session_timeout', '5min'))
  as limits (name, value)
where current_setting(name) = '0'
"""
_IDLE_SECONDS: Final = 60.0
_RETURNED: Final = "returned to the pool"


def watch(engine: Engine) -> None:
    """Limit every new session, and look at every connection that the pool gives out."""

    @event.listens_for(engine, "connect")
    def limit(connection: psycopg.Connection[Any], _record: object) -> None:
        connection.prepare_threshold = None  # or it deallocates what the pipeline prepared
        connection.autocommit = True
        connection.execute(_LIMITS)
        connection.autocommit = False

    @event.listens_for(engine, "checkin")
    def note_time(_connection: object, record: Any) -> None:
        record.info[_RETURNED] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def refuse_dead(connection: Any, record: Any, _proxy: object) -> None:
        returned = record.info.get(_RETURNED)
        if returned is None or _looks_alive(connection, time.monotonic() - returned):
            return
        try:
            engine.dialect.do_ping(connection)
        except psycopg.Error as exc:
            raise DisconnectionError from exc


def _looks_alive(connection: psycopg.Connection[Any], idle_seconds: float) -> bool:
    if connection.closed or idle_seconds > _IDLE_SECONDS:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)
