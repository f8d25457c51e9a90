"""How the mirror stands, from SQL alone: state, lag, what is pending, who follows.

Lag is by the database's clock, and 0 where nothing waits: a quiet table is not late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, RowMapping, Select, and_, case, func, select

from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.events import record_event
from mirror_assets.metastore.heads import PUBLISHED_STATES, TableState, why_closed
from mirror_assets.metastore.log_reader import find_table
from mirror_assets.metastore.tables import (
    dl_mirror_status,
    dl_mirror_tables,
    dl_table_versions,
    dl_tables,
)

OK: Final = "OK"
PAUSED: Final = "PAUSED"
#: newest published versions of a table over which percentiles are taken
_SAMPLE: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorState:
    """One table: how far its log is, and why not further."""

    table: str
    head_version: int
    mirrored_version: int
    checkpoint_version: int
    #: OK, FAILED (tried again by itself), or the named state in which the mirror stopped
    state: str
    reason: str | None
    lag_ms: int
    last_error: str | None
    #: of the oldest unmirrored version
    attempts: int
    next_attempt_in_ms: int
    #: commit to visible file, over the newest published versions
    publish_p50_ms: int | None = None
    publish_p95_ms: int | None = None

    @property
    def lag_versions(self) -> int:
        """Commits in SQL that are not in the log."""
        return self.head_version - self.mirrored_version

    @property
    def is_stopped(self) -> bool:
        """Whether it waits for a person."""
        return self.state not in (OK, "FAILED", TableState.RELEASED)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionState:
    """One artifact of one version."""

    version: int
    artifact: str
    status: str
    reason_code: str | None
    attempts: int
    next_attempt_at_ms: int | None
    sha256: str | None
    resolved_by: str | None
    published_at_ms: int | None
    lag_ms: int | None
    last_error: str | None


def read_mirror_states(
    metastore: Metastore, names: Sequence[str] | None = None, *, percentiles: bool = True
) -> list[MirrorState]:
    """The tables by name; TableNotFoundError for a name that is not registered."""
    with metastore.read() as connection:
        for name in names or ():
            find_table(connection, name)
        now_ms = _now_ms(metastore, connection)
        rows = connection.execute(_states(names)).mappings().all()
        ranked = connection.execute(_percentiles(names)) if percentiles else ()
        of_table = {row.table_id: (row.p50, row.p95) for row in ranked}
    return [_state(row, now_ms, of_table.get(row["table_id"])) for row in rows]


def read_version_states(metastore: Metastore, name: str, *, limit: int) -> list[VersionState]:
    """What the mirror knows of each version, the newest first."""
    status = dl_mirror_status
    with metastore.read() as connection:
        table = find_table(connection, name)
        query = (
            select(status)
            .where(status.c.table_id == table.table_id)
            .order_by(status.c.version.desc(), status.c.artifact)
            .limit(limit)
        )
        rows = connection.execute(query).mappings().all()
    return [VersionState(**{k: v for k, v in row.items() if k != "table_id"}) for row in rows]


def pause(metastore: Metastore, name: str | None, reason: str) -> dict[str, str]:
    """Let nobody publish the table, or any; the states after it. One that stopped stays so."""
    return _move(metastore, name, only=OK, to=PAUSED, reason=reason)


def resume(metastore: Metastore, name: str | None) -> dict[str, str]:
    """Publish again, and at once: a paused table, or one that stopped; for all, paused ones.

    What stopped a table is looked at anew; if it is still there, the table stops again.
    """
    return _move(metastore, name, only=None if name else PAUSED, to=OK, reason=None)


def _move(
    metastore: Metastore, name: str | None, *, only: str | None, to: str, reason: str | None
) -> dict[str, str]:
    mirror = dl_mirror_tables
    with metastore.write() as connection:
        now_ms = _now_ms(metastore, connection)
        where = [] if only is None else [mirror.c.state == only]
        if name is not None:
            where.append(mirror.c.table_id == find_table(connection, name).table_id)
        values: dict[str, Any] = {"state": to, "reason": reason}
        values |= {"failures": 0, "next_attempt_at_ms": 0}
        update = mirror.update().where(mirror.c.state != to, *where).values(values)
        for table_id in connection.execute(update.returning(mirror.c.table_id)).scalars().all():
            event = "paused" if to == PAUSED else "resumed"
            record_event(connection, at_ms=now_ms, event=event, table_id=table_id, detail=reason)
        states = select(dl_tables.c.name, mirror.c.state).join(
            dl_tables, dl_tables.c.table_id == mirror.c.table_id
        )
        if name is not None:
            states = states.where(dl_tables.c.name == name)
        found = connection.execute(states.order_by(dl_tables.c.name)).all()
        return {row.name: row.state for row in found}


def _now_ms(metastore: Metastore, connection: Connection) -> int:
    return int(connection.execute(select(metastore.dialect.now_ms())).scalar_one())


def _states(names: Sequence[str] | None) -> Select[Any]:
    """Each table with its oldest unmirrored version."""
    table, mirror, version = dl_tables, dl_mirror_tables, dl_table_versions
    status = dl_mirror_status
    oldest = and_(
        version.c.table_id == table.c.table_id,
        version.c.version == table.c.mirrored_version + 1,
    )
    of_commit = and_(
        status.c.table_id == version.c.table_id,
        status.c.version == version.c.version,
        status.c.artifact == "commit",
    )
    own = ("table_id", "name", "head_version", "mirrored_version")
    query = (
        select(
            *(table.c[name] for name in own),
            table.c.state.label("table_state"),
            *(mirror.c[name] for name in ("state", "reason", "checkpoint_version")),
            mirror.c.next_attempt_at_ms,
            version.c.committed_at_ms,
            *(status.c[name] for name in ("status", "reason_code", "last_error", "attempts")),
        )
        .join(mirror, mirror.c.table_id == table.c.table_id)
        .join(version, oldest, isouter=True)
        .join(status, of_commit, isouter=True)
        .order_by(table.c.name)
    )
    return query if names is None else query.where(table.c.name.in_(names))


def _state(row: RowMapping, now_ms: int, percentiles: tuple[int, int] | None) -> MirrorState:
    state, reason = row["state"], row["reason"]
    waits = row["head_version"] > row["mirrored_version"]
    if row["table_state"] not in PUBLISHED_STATES:
        state, (reason, _) = row["table_state"], why_closed(row["table_state"])
    elif state == OK and row["status"] == "FAILED":
        state, reason = "FAILED", row["reason_code"]
    p50, p95 = percentiles or (None, None)
    return MirrorState(
        table=row["name"],
        head_version=row["head_version"],
        mirrored_version=row["mirrored_version"],
        checkpoint_version=row["checkpoint_version"],
        state=state,
        reason=reason,
        lag_ms=max(0, now_ms - (row["committed_at_ms"] or now_ms)) if waits else 0,
        last_error=row["last_error"],
        attempts=row["attempts"] or 0,
        next_attempt_in_ms=max(0, row["next_attempt_at_ms"] - now_ms),
        publish_p50_ms=p50,
        publish_p95_ms=p95,
    )


def _percentiles(names: Sequence[str] | None) -> Select[Any]:
    """By rank over the newest versions of each table, which every engine can count."""
    status, table = dl_mirror_status, dl_tables
    recent = (
        select(
            status.c.table_id,
            status.c.lag_ms,
            func.row_number()
            .over(partition_by=status.c.table_id, order_by=status.c.lag_ms)
            .label("rank"),
            func.count().over(partition_by=status.c.table_id).label("number"),
        )
        .join(table, table.c.table_id == status.c.table_id)
        .where(
            status.c.version > table.c.mirrored_version - _SAMPLE,
            status.c.version <= table.c.mirrored_version,
            status.c.artifact == "commit",
            status.c.lag_ms.is_not(None),
        )
    )
    if names is not None:
        recent = recent.where(table.c.name.in_(names))
    ranked = recent.subquery("ranked")

    def at(percent: int) -> Any:
        is_reached = ranked.c.rank * 100 >= ranked.c.number * percent
        return func.min(case((is_reached, ranked.c.lag_ms)))

    return select(ranked.c.table_id, at(50).label("p50"), at(95).label("p95")).group_by(
        ranked.c.table_id
    )
