"""A backlog to be published, again and again: SQL is told that nothing was, at a new place."""

from __future__ import annotations

import time
from collections.abc import Mapping

from sqlalchemy import literal

from benchmarks.samples import PARTITION_COLUMNS, SCHEMA, one_add_commits
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.log_writer import SqlTxnLogWriter
from mirror_assets.metastore.registry import create_table
from mirror_assets.metastore.tables import dl_mirror_status, dl_mirror_tables, dl_tables
from mirror_assets.mirror.service import Mirror
from mirror_assets.storage.options import StoreOptions


def fill(metastore: Metastore, tables: int, commits: int) -> list[str]:
    """Register tables, with so many commits each behind version 0."""
    writer = SqlTxnLogWriter(metastore)
    names = [f"bench.t{number}" for number in range(tables)]
    for name in names:
        create_table(
            metastore, name, f"memory://bench/{name}", SCHEMA, partition_columns=PARTITION_COLUMNS
        )
        for actions in one_add_commits(commits):
            writer.commit(name, actions)
    return names


def files_of(metastore: Metastore, names: list[str]) -> Mapping[str, list[bytes]]:
    """The commit files, as they are to be published."""
    reader = LogReader(metastore)
    return {name: [c.encode(name) for c in reader.commits(name)] for name in names}


def move(metastore: Metastore, root: str) -> None:
    """Let all tables lie below the place, and nothing of them be published."""
    place = literal(f"{root}/") + dl_tables.c.name
    with metastore.write() as connection:
        connection.execute(
            dl_tables.update().values(location=place, location_key=place, mirrored_version=-1)
        )
        connection.execute(
            dl_mirror_status.update().values(status="PENDING", resolved_by=None, lag_ms=None)
        )
        connection.execute(dl_mirror_tables.update().values(lease_until_ms=0))


def publish(metastore: Metastore, options: StoreOptions) -> tuple[float, float]:
    """Publish everything by a mirror that knows nothing yet; wall and CPU seconds."""
    mirror = Mirror(metastore, options=options)
    wall, cpu = time.perf_counter(), time.process_time()
    mirror.engine.run_until_idle()
    return time.perf_counter() - wall, time.process_time() - cpu
