"""Commits read back from SQL: the very bytes that were committed, or an error."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Final

import orjson
from sqlalchemy import Connection, RowMapping, Table, select

from mirror_assets.delta.actions import Action, CommitInfo
from mirror_assets.delta.commit_file import CommitFile, Line
from mirror_assets.errors import CommitIntegrityError
from mirror_assets.metastore import tables
from mirror_assets.metastore.dialect import Dialect
from mirror_assets.metastore.rows import ACTION_TABLES, from_row

_ROWS_PER_FETCH: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A commit read from SQL: its file, with the digest that was frozen when it was made."""

    version: int
    #: None for a commit too large to hold: it is read as a stream
    file: CommitFile | None
    sha256: str
    byte_length: int
    timestamp_ms: int
    committed_at_ms: int
    #: what the versions of several tables that were committed together share
    group_id: str | None = None

    @property
    def actions(self) -> list[Action]:
        """What it says."""
        return [] if self.file is None else self.file.actions

    def encode(self, table: str) -> bytes:
        """The bytes of the commit file, which have the frozen digest or are not given out."""
        data = b"" if self.file is None else self.file.encode()
        if hashlib.sha256(data).hexdigest() != self.sha256:
            message = "the commit's rows do not give the bytes that were committed"
            raise CommitIntegrityError(message, table=table, version=self.version)
        return data


def read_commits(connection: Connection, table_id: int, first: int, last: int) -> Iterator[Commit]:
    """The commits `first` to `last`, with one statement for each kind of action they hold."""
    versions = tables.dl_table_versions
    query = (
        select(versions)
        .where(versions.c.table_id == table_id, versions.c.version.between(first, last))
        .order_by(versions.c.version)
    )
    heads = connection.execute(query).mappings().all()
    lines: _Lines = defaultdict(dict)
    for table in _tables_of(heads):
        rows = select(table).where(
            table.c.table_id == table_id,
            table.c.version.between(first, last),
            table.c.ordinal >= 0,
        )
        _collect(connection.execute(rows).mappings(), table, lines)
    for head in heads:
        yield _commit(head, lines.pop((table_id, head["version"]), {}))


def read_pending_commits(
    dialect: Dialect,
    connection: Connection,
    mirrored: Mapping[int, int],
    *,
    versions: int,
    max_bytes: int,
) -> dict[int, list[Commit]]:
    """The commits after each table's mirrored version: at least one, then what fits.

    One statement for each kind of action, however many tables. A commit of more than `max_bytes`
    comes without its file.
    """
    heads = _pending_heads(dialect, connection, mirrored, versions)
    chosen = [
        head
        for _, of_table in groupby(heads, key=itemgetter("table_id"))
        for head in _that_fit(list(of_table), max_bytes)
    ]
    held = [head for head in chosen if head["byte_length"] <= max_bytes]
    lines: _Lines = defaultdict(dict)
    wanted = dialect.pairs([(head["table_id"], head["version"]) for head in held])
    for table in _tables_of(held):
        rows = select(table).join(
            wanted,
            (table.c.table_id == wanted.c.first) & (table.c.version == wanted.c.second),
        )
        _collect(connection.execute(rows.where(table.c.ordinal >= 0)).mappings(), table, lines)
    pending: dict[int, list[Commit]] = defaultdict(list)
    for head in chosen:
        is_held = head["byte_length"] <= max_bytes
        found = lines.pop((head["table_id"], head["version"]), {})
        pending[head["table_id"]].append(_commit(head, found, is_held=is_held))
    return pending


def stream_commit(connection: Connection, table_id: int, version: int) -> Iterator[bytes]:
    """The bytes of one commit file, line by line, however many there are."""
    versions = tables.dl_table_versions
    query = select(versions).where(versions.c.table_id == table_id, versions.c.version == version)
    head = connection.execute(query).mappings().one()
    if head["raw_file"] is not None:
        yield head["raw_file"]
        return
    streams = [_stream(connection, t, table_id, version) for t in _tables_of([head])]
    if head["commit_info"] is not None:
        streams.append(iter([(head["commit_info_ordinal"], _info_line(head))]))
    separator = b""
    for _, line in merge(*streams, key=itemgetter(0)):
        yield separator + line.encode()
        separator = b"\n"
    if head["final_newline"] and separator:
        yield b"\n"


_Lines = dict[tuple[int, int], dict[int, Line]]


def _pending_heads(
    dialect: Dialect, connection: Connection, mirrored: Mapping[int, int], versions: int
) -> Sequence[RowMapping]:
    table, registered = tables.dl_table_versions, tables.dl_tables
    query = (
        select(table)
        .join(registered, registered.c.table_id == table.c.table_id)
        .where(
            dialect.among(registered.c.table_id, list(mirrored)),
            table.c.version > registered.c.mirrored_version,
            table.c.version <= registered.c.mirrored_version + versions,
        )
        .order_by(table.c.table_id, table.c.version)
    )
    rows = connection.execute(query).mappings().all()
    return [row for row in rows if row["version"] > mirrored[row["table_id"]]]


def _that_fit(heads: list[RowMapping], max_bytes: int) -> Iterator[RowMapping]:
    total = 0
    for number, head in enumerate(heads):
        total += head["byte_length"]
        if number and total > max_bytes:
            return
        yield head


def _tables_of(heads: Sequence[RowMapping]) -> list[Table]:
    return [t for t, count in ACTION_TABLES.items() if any(head[count] for head in heads)]


def _collect(rows: Iterator[RowMapping], table: Table, lines: _Lines) -> None:
    for row in rows:
        found = lines[row["table_id"], row["version"]]
        found[row["ordinal"]] = Line(from_row(table, row), row["raw"])


def _stream(
    connection: Connection, table: Table, table_id: int, version: int
) -> Iterator[tuple[int, Line]]:
    query = (
        select(table)
        .where(table.c.table_id == table_id, table.c.version == version, table.c.ordinal >= 0)
        .order_by(table.c.ordinal)
    )
    rows = connection.execute(query, execution_options={"yield_per": _ROWS_PER_FETCH})
    for row in rows.mappings():
        yield row["ordinal"], Line(from_row(table, row), row["raw"])


def _info_line(head: RowMapping) -> Line:
    return Line(CommitInfo(orjson.loads(head["commit_info"])), head["commit_info_raw"])


def _commit(head: RowMapping, lines: dict[int, Line], *, is_held: bool = True) -> Commit:
    if head["commit_info"] is not None:
        lines[head["commit_info_ordinal"]] = _info_line(head)
    file = CommitFile(
        lines=[lines[ordinal] for ordinal in sorted(lines)],
        final_newline=head["final_newline"],
        raw=head["raw_file"],
    )
    return Commit(
        version=head["version"],
        file=file if is_held else None,
        sha256=head["sha256"],
        byte_length=head["byte_length"],
        timestamp_ms=head["timestamp_ms"],
        committed_at_ms=head["committed_at_ms"],
        group_id=head["group_id"],
    )
