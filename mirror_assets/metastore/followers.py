"""Who follows: heartbeats of long-lived mirrors, as rows of `dl_settings` in a scope of their own.

No table can have the scope's name. A heartbeat that stopped tells that its process died; leases,
not heartbeats, decide who publishes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import delete, select

from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.tables import dl_settings

_SCOPE: Final = "@follower"
#: heartbeats of the dead are kept so long, for a person to see
_FORGOTTEN_AFTER_MS: Final = 24 * 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """One follower, when it was last heard of, and what it said."""

    owner: str
    age_ms: int
    beats: int
    detail: str


def beat(metastore: Metastore, owner: str, detail: str) -> None:
    """Say that the follower lives."""
    with metastore.write() as connection:
        now_ms = int(connection.execute(select(metastore.dialect.now_ms())).scalar_one())
        is_ours = (dl_settings.c.scope == _SCOPE, dl_settings.c.key == owner)
        values = {"value": detail, "updated_at_ms": now_ms}
        update = dl_settings.update().where(*is_ours)
        update = update.values(**values, revision=dl_settings.c.revision + 1)
        if connection.execute(update.returning(dl_settings.c.key)).first() is not None:
            return
        row = {"scope": _SCOPE, "key": owner, "revision": 1, **values}
        connection.execute(dl_settings.insert(), row)
        connection.execute(
            delete(dl_settings).where(
                dl_settings.c.scope == _SCOPE,
                dl_settings.c.updated_at_ms < now_ms - _FORGOTTEN_AFTER_MS,
            )
        )


def leave(metastore: Metastore, owner: str) -> None:
    """Say that the follower ended in order."""
    is_ours = (dl_settings.c.scope == _SCOPE, dl_settings.c.key == owner)
    with metastore.write() as connection:
        connection.execute(delete(dl_settings).where(*is_ours))


def read_followers(metastore: Metastore) -> list[Heartbeat]:
    """The followers that did not end in order, the most recently heard of first."""
    with metastore.read() as connection:
        now_ms = int(connection.execute(select(metastore.dialect.now_ms())).scalar_one())
        query = select(dl_settings).where(dl_settings.c.scope == _SCOPE)
        rows = connection.execute(query.order_by(dl_settings.c.updated_at_ms.desc())).mappings()
        return [
            Heartbeat(
                owner=row["key"],
                age_ms=max(0, now_ms - row["updated_at_ms"]),
                beats=row["revision"],
                detail=row["value"],
            )
            for row in rows
        ]
