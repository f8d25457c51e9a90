"""Time travel over a long history: every version reads as the test remembers it.

200 commits with everything that makes a log difficult, published by the mirror with checkpoints in
between, read at each version by its number and by its time.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.mirror.service import Mirror
from mirror_assets.storage.options import StoreOptions
from mirror_assets_tests.acceptance.readers import duckdb_connection
from mirror_assets_tests.builders import a_metastore, changed, commit, txn
from mirror_assets_tests.delta.samples import a_domain, a_field, a_schema
from mirror_assets_tests.mirror.lake import Lake, removal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from mirror_assets.delta.actions import Action, AddFile, MetaData

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("spark")]

COMMITS = 200
CHECKPOINTS = (40, 111, 190)
RENAMED_AT = 75
PARTS = ["plain", " with blanks ", "quo\"te's", "back\\slash", "emoji 😀", "ü=%/:?#&+", "a,b", None]
#: where DuckDB looks: around checkpoints and the rename, and here and there; Spark, which takes
#: seconds for each, only at a few
SPREAD = (1, 2, 39, 40, 41, 74, 75, 76, 110, 111, 112, 150, 189, 190, 191, 199, 200)
FEW = (1, 40, 75, 112, 190, 200)

Row = tuple[int, str | None]


@dataclass
class History:
    """A table with its past, and what was true at each version."""

    lake: Lake
    chance: random.Random
    #: live files, with the rows that they still have
    live: dict[str, tuple[AddFile, list[int]]] = field(default_factory=dict)
    truth: dict[int, list[Row]] = field(default_factory=dict)
    #: physical partition value by file
    parts: dict[str, str | None] = field(default_factory=dict)
    next_id: int = 0

    def create(self) -> None:
        self.lake.create(
            *_fields("the id"),
            partition_columns=["the part"],
            features=("columnMapping", "deletionVectors", "domainMetadata"),
            configuration={
                "delta.columnMapping.mode": "name",
                "delta.columnMapping.maxColumnId": "2",
                "delta.enableDeletionVectors": "true",
                "delta.checkpointInterval": "1000",
            },
        )
        self.truth[0] = []

    def grow(self) -> None:
        """One commit more."""
        version = max(self.truth) + 1
        actions: list[Action] = [txn("app", version)]
        if version % 7 == 0:
            actions.append(a_domain(f"d{version % 3}", configuration=f'{{"v":{version}}}'))
        if version == RENAMED_AT:
            actions.append(self._renamed())
        elif self.live and self.chance.random() < 0.25:
            actions += self._delete_rows()
        else:
            if len(self.live) > 3 and self.chance.random() < 0.5:
                actions += self._remove_file()
            actions += [self._add_file() for _ in range(self.chance.randint(1, 2))]
        assert commit(self.lake.metastore, self.lake.name, *actions).version == version
        self.truth[version] = sorted(
            ((row, self.parts[path]) for path, (_, rows) in self.live.items() for row in rows),
            key=repr,
        )

    def _add_file(self) -> AddFile:
        rows = list(range(self.next_id, self.next_id + 4))
        self.next_id += 4
        part = self.chance.choice(PARTS)
        add = self.lake.file(pa.table({"col-1": pa.array(rows, pa.int64())}), {"col-2": part})
        self.live[add.path], self.parts[add.path] = (add, rows), part
        return add

    def _remove_file(self) -> list[Action]:
        add, _ = self.live.pop(self.chance.choice(sorted(self.live)))
        return [removal(add)]

    def _delete_rows(self) -> list[Action]:
        """Hide one row more of a file; the file itself when it was the last."""
        path = self.chance.choice(sorted(self.live))
        add, rows = self.live.pop(path)
        left = rows[1:]
        if not left:
            return [removal(add)]
        first = self._first_row(rows)
        hidden = [row - first for row in range(first, left[0])]
        holed = msgspec.structs.replace(add, deletion_vector=self.lake.delete_rows(hidden))
        self.live[path] = (holed, left)
        return [removal(add), holed]

    @staticmethod
    def _first_row(rows: list[int]) -> int:
        return rows[-1] - 3

    def _renamed(self) -> MetaData:
        metadata = LogReader(self.lake.metastore).summary(self.lake.name).metadata
        schema = a_schema(*_fields("the number"))
        return msgspec.structs.replace(changed(metadata, note="x"), schema_string=schema)


def _fields(first: str) -> list[dict[str, Any]]:
    def mapped(name: str, number: int, kind: str) -> dict[str, Any]:
        identity = {"delta.columnMapping.id": number}
        physical = {"delta.columnMapping.physicalName": f"col-{number}"}
        return a_field(name, kind, **identity, **physical)

    return [mapped(first, 1, "long"), mapped("the part", 2, "string")]


def column(version: int) -> str:
    return "the id" if version < RENAMED_AT else "the number"


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    home = tmp_path_factory.mktemp("history")
    with a_metastore(f"sqlite:///{home / 'metastore.db'}") as metastore:
        history = History(Lake(metastore, home / "table"), random.Random(20_261_118))
        history.create()
        mirror = Mirror(metastore, options=StoreOptions(durable=False))
        for end in (*CHECKPOINTS, COMMITS):
            while max(history.truth) < end:
                history.grow()
            mirror.settle(patience_s=30)
            if end in CHECKPOINTS:
                mirror.checkpoints.build(history.lake.name)
        yield history


@pytest.fixture(scope="module")
def times(history: History) -> list[datetime]:
    """When each version was committed."""
    rows = LogReader(history.lake.metastore).history(history.lake.name)
    found = {row["version"]: row["timestamp_ms"] for row in rows}
    return [
        datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=found[v]) for v in sorted(found)
    ]


def rows_of_deltalake(table: DeltaTable) -> list[Row]:
    found = QueryBuilder().register("t", table).execute("select * from t").read_all()
    rows = pa.table(found)
    ids = rows[column(table.version())].to_pylist()
    return sorted(zip(ids, rows["the part"].to_pylist(), strict=True), key=repr)


def test_the_history_has_what_makes_a_log_difficult(history: History) -> None:
    log = sorted(path.name for path in history.lake.log.iterdir())
    assert sum(name.endswith(".json") for name in log) == COMMITS + 1
    assert [int(n.split(".")[0]) for n in log if "checkpoint.p" in n] == list(CHECKPOINTS)
    adds = list(LogReader(history.lake.metastore).live_files(history.lake.name))
    assert sum(add.deletion_vector is not None for add in adds) > 3
    assert {add.partition_values["col-2"] for add in adds} == set(PARTS)


def test_deltalake_reads_every_version_by_its_number(history: History) -> None:
    for version, expected in history.truth.items():
        table = DeltaTable(str(history.lake.root), version=version)
        assert rows_of_deltalake(table) == expected, version
        if version:
            assert table.transaction_version("app") == version


def test_deltalake_finds_every_version_by_its_time(history: History, times: list[datetime]) -> None:
    assert sorted(set(times)) == times
    table = DeltaTable(str(history.lake.root))
    for version in history.truth:
        table.load_as_version(times[version])
        assert table.version() == version
        if version in SPREAD:
            table.load_as_version(times[version] - timedelta(milliseconds=1))
            assert table.version() == version - 1


def test_duckdb_reads_a_spread_of_versions(history: History) -> None:
    with duckdb_connection() as connection:
        for version in SPREAD:
            scan = f"delta_scan('{history.lake.root}', version => {version})"
            found = connection.sql(f'select "{column(version)}" from {scan}').fetchall()
            # DuckDB 1.5.5 gives null for partition values under column mapping.
            expected = [(row,) for row, _ in history.truth[version]]
            assert sorted(found) == sorted(expected), version


@pytest.mark.spark
def test_delta_spark_reads_a_few_versions_by_number_and_by_time(
    history: History, times: list[datetime], spark: SparkSession
) -> None:
    def rows(version: int, **options: str) -> list[Row]:
        frame = spark.read.format("delta").options(**options).load(str(history.lake.root))
        found = frame.select(f"`{column(version)}`", "`the part`").collect()
        return sorted(((row[0], row[1]) for row in found), key=repr)

    for version in FEW:
        expected = history.truth[version]
        assert rows(version, versionAsOf=str(version)) == expected, version
        moment = times[version].strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        assert rows(version, timestampAsOf=moment) == expected, moment
