"""What is known of each store, as rows of `dl_settings` in a scope of their own.

A store that accepts a create over an existing file lets two writers win. One worker finds that
out, all must know it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import orjson
from sqlalchemy import select

from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.tables import dl_settings

_SCOPE: Final = "@store"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFacts:
    """Whether a store keeps the promise that publishing rests on, and who found out."""

    store: str
    #: the address behind which it was; another address is another store
    endpoint: str | None
    safe: bool
    #: `verify-store`, which races the store, or `mirror`, which only tries to overwrite
    found_by: str
    reason: str = ""
    checked_at_ms: int = 0


def read_store_facts(metastore: Metastore) -> dict[str, StoreFacts]:
    """What is known, by store."""
    query = select(dl_settings).where(dl_settings.c.scope == _SCOPE).order_by(dl_settings.c.key)
    with metastore.read() as connection:
        rows = connection.execute(query).mappings().all()
    return {
        row["key"]: StoreFacts(
            store=row["key"], checked_at_ms=row["updated_at_ms"], **orjson.loads(row["value"])
        )
        for row in rows
    }


def remember_store(metastore: Metastore, facts: StoreFacts) -> None:
    """Write down what was found; the newest finding counts."""
    value = {
        "endpoint": facts.endpoint,
        "safe": facts.safe,
        "found_by": facts.found_by,
        "reason": facts.reason,
    }
    is_it = (dl_settings.c.scope == _SCOPE, dl_settings.c.key == facts.store)
    with metastore.write() as connection:
        now_ms = int(connection.execute(select(metastore.dialect.now_ms())).scalar_one())
        values = {"value": orjson.dumps(value).decode(), "updated_at_ms": now_ms}
        update = dl_settings.update().where(*is_it)
        update = update.values(**values, revision=dl_settings.c.revision + 1)
        if connection.execute(update.returning(dl_settings.c.key)).first() is None:
            row = {"scope": _SCOPE, "key": facts.store, "revision": 1, **values}
            connection.execute(dl_settings.insert(), row)
