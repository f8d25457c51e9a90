"""Writing an import: rows, ends and versions, a batch in one transaction.

The head moves with the versions that are complete. What lies above it is unfinished: it is taken
back before an import goes on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, Table, select

from mirror_assets.errors import TableStateError
from mirror_assets.metastore import tables
from mirror_assets.metastore.import_batch import AllKeys, FileBatch, Reference, SeenKeys
from mirror_assets.metastore.import_parts import join_key, split_key
from mirror_assets.metastore.import_versions import (
    SOURCE_ADOPT,
    SOURCE_IMPORT,
    ImportedVersion,
    timestamp_of,
)
from mirror_assets.metastore.plain_rows import COPY_NULL
from mirror_assets.metastore.postgres import PostgresDialect
from mirror_assets.metastore.rows import ACTION_TABLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_assets.metastore.columns import Row
    from mirror_assets.metastore.database import Metastore
    from mirror_assets.metastore.import_parts import CommitFacts, FileRefs, Part
    from mirror_assets.metastore.log_reader import TableRecord

#: a batch is written when it has this many rows, or versions
_BATCH_ROWS: Final = 10_000
_BATCH_VERSIONS: Final = 2_000
_END_COLUMNS: Final = {
    True: tables.dl_add_files.c.removed_version,
    False: tables.dl_remove_files.c.superseded_version,
}


class ImportStore:
    """The rows of one table that is being imported, from `record.head_version` on.

    With `adopts`, of a table that others have committed to before.
    """

    def __init__(
        self,
        metastore: Metastore,
        record: TableRecord,
        *,
        is_published: bool,
        adopts: bool = False,
    ) -> None:
        self.record = record
        self._metastore = metastore
        self._is_published = is_published
        self._source = SOURCE_ADOPT if adopts else SOURCE_IMPORT
        self._seen = AllKeys() if adopts else SeenKeys()
        self._parts: list[Part] = []
        self._files = FileBatch()
        self._finished: list[ImportedVersion] = []
        self._num_rows = 0
        #: a version of which an earlier batch has written a part
        self._unfinished: int | None = None
        #: changes of the totals by versions that are not finished yet
        self._changes: dict[int, tuple[int, int]] = {}
        self._removes: dict[int, int] = {}
        self._timestamp_ms = record.head_timestamp_ms if record.head_version >= 0 else None

    def remember(self, files: Sequence[FileRefs]) -> None:
        """Note files of versions that an earlier run has imported."""
        for refs in files:
            self._seen.meet(dict.fromkeys(refs.keys, 0))

    def take(self, part: Part, files: Sequence[FileRefs]) -> None:
        """Add rows to the batch; write it when it is full."""
        self._parts.append(part)
        self._num_rows += part.num_rows
        for refs in files:
            self._files.add(part.version, refs)
            if not refs.is_add:
                removes = self._removes.get(part.version, 0)
                self._removes[part.version] = removes + len(refs.keys)
        if self._num_rows >= _BATCH_ROWS:
            self.flush()

    def finish(self, facts: CommitFacts) -> None:
        """All rows of the version were taken."""
        self._timestamp_ms = timestamp_of(facts, self._timestamp_ms)
        self._finished.append(
            ImportedVersion(facts=facts, timestamp_ms=self._timestamp_ms, source=self._source)
        )
        if len(self._finished) >= _BATCH_VERSIONS:
            self.flush()

    def flush(self) -> None:
        """Write the batch in one transaction."""
        if not self._parts and not self._finished:
            return
        with self._metastore.write() as connection:
            self._require_head(connection)
            self._end_older(connection)
            self._insert(connection)
            self._mark(connection)
            record = self._finish_versions(connection)
        self.record = record
        newest = self._parts[-1].version if self._parts else record.head_version
        self._unfinished = newest if newest > record.head_version else self._unfinished
        self._parts, self._files, self._finished = [], FileBatch(), []
        self._num_rows = 0

    def close(self) -> None:
        """Write the rest; nothing comes after it."""
        self.flush()
        self._seen = SeenKeys()  # gives back the memory of the old one

    def _require_head(self, connection: Connection) -> None:
        table = tables.dl_tables
        query = select(table.c.head_version).where(table.c.table_id == self.record.table_id)
        found = connection.execute(self._metastore.dialect.lock(query)).scalar()
        if found != self.record.head_version:
            message = "another import of the table goes on"
            remedy = "let one of them finish"
            raise TableStateError(message, table=self.record.name, remedy=remedy)

    def _end_older(self, connection: Connection) -> None:
        """End the rows of earlier batches whose keys this one has again."""
        keys = self._seen.meet(self._files.newest)
        dialect = self._metastore.dialect
        if not keys:
            return
        if isinstance(dialect, PostgresDialect) and not self._goes_on_with_a_version():
            ended = [(*split_key(key), self._files.first_version(key)) for key in keys]
            for is_add, column in _END_COLUMNS.items():
                totals = dialect.end_files(connection, column, self.record.table_id, ended)
                for at, number, size in totals if is_add else ():
                    self._files.change(at, -number, -size)
            return
        candidates = set(keys)
        texts = dialect.texts(list({split_key(key)[0] for key in keys}))
        parameters = {"table_id": self.record.table_id, "texts": texts}
        for is_add, column in _END_COLUMNS.items():
            rows = self._metastore.statements.open_rows(column).run(connection, parameters)
            for version, ordinal, path, dv_id, size in rows:
                if (key := join_key(path, dv_id)) in candidates:
                    self._files.end_older(key, Reference(version, is_add, ordinal, size or 0))

    def _goes_on_with_a_version(self) -> bool:
        """Whether rows of the batch's first version are in SQL already."""
        return bool(self._parts) and self._parts[0].version == self._unfinished

    def _insert(self, connection: Connection) -> None:
        rows: dict[Table, list[Row]] = {}
        dialect = self._metastore.dialect
        for part in self._parts:
            for table, more in part.rows.items():
                rows.setdefault(table, []).extend(more)
        for table, all_rows in rows.items():
            self._metastore.statements.insert(connection, table, all_rows)
        if isinstance(dialect, PostgresDialect):
            texts = [text for part in self._parts for text in part.texts]
            for shape in {id(shape): shape for shape, _ in texts}.values():
                data = [text for its, text in texts if its is shape]
                dialect.copy_text(connection, shape.table, shape.copied, data, null=COPY_NULL)

    def _mark(self, connection: Connection) -> None:
        for is_add, column in _END_COLUMNS.items():
            ended = [
                (self.record.table_id, end.version, end.ordinal, end.at)
                for end in self._files.ends
                if end.is_add is is_add
            ]
            self._metastore.dialect.update_rows(
                connection,
                column.table,
                keys=("table_id", "version", "ordinal"),
                columns=(column.name,),
                rows=ended,
            )

    def _finish_versions(self, connection: Connection) -> TableRecord:
        """Insert the rows of complete versions; the head moves to the last of them."""
        for version, (number, size) in self._files.changes.items():
            before = self._changes.get(version, (0, 0))
            self._changes[version] = (before[0] + number, before[1] + size)
        record = self.record
        versions, statuses = [], []
        for done in self._finished:
            record = self._moved(record, done)
            known = done.version >= record.floor_version
            totals = (record.num_files, record.size_bytes) if known else None
            versions.append(_in_order(tables.dl_table_versions, done.row(record.table_id, totals)))
            if done.has_file:
                status = done.status(record.table_id, is_published=self._is_published)
                statuses.append(_in_order(tables.dl_mirror_status, status))
        self._metastore.statements.insert(connection, tables.dl_table_versions, versions)
        self._metastore.statements.insert(connection, tables.dl_mirror_status, statuses)
        write_record(connection, record)
        return record

    def _moved(self, record: TableRecord, done: ImportedVersion) -> TableRecord:
        number, size = self._changes.pop(done.version, (0, 0))
        of_state = done.version >= record.floor_version
        sets_protocol = of_state and bool(done.facts.protocols)
        sets_metadata = of_state and bool(done.facts.metadata)
        return replace(
            record,
            protocol_version=done.version if sets_protocol else record.protocol_version,
            metadata_version=done.version if sets_metadata else record.metadata_version,
            head_version=done.version,
            head_timestamp_ms=done.timestamp_ms,
            num_files=record.num_files + number,
            size_bytes=record.size_bytes + size,
            num_removes=record.num_removes + self._removes.pop(done.version, 0),
            mirrored_version=done.version if self._is_published else record.first_version - 1,
        )


def write_record(connection: Connection, record: TableRecord) -> None:
    """Write what moves in a table's row."""
    table = tables.dl_tables
    moving = (
        *("state", "head_version", "first_version", "floor_version", "head_timestamp_ms"),
        *("protocol_version", "metadata_version", "num_files", "size_bytes", "num_removes"),
        "mirrored_version",
    )
    values = {name: getattr(record, name) for name in moving}
    connection.execute(table.update().where(table.c.table_id == record.table_id).values(values))


def take_back_unfinished(connection: Connection, record: TableRecord) -> None:
    """Delete what lies above the head, as if its versions had never begun."""
    head, table_id = record.head_version, record.table_id
    for table in (*ACTION_TABLES, tables.dl_table_versions, tables.dl_mirror_status):
        unfinished = (table.c.table_id == table_id) & (table.c.version > head)
        if head >= 0 and "ordinal" in table.c:
            #: a checkpoint's state at the floor is complete before the first version is
            unfinished &= table.c.ordinal >= 0
        connection.execute(table.delete().where(unfinished))
    for column in _END_COLUMNS.values():
        table = column.table
        too_early = (table.c.table_id == table_id) & (column > head)
        connection.execute(table.update().where(too_early).values({column.name: None}))


def _in_order(table: Table, values: dict[str, Any]) -> Row:
    return tuple(values.get(name) for name in table.columns.keys())  # noqa: SIM118 - a collection of columns
