"""What SQL knows of a log's files, for whoever compares, repairs or cleans the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, select

from mirror_assets.delta.actions import MetaData, TableProtocol
from mirror_assets.errors import TableStateError
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.events import record_event
from mirror_assets.metastore.log_reader import (
    TableRecord,
    find_table,
    metadata_at,
    protocol_at,
)
from mirror_assets.metastore.tables import (
    dl_mirror_status,
    dl_mirror_tables,
    dl_table_versions,
)

#: what a database keeps of one event
_DETAIL: Final = 4_000
#: versions named in one statement
_VERSIONS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFact:
    """A commit file as it must be."""

    version: int
    sha256: str
    byte_length: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """One table: its commits by version, and how its mirror stands."""

    table: TableRecord
    #: ascending; only versions whose commit file SQL can give back
    commits: dict[int, CommitFact]
    #: OK, or the named state in which the mirror stopped
    mirror_state: str
    #: published versions whose status says something else than SUCCESS
    unsettled: tuple[int, ...]
    protocol: TableProtocol
    metadata: MetaData
    #: by the database's clock
    now_ms: int


def read_facts(metastore: Metastore, name: str) -> LogFacts:
    """Everything at once, so that it fits together.

    Raises TableNotFoundError, and TableStateError before an import has reached any state.
    """
    with metastore.read() as connection:
        table = find_table(connection, name)
        if table.head_version < table.floor_version:
            remedy = "let its import finish, or repeat it"
            raise TableStateError("the table has no state yet", table=name, remedy=remedy)
        commits = _commits(connection, table, table.first_version, table.head_version)
        state = select(dl_mirror_tables.c.state).where(
            dl_mirror_tables.c.table_id == table.table_id
        )
        unsettled = select(dl_mirror_status.c.version).where(_unsettled(table))
        return LogFacts(
            table=table,
            commits={fact.version: fact for fact in commits},
            mirror_state=connection.execute(state).scalar() or "OK",
            unsettled=tuple(connection.execute(unsettled).scalars()),
            protocol=protocol_at(connection, table, table.head_version),
            metadata=metadata_at(connection, table, table.head_version),
            now_ms=int(connection.execute(select(metastore.dialect.now_ms())).scalar_one()),
        )


def read_commit_facts(metastore: Metastore, name: str, first: int, last: int) -> list[CommitFact]:
    """The commit files of a span of versions, ends included; TableNotFoundError."""
    with metastore.read() as connection:
        return _commits(connection, find_table(connection, name), first, last)


def settle(metastore: Metastore, facts: LogFacts, versions: Sequence[int]) -> None:
    """Mark published versions as what they were seen to be, and let the table be tried at once."""
    status, mirror = dl_mirror_status, dl_mirror_tables
    values = {"status": "SUCCESS", "reason_code": None, "resolved_by": "readback"}
    settled = sorted(set(facts.unsettled).intersection(versions))
    with metastore.write() as connection:
        for start in range(0, len(settled), _VERSIONS):
            some = status.c.version.in_(settled[start : start + _VERSIONS])
            connection.execute(
                status.update()
                .where(_unsettled(facts.table), some)
                .values({**values, "last_error": None, "published_at_ms": facts.now_ms})
            )
        connection.execute(
            mirror.update()
            .where(mirror.c.table_id == facts.table.table_id)
            .values(failures=0, next_attempt_at_ms=0)
        )


def note(
    metastore: Metastore, facts: LogFacts, event: str, detail: str, version: int | None = None
) -> None:
    """Append to the audit trail; before anything is replaced, `detail` says what was there."""
    with metastore.write() as connection:
        record_event(
            connection,
            at_ms=facts.now_ms,
            event=event,
            table_id=facts.table.table_id,
            version=version,
            detail=detail[:_DETAIL],
        )


def _commits(connection: Connection, table: TableRecord, first: int, last: int) -> list[CommitFact]:
    version = dl_table_versions
    columns = (version.c[n] for n in ("version", "sha256", "byte_length", "timestamp_ms"))
    query = (
        select(*columns)
        .where(
            version.c.table_id == table.table_id,
            version.c.version.between(max(first, table.first_version), last),
        )
        .order_by(version.c.version)
    )
    return [CommitFact(**row) for row in connection.execute(query).mappings()]


def _unsettled(table: TableRecord) -> ColumnElement[bool]:
    return and_(
        dl_mirror_status.c.table_id == table.table_id,
        dl_mirror_status.c.version <= table.mirrored_version,
        dl_mirror_status.c.artifact == "commit",
        dl_mirror_status.c.status != "SUCCESS",
    )
