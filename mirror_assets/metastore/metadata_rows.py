"""Rows of the metastore as Arrow, a batch at a time, for those who judge the rows themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from sqlalchemy import select

from mirror_assets.metastore.arrow_reader import stream
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_reader import TableRecord, is_live
from mirror_assets.metastore.tables import dl_add_files, dl_table_versions

_FILE_COLUMNS = ("version", "path", "size", "modification_time", "partition_values", "stats")
_VERSION_COLUMNS = ("version", "num_actions", "byte_length", "sha256", "committed_at_ms")


def live_file_rows(
    metastore: Metastore, table: TableRecord, version: int
) -> Iterator[pa.RecordBatch]:
    """The adds that are live at a version."""
    query = select(*(dl_add_files.c[name] for name in _FILE_COLUMNS))
    return stream(metastore, query.where(is_live(dl_add_files, table.table_id, version)))


def added_file_rows(
    metastore: Metastore, table: TableRecord, first: int, last: int
) -> Iterator[pa.RecordBatch]:
    """The adds of a range of versions."""
    add = dl_add_files
    query = select(*(add.c[name] for name in _FILE_COLUMNS)).where(
        add.c.table_id == table.table_id, add.c.version.between(first, last), add.c.ordinal >= 0
    )
    return stream(metastore, query.order_by(add.c.version, add.c.ordinal))


def version_rows(
    metastore: Metastore, table: TableRecord, first: int, last: int
) -> Iterator[pa.RecordBatch]:
    """The versions of a range, ascending."""
    version = dl_table_versions
    query = select(*(version.c[name] for name in _VERSION_COLUMNS)).where(
        version.c.table_id == table.table_id, version.c.version.between(first, last)
    )
    return stream(metastore, query.order_by(version.c.version))
