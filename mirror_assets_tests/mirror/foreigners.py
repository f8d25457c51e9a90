"""Writers that know nothing of SQL: deltalake at the table's own path."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from mirror_assets_tests.builders import commit
from mirror_assets_tests.delta.samples import a_field
from mirror_assets_tests.mirror.lake import Lake
from mirror_assets_tests.mirror.published import mirror

if TYPE_CHECKING:
    from pathlib import Path

    from mirror_assets.metastore.database import Metastore

#: deltalake does not write tables with in-commit timestamps
NO_ICT = {"delta.enableInCommitTimestamps": "false"}


def a_shared_lake(metastore: Metastore, root: Path, *, commits: int = 2) -> Lake:
    """A table that deltalake can write, too: commit n adds the row n, all published."""
    lake = Lake(metastore, root)
    lake.create(a_field("id", "long"), configuration=NO_ICT)
    for number in range(1, commits + 1):
        commit_row(lake, number)
    mirror(lake)
    return lake


def commit_row(lake: Lake, number: int) -> int:
    """Commit a file with one row to SQL, without publishing it."""
    return commit(lake.metastore, lake.name, lake.file(rows(number))).version


def rows(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64())})


def append(root: Path, *numbers: int) -> int:
    """Append as a foreign writer; the version that it made."""
    write_deltalake(str(root), rows(*numbers), mode="append")
    return DeltaTable(str(root)).version()


def numbers_in(lake: Lake) -> list[int]:
    """The rows, on which independent readers agree."""
    return [row[0] for row in lake.rows()]
