"""Checkpoints in SQL: which tables may need one, who builds it, and what came of it.

One builder per table at a time: the row of the attempt in `dl_mirror_status` names the time before
which nobody else begins, be it the end of a lease, of a wait after a failure, or of a rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from sqlalchemy import Connection, RowMapping, Select, and_, func, select

from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.events import record_event
from mirror_assets.metastore.heads import PUBLISHED_STATES
from mirror_assets.metastore.tables import (
    dl_metadata_updates,
    dl_mirror_status,
    dl_mirror_tables,
    dl_table_versions,
    dl_tables,
)

_ARTIFACT: Final = "checkpoint"
_INTERVAL: Final = "delta.checkpointInterval"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCandidate:
    """A table with published commits since its newest checkpoint."""

    table_id: int
    name: str
    location: str
    mirrored_version: int
    checkpoint_version: int
    num_files: int
    commits_since: int
    #: whether the log has neither its first commits nor a checkpoint that stands for them
    lacks_beginning: bool
    #: whether the log has the commit file of the mirrored version
    has_commit_file: bool
    #: `delta.checkpointInterval`, where the table sets it
    interval: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """What was committed and published since the newest checkpoint."""

    json_bytes: int
    oldest_age_ms: int
    #: nobody begins before this, by the database's clock
    wait_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltCheckpoint:
    """What is recorded of a checkpoint that is in the log and verified."""

    version: int
    is_new: bool
    actions: int
    size_bytes: int
    seconds: float
    #: no other before it has rested so long
    rest_ms: int


class CheckpointQueue:
    """Candidates, claims, and the record of what was built."""

    def __init__(self, metastore: Metastore) -> None:
        self._metastore = metastore

    def now_ms(self) -> int:
        """The database's time."""
        with self._metastore.read() as connection:
            return self._now_ms(connection)

    def candidates(self, tables: Sequence[str] | None = None) -> list[CheckpointCandidate]:
        """All tables that have published something since their newest checkpoint."""
        with self._metastore.read() as connection:
            rows = connection.execute(_candidates(tables)).mappings().all()
        return [
            CheckpointCandidate(
                table_id=row["table_id"],
                name=row["name"],
                location=row["location"],
                mirrored_version=row["mirrored_version"],
                checkpoint_version=row["checkpoint_version"],
                num_files=row["num_files"],
                commits_since=row["mirrored_version"]
                - max(row["checkpoint_version"], row["first_version"] - 1),
                lacks_beginning=_lacks_beginning(row),
                has_commit_file=row["mirrored_version"] >= row["first_version"],
                interval=_interval(row["configuration"]),
            )
            for row in rows
        ]

    def since(self, candidate: CheckpointCandidate) -> Since:
        """The weight of the commits since the newest checkpoint, by a range of the key."""
        version = dl_table_versions
        query = select(
            func.coalesce(func.sum(version.c.byte_length), 0),
            func.min(version.c.committed_at_ms),
        ).where(
            version.c.table_id == candidate.table_id,
            version.c.version > candidate.checkpoint_version,
            version.c.version <= candidate.mirrored_version,
        )
        with self._metastore.read() as connection:
            now_ms = self._now_ms(connection)
            json_bytes, oldest_ms = connection.execute(query).one()
            not_before_ms = _not_before_ms(connection, candidate)
        return Since(
            json_bytes=int(json_bytes),
            oldest_age_ms=max(0, now_ms - (oldest_ms or now_ms)),
            wait_ms=max(0, not_before_ms - now_ms),
        )

    def claim(self, candidate: CheckpointCandidate, owner: str, *, lease_ms: int) -> bool:
        """Whether the caller is the one who builds it; another may be at it already."""
        with self._metastore.write() as connection:
            mirror = dl_mirror_tables
            of_table = select(mirror.c.table_id).where(mirror.c.table_id == candidate.table_id)
            connection.execute(self._metastore.dialect.lock(of_table))
            now_ms = self._now_ms(connection)
            if _not_before_ms(connection, candidate) > now_ms:
                return False
            values = {
                "status": "PENDING",
                "resolved_by": owner,
                "next_attempt_at_ms": now_ms + lease_ms,
            }
            _upsert(connection, candidate.table_id, candidate.mirrored_version, values)
        return True

    def renew(self, candidate: CheckpointCandidate, owner: str, *, lease_ms: int) -> None:
        """Prolong the lease of a build that still goes on."""
        status = dl_mirror_status
        with self._metastore.write() as connection:
            now_ms = self._now_ms(connection)
            is_ours = _row(candidate.table_id, candidate.mirrored_version)
            update = status.update().where(
                is_ours, status.c.status == "PENDING", status.c.resolved_by == owner
            )
            connection.execute(update.values(next_attempt_at_ms=now_ms + lease_ms))

    def record_built(self, table_id: int, built: BuiltCheckpoint) -> None:
        """Write that the checkpoint is there; the table's newest never goes back."""
        mirror = dl_mirror_tables
        with self._metastore.write() as connection:
            now_ms = self._now_ms(connection)
            values = {
                "status": "SUCCESS",
                "reason_code": None,
                "resolved_by": "put" if built.is_new else "readback",
                "published_at_ms": now_ms,
                "lag_ms": _lag_ms(connection, table_id, built.version, now_ms),
                "next_attempt_at_ms": now_ms + built.rest_ms,
                "last_error": None,
            }
            _upsert(connection, table_id, built.version, values)
            connection.execute(
                mirror.update()
                .where(mirror.c.table_id == table_id, mirror.c.checkpoint_version < built.version)
                .values(checkpoint_version=built.version, checkpointed_at_ms=now_ms)
            )
            facts = {"actions": built.actions, "bytes": built.size_bytes, "seconds": built.seconds}
            record_event(
                connection,
                at_ms=now_ms,
                event="checkpoint_published",
                table_id=table_id,
                version=built.version,
                detail=orjson.dumps(facts).decode(),
            )

    def record_failed(
        self, candidate: CheckpointCandidate, *, reason_code: str, message: str, retry_in_ms: int
    ) -> None:
        """Write why there is none, and when it is tried again."""
        with self._metastore.write() as connection:
            values = {
                "status": "FAILED",
                "reason_code": reason_code,
                "resolved_by": None,
                "attempts": dl_mirror_status.c.attempts + 1,
                "next_attempt_at_ms": self._now_ms(connection) + retry_in_ms,
                "last_error": message,
            }
            _upsert(connection, candidate.table_id, candidate.mirrored_version, values)

    def failures(self, candidate: CheckpointCandidate) -> int:
        """How often the newest attempts failed in a row."""
        status = dl_mirror_status
        query = select(func.coalesce(func.sum(status.c.attempts), 0)).where(_attempts(candidate))
        with self._metastore.read() as connection:
            return int(connection.execute(query).scalar_one())

    def _now_ms(self, connection: Connection) -> int:
        return int(connection.execute(select(self._metastore.dialect.now_ms())).scalar_one())


def _candidates(tables: Sequence[str] | None) -> Select[Any]:
    table, mirror, metadata = dl_tables, dl_mirror_tables, dl_metadata_updates
    own = (
        *("table_id", "name", "location", "data_location"),
        *("mirrored_version", "num_files", "first_version"),
    )
    query = (
        select(
            *(table.c[name] for name in own),
            mirror.c.checkpoint_version,
            metadata.c.configuration,
        )
        .join(mirror, mirror.c.table_id == table.c.table_id)
        .join(
            metadata,
            and_(
                metadata.c.table_id == table.c.table_id,
                metadata.c.version == table.c.metadata_version,
            ),
        )
        .where(
            table.c.mirrored_version > mirror.c.checkpoint_version,
            table.c.mirrored_version > 0,
            table.c.mirrored_version >= table.c.floor_version,
            table.c.state.in_(PUBLISHED_STATES),
            mirror.c.state == "OK",
        )
        .order_by(table.c.table_id)
    )
    return query if tables is None else query.where(table.c.name.in_(tables))


def _lacks_beginning(row: RowMapping) -> bool:
    """Where a log was imported its own checkpoint stands; a log at another place has none yet."""
    is_moved = row["data_location"] is not None
    return is_moved and row["first_version"] > 0 and row["checkpoint_version"] < 0


def _interval(configuration: str) -> int | None:
    text = orjson.loads(configuration).get(_INTERVAL, "")
    return max(1, int(text)) if isinstance(text, str) and text.strip().isdecimal() else None


def _attempts(candidate: CheckpointCandidate) -> Any:
    status = dl_mirror_status
    return and_(
        status.c.table_id == candidate.table_id,
        status.c.version >= candidate.checkpoint_version,
        status.c.version <= candidate.mirrored_version,
        status.c.artifact == _ARTIFACT,
    )


def _not_before_ms(connection: Connection, candidate: CheckpointCandidate) -> int:
    latest = select(func.max(dl_mirror_status.c.next_attempt_at_ms)).where(_attempts(candidate))
    return int(connection.execute(latest).scalar() or 0)


def _lag_ms(connection: Connection, table_id: int, version: int, now_ms: int) -> int | None:
    versions = dl_table_versions
    query = select(versions.c.committed_at_ms).where(
        versions.c.table_id == table_id, versions.c.version == version
    )
    committed_at_ms = connection.execute(query).scalar()
    return None if committed_at_ms is None else max(0, now_ms - committed_at_ms)


def _row(table_id: int, version: int) -> Any:
    status = dl_mirror_status
    return and_(
        status.c.table_id == table_id,
        status.c.version == version,
        status.c.artifact == _ARTIFACT,
    )


def _upsert(connection: Connection, table_id: int, version: int, values: dict[str, Any]) -> None:
    status = dl_mirror_status
    found = status.update().where(_row(table_id, version)).values(values)
    if connection.execute(found.returning(status.c.version)).first() is None:
        key = {"table_id": table_id, "version": version, "artifact": _ARTIFACT}
        attempts = {"attempts": 1 if values["status"] == "FAILED" else 0}
        connection.execute(status.insert(), {**key, **values, **attempts})
