"""Circuit breakers in SQL: workers are separate processes, and one store is one store for all."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select

from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.tables import dl_breakers


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerRow:
    """What is known of one store; times by the database's clock."""

    store: str
    state: str = "closed"
    failures: int = 0
    opened_at_ms: int | None = None
    updated_at_ms: int = 0


def read_breaker(metastore: Metastore, store: str) -> tuple[BreakerRow, int]:
    """The store's breaker, closed if there is none, and the database's time."""
    with metastore.read() as connection:
        now_ms = int(connection.execute(select(metastore.dialect.now_ms())).scalar_one())
        query = select(dl_breakers).where(dl_breakers.c.store == store)
        row = connection.execute(query).mappings().one_or_none()
    return (BreakerRow(store=store) if row is None else BreakerRow(**row)), now_ms


def read_breakers(metastore: Metastore) -> list[BreakerRow]:
    """All breakers that ever counted a failure."""
    with metastore.read() as connection:
        rows = connection.execute(select(dl_breakers).order_by(dl_breakers.c.store)).mappings()
        return [BreakerRow(**row) for row in rows]


def write_breaker(metastore: Metastore, row: BreakerRow) -> None:
    """Insert or replace a breaker's row."""
    values = {
        "state": row.state,
        "failures": row.failures,
        "opened_at_ms": row.opened_at_ms,
        "updated_at_ms": row.updated_at_ms,
    }
    with metastore.write() as connection:
        found = dl_breakers.update().where(dl_breakers.c.store == row.store).values(values)
        if connection.execute(found.returning(dl_breakers.c.store)).first() is None:
            connection.execute(dl_breakers.insert(), {"store": row.store, **values})
