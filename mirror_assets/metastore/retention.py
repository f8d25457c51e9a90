"""Which data files somebody may still need: the readers of now, of before, and of a late log."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import func, or_, select

from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_reader import TableRecord
from mirror_assets.metastore.tables import dl_add_files, dl_remove_files, dl_table_versions

_ROWS_PER_FETCH = 10_000


def needed_paths(metastore: Metastore, table: TableRecord, cutoff_ms: int) -> Iterator[str]:
    """The paths of all files that must stay; some more than once.

    That is what is live now, what was removed after the cut-off, and what is live in any version
    from the published one on: who reads the log still sees a file that SQL has removed since.
    """
    adds, removes, versions = dl_add_files.c, dl_remove_files.c, dl_table_versions.c
    first_kept = (
        select(func.min(versions.version))
        .where(versions.table_id == table.table_id, versions.timestamp_ms > cutoff_ms)
        .scalar_subquery()
    )
    living = select(adds.path).where(
        adds.table_id == table.table_id,
        or_(
            adds.removed_version.is_(None),
            adds.removed_version > table.mirrored_version,
            adds.removed_version >= first_kept,
        ),
    )
    buried = select(removes.path).where(
        removes.table_id == table.table_id,
        or_(removes.deletion_timestamp > cutoff_ms, removes.version > table.mirrored_version),
    )
    with metastore.read() as connection:
        streamed = connection.execution_options(yield_per=_ROWS_PER_FETCH)
        for query in (living, buried):
            with streamed.execute(query) as rows:
                for row in rows:
                    yield row[0]
