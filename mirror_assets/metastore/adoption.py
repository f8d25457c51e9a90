"""Commits that others wrote into a log of ours become rows, byte for byte.

    read and judge all of them -> close the table -> write -> compare digests -> open it again

They are decoded and judged as an import does. An adoption that was interrupted leaves the table
ADOPTING: nobody commits to it, and adopting again goes on behind the last complete version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import Connection, and_, select

from mirror_assets.delta.log_paths import CommitName, LogEntry
from mirror_assets.errors import CommitIntegrityError, TableStateError
from mirror_assets.findings import Finding
from mirror_assets.metastore.commit_reader import stream_commit
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.handover import move, note, resume_from, take_lease
from mirror_assets.metastore.heads import TableState
from mirror_assets.metastore.import_decoder import Decoder
from mirror_assets.metastore.import_findings import FindingLog
from mirror_assets.metastore.import_parts import BadFileError, CommitFacts, Part
from mirror_assets.metastore.import_rules import LogRules
from mirror_assets.metastore.import_source import LogSource, read_ahead
from mirror_assets.metastore.import_store import ImportStore, take_back_unfinished, write_record
from mirror_assets.metastore.log_facts import LogFacts
from mirror_assets.metastore.log_reader import TableRecord, find_table
from mirror_assets.metastore.postgres import PostgresDialect
from mirror_assets.metastore.tables import (
    dl_add_files,
    dl_mirror_status,
    dl_remove_files,
    dl_tables,
)

#: states of a mirror that an adoption gives an answer to
_ANSWERED: Final = ("AHEAD", "DIVERGED")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignCommit:
    """What a commit of others says."""

    version: int
    operation: str | None
    engine: str | None
    num_actions: int
    num_adds: int
    num_removes: int
    changes_metadata: bool
    changes_protocol: bool
    byte_length: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """The commits beyond SQL's head, and what is odd about them."""

    commits: tuple[ForeignCommit, ...]
    findings: tuple[Finding, ...]


def read_foreign(
    metastore: Metastore, source: LogSource, facts: LogFacts, entries: Sequence[LogEntry]
) -> Foreign:
    """Decode and judge commits that follow the head; nothing is written.

    Raises ImportRefusedError if they cannot be understood, or readers would refuse them.
    """
    findings = FindingLog(facts.table.name)
    rules = LogRules(findings)
    rules.protocol, rules.metadata = facts.protocol, facts.metadata
    commits: list[ForeignCommit] = []

    def judge(found: CommitFacts) -> None:
        rules.see_commit(found, is_floor=False)
        commits.append(_described(found))

    try:
        _decode(metastore, source, facts.table, entries, take=lambda _: None, finish=judge)
    except BadFileError as exc:
        findings.add(exc.finding)
    if commits:
        rules.judge_head(commits[-1].version)
    findings.refuse()
    return Foreign(commits=tuple(commits), findings=tuple(findings.all()))


def write_foreign(
    metastore: Metastore,
    source: LogSource,
    facts: LogFacts,
    entries: Sequence[LogEntry],
    foreign: Foreign,
) -> None:
    """Make them versions of the table; those before them are published, as was seen.

    Raises TableStateError if table or log are not what they were, and CommitIntegrityError if
    the rows do not give the bytes back.
    """
    record = _close(metastore, facts)
    store = ImportStore(metastore, record, is_published=True, adopts=True)
    expected = {commit.version: commit.sha256 for commit in foreign.commits}

    def take(part: Part) -> None:
        store.take(part, part.all_files())

    def finish(found: CommitFacts) -> None:
        if found.sha256 != expected[found.version]:
            message = f"{found.file} changes while it is adopted"
            remedy = "find out who writes there, then adopt again"
            raise TableStateError(message, table=record.name, version=found.version, remedy=remedy)
        store.finish(found)

    with metastore.kept_open():
        _decode(metastore, source, record, entries, take=take, finish=finish)
        store.close()
        _compare(metastore, record, expected)
        _open(metastore, record, len(expected))


def reopen(metastore: Metastore, facts: LogFacts) -> None:
    """Let a table take commits again whose log has nothing beyond SQL.

    Raises TableStateError if the table is not what it was.
    """
    with metastore.write() as connection:
        table = _take(metastore, connection, facts.table)
        move(connection, table.table_id, TableState.ACTIVE)
        resume_from(connection, table.table_id, _ANSWERED)
        note(metastore, connection, table, "adopted", f"as it was, at {table.head_version}")


def _decode(
    metastore: Metastore,
    source: LogSource,
    record: TableRecord,
    entries: Sequence[LogEntry],
    *,
    take: Callable[[Part], None],
    finish: Callable[[CommitFacts], None],
) -> None:
    copies_text = isinstance(metastore.dialect, PostgresDialect)
    decoder = Decoder(source, record.table_id, copies_text=copies_text)
    for entry, data in read_ahead(source, entries):
        assert isinstance(entry.path, CommitName)  # noqa: S101 - the listing sorts by kind
        finish(decoder.commit(entry, entry.path.version, data, take, is_history=False))


def _described(found: CommitFacts) -> ForeignCommit:
    def text(key: str) -> str | None:
        value = found.info and found.info.get(key)
        return value if isinstance(value, str) else None

    return ForeignCommit(
        version=found.version,
        operation=text("operation"),
        engine=text("engineInfo") or text("clientVersion"),
        num_actions=found.num_actions,
        num_adds=found.counts.get(dl_add_files.name, 0),
        num_removes=found.counts.get(dl_remove_files.name, 0),
        changes_metadata=bool(found.metadata),
        changes_protocol=bool(found.protocols),
        byte_length=found.byte_length,
        sha256=found.sha256,
    )


def _close(metastore: Metastore, facts: LogFacts) -> TableRecord:
    """Nobody commits or publishes from now on; what lies in the log up to the head is published."""
    status = dl_mirror_status
    with metastore.write() as connection:
        table = _take(metastore, connection, facts.table)
        unrecorded = and_(
            status.c.table_id == table.table_id,
            status.c.version > table.mirrored_version,
            status.c.version <= table.head_version,
            status.c.artifact == "commit",
        )
        values = {"status": "SUCCESS", "resolved_by": "readback", "published_at_ms": facts.now_ms}
        values |= {"reason_code": None, "last_error": None}
        connection.execute(status.update().where(unrecorded).values(values))
        closed = replace(table, state=TableState.ADOPTING, mirrored_version=table.head_version)
        write_record(connection, closed)
    return closed


def _take(metastore: Metastore, connection: Connection, seen: TableRecord) -> TableRecord:
    """Lock the table as it was seen; what an interrupted adoption left above its head goes."""
    take_lease(connection, seen.table_id)
    mine = select(dl_tables.c.table_id).where(dl_tables.c.table_id == seen.table_id)
    connection.execute(metastore.dialect.lock(mine))
    table = find_table(connection, seen.name)
    if replace(table, mirrored_version=seen.mirrored_version) != seen:
        message = f"the table was at version {seen.head_version}, and somebody commits to it"
        raise TableStateError(message, table=seen.name, remedy="stop its writers, then try again")
    if table.state == TableState.ADOPTING:
        take_back_unfinished(connection, table)
    return table


def _compare(metastore: Metastore, record: TableRecord, expected: dict[int, str]) -> None:
    with metastore.read() as connection:
        for version, sha256 in expected.items():
            found = hashlib.sha256()
            for piece in stream_commit(connection, record.table_id, version):
                found.update(piece)
            if found.hexdigest() != sha256:
                message = "the adopted rows do not give the bytes of the commit file"
                raise CommitIntegrityError(message, table=record.name, version=version)


def _open(metastore: Metastore, record: TableRecord, adopted: int) -> None:
    with metastore.write() as connection:
        take_lease(connection, record.table_id)
        move(connection, record.table_id, TableState.ACTIVE)
        resume_from(connection, record.table_id, _ANSWERED)
        table = find_table(connection, record.name)
        detail = f"{adopted} versions of the log, up to {table.head_version}"
        note(metastore, connection, table, "adopted", detail)
