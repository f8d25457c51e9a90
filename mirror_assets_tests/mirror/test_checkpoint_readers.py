"""Checkpoints judged by readers that know nothing about us: deltalake and DuckDB.

Commit files before the checkpoint are deleted first, so that it alone tells the state.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest

from mirror_assets.delta.actions import AddFile
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets_tests.builders import txn
from mirror_assets_tests.delta.samples import a_domain, a_field
from mirror_assets_tests.mirror.lake import removal

if TYPE_CHECKING:
    from mirror_assets_tests.mirror.lake import Lake

V2 = pytest.mark.parametrize("v2", [False, True], ids=["classic", "v2"])
STATS = {
    "json": {},
    "struct": {
        "delta.checkpoint.writeStatsAsJson": "false",
        "delta.checkpoint.writeStatsAsStruct": "true",
    },
    "both": {"delta.checkpoint.writeStatsAsStruct": "true"},
}


def features(*names: str, v2: bool) -> tuple[str, ...]:
    return (*names, "v2Checkpoint") if v2 else names


def numbers(first: int, count: int = 3, **columns: Any) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + count), pa.int64()), **columns})


def checkpoint_alone(lake: Lake, version: int) -> None:
    lake.checkpoint(version)
    lake.forget_commits_before(version)


@pytest.mark.parametrize(
    ("v2", "stats", "codec"),
    [
        *((v2, stats, "zstd") for v2 in (False, True) for stats in STATS),
        *((False, "json", codec) for codec in ("snappy", "gzip", "none", "lz4_raw")),
        (True, "struct", "snappy"),
    ],
)
def test_readers_see_the_live_files_of_the_checkpoint(
    lake: Lake, v2: bool, stats: str, codec: str
) -> None:
    properties = {"delta.parquet.compression.codec": codec, "delta.minWriterVersion": "7"}
    lake.create(
        a_field("id"),
        features=features(v2=v2),
        configuration={**properties, **STATS[stats]},
    )
    first, second = lake.file(numbers(0)), lake.file(numbers(10))
    lake.commit(first)
    lake.commit(second)
    version = lake.commit(removal(first), lake.file(numbers(20)))

    checkpoint_alone(lake, version)

    assert lake.rows() == [(n,) for n in (10, 11, 12, 20, 21, 22)]
    assert lake.listed_paths() == lake.live_paths()


@V2
def test_commits_after_the_checkpoint_are_read_on_top_of_it(lake: Lake, v2: bool) -> None:
    lake.create(a_field("id"), features=features(v2=v2))
    first = lake.file(numbers(0))
    version = lake.commit(first, lake.file(numbers(10)))
    checkpoint_alone(lake, version)

    lake.commit(removal(first))
    lake.commit(lake.file(numbers(20)))

    assert lake.rows() == [(n,) for n in (10, 11, 12, 20, 21, 22)]


@V2
@pytest.mark.parametrize("stats", STATS)
def test_partition_values_of_all_kinds_survive(lake: Lake, v2: bool, stats: str) -> None:
    values = ["plain", "with blank", 'quo"te', "back\\slash", "emoji 😀", "ü=%/:", None]
    lake.create(
        a_field("id"),
        a_field("p", "string"),
        a_field("n", "integer"),
        a_field("d", "date"),
        a_field("t", "timestamp"),
        partition_columns=["p", "n", "d", "t"],
        features=features(v2=v2),
        configuration={"delta.minWriterVersion": "7", **STATS[stats]},
    )
    adds = [
        lake.file(
            numbers(number, 1),
            {
                "p": value,
                "n": None if value is None else str(-number),
                "d": "2026-01-31",
                "t": "2026-01-31 10:00:00.000005",
            },
        )
        for number, value in enumerate(values)
    ]
    version = lake.commit(*adds)

    checkpoint_alone(lake, version)

    seen = {row[1]: (row[2], row[3], str(row[0]), row[4].isoformat()) for row in lake.rows()}
    day, instant = "2026-01-31", "2026-01-31T10:00:00.000005+00:00"
    assert seen == {
        number: (None if value is None else -number, value, day, instant)
        for number, value in enumerate(values)
    }


@V2
@pytest.mark.parametrize("stats", STATS)
def test_deletion_vectors_hide_their_rows(lake: Lake, v2: bool, stats: str) -> None:
    lake.create(
        a_field("id"),
        features=features("deletionVectors", v2=v2),
        configuration={"delta.enableDeletionVectors": "true", **STATS[stats]},
    )
    whole = lake.file(numbers(0, 5))
    lake.commit(whole, lake.file(numbers(10)))
    holed = msgspec.structs.replace(whole, deletion_vector=lake.delete_rows([1, 3]))
    version = lake.commit(removal(whole), holed)

    checkpoint_alone(lake, version)

    assert lake.rows() == [(n,) for n in (0, 10, 11, 12, 2, 4)]


@V2
@pytest.mark.parametrize("stats", STATS)
@pytest.mark.parametrize("partitioned", [False, True])
def test_column_mapping_reads_by_physical_names(
    lake: Lake, v2: bool, stats: str, partitioned: bool
) -> None:
    def mapped(name: str, number: int, kind: str) -> dict[str, Any]:
        keys = {
            "delta.columnMapping.id": number,
            "delta.columnMapping.physicalName": f"col-{number}",
        }
        return a_field(name, kind, **keys)

    lake.create(
        mapped("the id", 1, "long"),
        mapped("the part", 2, "string"),
        partition_columns=["the part"] if partitioned else [],
        features=features("columnMapping", v2=v2),
        configuration={
            "delta.columnMapping.mode": "name",
            "delta.columnMapping.maxColumnId": "2",
            **STATS[stats],
        },
    )
    data = {"col-1": pa.array([1, 2], pa.int64())}
    if partitioned:
        version = lake.commit(lake.file(pa.table(data), {"col-2": "a b"}))
    else:
        version = lake.commit(lake.file(pa.table({**data, "col-2": ["a b", "a b"]})))

    checkpoint_alone(lake, version)

    # DuckDB 1.5.5 gives null for such partition values, from commit files as well
    seen = lake.rows_of_deltalake() if partitioned else lake.rows()
    assert seen == [(1, "a b"), (2, "a b")]


@V2
def test_transactions_and_domains_are_told(lake: Lake, v2: bool) -> None:
    lake.create(a_field("id"), features=features("domainMetadata", v2=v2))
    lake.commit(lake.file(numbers(0)), txn("app", 1), a_domain("kept", configuration='{"a":1}'))
    lake.commit(txn("app", 7), txn("other", 3), a_domain("gone"))
    version = lake.commit(a_domain("gone", removed=True))

    published = lake.checkpoint(version)
    lake.forget_commits_before(version)

    assert (published.content.txns, published.content.domains) == (2, 1)
    assert lake.rows() == [(0,), (1,), (2,)]
    assert lake.transaction_version("app") == 7
    assert lake.transaction_version("other") == 3


def test_statistics_as_structs_are_used_like_those_in_json(lake: Lake) -> None:
    lake.create(
        a_field("id"),
        a_field("price", "decimal(10,2)"),
        a_field("at", "timestamp"),
        a_field("name", "string"),
        configuration={"delta.minWriterVersion": "7", **STATS["struct"]},
    )
    add = lake.file(
        pa.table(
            {
                "id": pa.array([1], pa.int64()),
                "price": pa.array([Decimal("125.00")], pa.decimal128(10, 2)),
                "at": pa.array([0], pa.timestamp("us", "UTC")),
                "name": ["x"],
            }
        )
    )
    bounds = {"id": 1, "price": 125.00, "at": "1970-01-01T00:00:00.000Z", "name": "x"}
    stats = {"numRecords": 1, "minValues": bounds, "maxValues": bounds, "nullCount": {"id": 0}}
    add = msgspec.structs.replace(add, stats=json.dumps(stats))
    version = lake.commit(add, msgspec.structs.replace(lake.file(numbers(9)), stats=None))

    checkpoint_alone(lake, version)

    listed = lake.listed_files()
    assert listed["num_records"] == {add.path: 1}
    assert listed["min"][add.path]["price"] == listed["max"][add.path]["price"]
    assert str(listed["min"][add.path]["price"]) == "125.00"
    assert len(lake.rows()) == 4


@V2
def test_every_checkpoint_of_a_changing_table_is_right(lake: Lake, v2: bool) -> None:
    lake.create(a_field("id"), features=features(v2=v2))
    alive: dict[int, AddFile] = {}
    for step in range(12):
        add = lake.file(numbers(100 * step, 2))
        gone = alive.pop(step - 3, None) if step % 2 else None
        version = lake.commit(add, *([removal(gone)] if gone else []))
        alive[step] = add
        if step % 3 == 2:
            checkpoint_alone(lake, version)
            assert lake.rows() == sorted(
                ((100 * s + n,) for s in alive for n in range(2)), key=repr
            )
            assert lake.listed_paths() == lake.live_paths()
    assert len(list(LogReader(lake.metastore).live_files(lake.name))) == len(alive)
