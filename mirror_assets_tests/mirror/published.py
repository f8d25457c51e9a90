"""A lake whose commits are published and recorded, to be damaged and repaired."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable
from sqlalchemy import update

from mirror_assets.delta.log_paths import CommitName, LastCheckpoint
from mirror_assets.metastore.tables import dl_table_versions
from mirror_assets.mirror.service import Mirror
from mirror_assets.storage.options import StoreOptions
from mirror_assets_tests.builders import commit
from mirror_assets_tests.delta.samples import a_field

if TYPE_CHECKING:
    from pathlib import Path

    from mirror_assets_tests.mirror.lake import Lake


def publish(lake: Lake, head: int, *, checkpoints: tuple[int, ...] = (), **options: object) -> None:
    """Create the table, commit a file in each version, publish, and checkpoint."""
    lake.create(a_field("id", "long"), **options)
    extend(lake, head)
    for version in checkpoints:
        lake.checkpoint(version)


def extend(lake: Lake, commits: int = 1) -> None:
    for number in range(commits):
        commit(lake.metastore, lake.name, lake.file(pa.table({"id": [number]})))
    mirror(lake)


def mirror(lake: Lake) -> None:
    service = Mirror(lake.metastore, options=StoreOptions(durable=False))
    service.settle([lake.name], patience_s=5)


def age(lake: Lake, until: int, days: int) -> None:
    """Let the commits up to a version be so many days older."""
    versions = dl_table_versions
    with lake.metastore.write() as connection:
        older = versions.c.timestamp_ms - days * 24 * 60 * 60 * 1000
        connection.execute(
            update(versions).where(versions.c.version <= until).values(timestamp_ms=older)
        )


def commit_file(lake: Lake, version: int) -> Path:
    return lake.log / CommitName(version).name


def pointer(lake: Lake) -> Path:
    return lake.log / LastCheckpoint().name


def contents(lake: Lake) -> dict[str, bytes]:
    """Every file of the log."""
    return {file.name: file.read_bytes() for file in lake.log.iterdir() if file.is_file()}


def assert_readable(lake: Lake, first: int, last: int) -> None:
    """Every version can be opened, and has SQL's files."""
    for version in range(first, last + 1):
        table = DeltaTable(str(lake.root), version=version)
        found = set(pa.table(table.get_add_actions())["path"].to_pylist())
        assert found == lake.live_paths(version), version
    assert DeltaTable(str(lake.root)).version() == last
