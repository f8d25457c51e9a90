"""The table that everything is measured on.

Ten columns, eight of them with statistics, two that partition it; an add is about 0.75 KB of JSON.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from mirror_assets.delta.actions import (
    Action,
    AddFile,
    CommitInfo,
    Format,
    MetaData,
    TableProtocol,
)
from mirror_assets.delta.commit_file import encode
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.migrate import upgrade
from mirror_assets.metastore.registry import create_table

NOW_MS: Final = 1_790_000_000_000
PARTITION_COLUMNS: Final = ("day", "region")
_REGIONS: Final = ("emea", "apac", "amer", "latam")
_TYPES: Final = {
    "order_id": "long",
    "customer_id": "long",
    "quantity": "integer",
    "price": "double",
    "discount": "double",
    "status": "string",
    "comment": "string",
    "shipped": "date",
    "day": "date",
    "region": "string",
}
SCHEMA: Final = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in _TYPES.items()
        ],
    }
)


def an_add(number: int, writer: int = 0) -> AddFile:
    """The file with this number; different writers give different files."""
    day = f"2026-{number // 28 % 12 + 1:02}-{number % 28 + 1:02}"
    region = _REGIONS[number % 4]
    name = f"part-{number:05}-{writer:08x}-1c0d-4a3e-9f2b-{number:012x}.c000.snappy.parquet"
    first = number * 1000
    low = (
        f'"order_id":{first},"customer_id":{number},"quantity":1,"price":0.99,"discount":0.0,'
        f'"status":"CANCELLED","comment":"a furious package {number}","shipped":"{day}"'
    )
    high = (
        f'"order_id":{first + 999},"customer_id":{number + 99_999},"quantity":50,"price":99999.5,'
        f'"discount":0.1,"status":"SHIPPED","comment":"zealous deposits {number}","shipped":"{day}"'
    )
    nulls = '"order_id":0,"customer_id":0,"quantity":0,"price":0,"discount":12,"status":0,'
    stats = (
        f'{{"numRecords":1000,"minValues":{{{low}}},"maxValues":{{{high}}},'
        f'"nullCount":{{{nulls}"comment":7,"shipped":3}}}}'
    )
    return AddFile(
        path=f"day={day}/region={region}/{name}",
        partition_values={"day": day, "region": region},
        size=1_000_000 + number % 977,
        modification_time=NOW_MS + number,
        data_change=True,
        stats=stats,
    )


def adds(count: int, first: int = 0, writer: int = 0) -> list[AddFile]:
    """Files with consecutive numbers."""
    return [an_add(number, writer) for number in range(first, first + count)]


def one_add_commits(count: int, writer: int = 0) -> list[list[Action]]:
    """The actions of commits of one file each."""
    return [[add] for add in adds(count, writer=writer)]


def a_metastore(url: str) -> Metastore:
    """A metastore in a new database."""
    metastore = Metastore.open(url)
    upgrade(metastore.engine)
    return metastore


def a_table(metastore: Metastore, name: str) -> str:
    """Register an empty table."""
    create_table(
        metastore, name, f"memory://bench/{name}", SCHEMA, partition_columns=PARTITION_COLUMNS
    )
    return name


def one_row() -> pa.Table:
    """A row of the table, for writers of data."""
    values: dict[str, tuple[Any, pa.DataType]] = {
        "order_id": (1, pa.int64()),
        "customer_id": (2, pa.int64()),
        "quantity": (3, pa.int32()),
        "price": (0.99, pa.float64()),
        "discount": (0.0, pa.float64()),
        "status": ("SHIPPED", pa.string()),
        "comment": ("zealous deposits", pa.string()),
        "shipped": (20_000, pa.date32()),
        "day": (20_000, pa.date32()),
        "region": ("emea", pa.string()),
    }
    return pa.table({name: pa.array([value], kind) for name, (value, kind) in values.items()})


def version_zero() -> list[Action]:
    """The first commit of a table that every reader and writer can use."""
    metadata = MetaData(
        id="5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        format=Format(),
        schema_string=SCHEMA,
        partition_columns=list(PARTITION_COLUMNS),
        configuration={},
        created_time=NOW_MS,
    )
    info = CommitInfo({"timestamp": NOW_MS, "operation": "CREATE TABLE"})
    return [info, TableProtocol(min_reader_version=1, min_writer_version=2), metadata]


def write_commit_file(log: Path, version: int, actions: Sequence[Action]) -> None:
    """Write a commit into a `_delta_log`, as its writer would have done."""
    info = CommitInfo({"timestamp": NOW_MS + version, "operation": "WRITE"})
    has_info = any(isinstance(action, CommitInfo) for action in actions)
    lines = actions if has_info else [info, *actions]
    (log / f"{version:020}.json").write_bytes(encode(lines))


def write_log(root: Path, files: int, commits: int = 20) -> Path:
    """A table whose log, of so many commits, has so many files; data files are not there."""
    log, share = root / "_delta_log", files // commits
    log.mkdir(parents=True)
    write_commit_file(log, 0, version_zero())
    for number in range(commits):
        write_commit_file(log, number + 1, adds(share, number * share))
    return root
