"""The audit trail of the mirror: what needed a person, what people did, what was built."""

from __future__ import annotations

from uuid import uuid4

from sqlalchemy import Connection

from mirror_assets.metastore.tables import dl_mirror_events


def record_event(
    connection: Connection,
    *,
    at_ms: int,
    event: str,
    table_id: int | None = None,
    version: int | None = None,
    detail: str | None = None,
) -> None:
    """Append to the audit trail."""
    row = {
        "event_id": str(uuid4()),
        "at_ms": at_ms,
        "table_id": table_id,
        "version": version,
        "event": event,
        "detail": detail,
    }
    connection.execute(dl_mirror_events.insert(), row)
