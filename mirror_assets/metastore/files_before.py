"""What a commit is judged by, without the table's state: its own row, and the files it names.

What it costs grows with the commit, and with what was removed since, but not with the table, on
engines that have indexes; DuckDB scans its columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import orjson
from sqlalchemy import Column, and_, select, tuple_

from mirror_assets.delta.actions import AddFile, CommitInfo, RemoveFile
from mirror_assets.errors import VersionNotFoundError
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_reader import TableRecord, find_table
from mirror_assets.metastore.rows import from_row
from mirror_assets.metastore.tables import dl_add_files, dl_remove_files, dl_table_versions

#: paths named in one statement
_PATHS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFact:
    """A commit file as SQL ratified it, and when the version before it was made."""

    table: TableRecord
    sha256: str
    info_before: CommitInfo | None


def read_version_fact(metastore: Metastore, name: str, version: int) -> VersionFact:
    """Raises TableNotFoundError, and VersionNotFoundError where SQL has no such commit."""
    row = dl_table_versions.c
    query = select(row.version, row.sha256, row.commit_info)
    with metastore.read() as connection:
        table = find_table(connection, name)
        around = and_(row.table_id == table.table_id, row.version.between(version - 1, version))
        found = {at: rest for at, *rest in connection.execute(query.where(around))}
    if version not in found or version < table.first_version:
        message = f"SQL has the commits {table.first_version} to {table.head_version}"
        raise VersionNotFoundError(message, table=name, version=version)
    info = found.get(version - 1, (None, None))[1]
    return VersionFact(
        table=table,
        sha256=found[version][0],
        info_before=None if info is None else CommitInfo(orjson.loads(info)),
    )


def read_files_before(
    metastore: Metastore, table: TableRecord, version: int, paths: Iterable[str]
) -> list[AddFile]:
    """Of the files with these paths, those that lived before the version."""
    return _known(metastore, table, version, dl_add_files.c.removed_version, paths)


def read_tombstones_before(
    metastore: Metastore, table: TableRecord, version: int, paths: Iterable[str]
) -> list[RemoveFile]:
    """Of the files with these paths, those that had been removed; walks over all tombstones."""
    return _known(metastore, table, version, dl_remove_files.c.superseded_version, paths)


def _known(
    metastore: Metastore, table: TableRecord, version: int, end: Column[int], paths: Iterable[str]
) -> list[Any]:
    """What was made before the version, and ended by it, later, or not yet."""
    actions, wanted, found = end.table, iter(paths), list[Any]()
    while some := list(islice(wanted, _PATHS)):
        parameters = {"table_id": table.table_id, "texts": metastore.dialect.texts(some)}
        # Without a bound on `version`: a planner would walk along the primary key, past every file.
        ended = select(actions.c.version, actions.c.ordinal).where(
            actions.c.table_id == table.table_id, end >= version, actions.c.path.in_(some)
        )
        with metastore.read() as connection:
            still = metastore.statements.open_rows(end).run(connection, parameters)
            rows = [*still, *connection.execute(ended)]
            places = [(made, ordinal) for made, ordinal, *_ in rows if made < version]
            is_one = tuple_(actions.c.version, actions.c.ordinal).in_(places)
            query = select(actions).where(actions.c.table_id == table.table_id, is_one)
            if places:
                found += [from_row(actions, row) for row in connection.execute(query).mappings()]
    return found
