"""Independent readers: they agree on what the mirror writes, and a difference is an error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pytest

from mirror_assets.conformance.deltalake_reader import DeltalakeReader
from mirror_assets.conformance.digests import digest_of
from mirror_assets.conformance.duckdb_reader import DuckdbReader
from mirror_assets.conformance.readers import (
    Expected,
    Refused,
    Seen,
    ask_readers,
    expected_of,
    findings_of,
)
from mirror_assets.conformance.report import Growth
from mirror_assets.conformance.spark_reader import SparkReader
from mirror_assets.conformance.validator import verify_log
from mirror_assets.delta.locations import normalise_location
from mirror_assets.findings import Severity
from mirror_assets.storage.options import StoreOptions
from mirror_assets_tests.builders import a_metastore
from mirror_assets_tests.delta.samples import a_field
from mirror_assets_tests.mirror.lake import Lake, removal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from mirror_assets.conformance.report import Report
    from mirror_assets.delta.locations import Location

PLACE = normalise_location("/lake/t")
AT_3 = [Expected(version=3, files=2, rows=5)]


@dataclass(frozen=True)
class Told:
    """A reader that says what a test wants."""

    name: str
    answer: Seen | Refused

    def read(self, place: Location, version: int, options: StoreOptions) -> Seen | Refused:
        del place, version, options
        return self.answer

    def close(self) -> None:
        pass


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """Data of several types, a deletion vector, a checkpoint and commits on top."""
    with a_metastore(f"sqlite:///{tmp_path / 'metastore.db'}") as metastore:
        lake = Lake(metastore, tmp_path / "table")
        lake.create(
            a_field("id"),
            a_field("name", "string"),
            a_field("price", "decimal(10,2)"),
            a_field("at", "timestamp"),
            a_field("ratio", "double"),
            a_field("p", "string"),
            partition_columns=["p"],
            features=("deletionVectors",),
            configuration={"delta.enableDeletionVectors": "true"},
        )
        whole = lake.file(_data(0, 5), {"p": "a b"})
        lake.commit(whole, lake.file(_data(10, 3), {"p": None}))
        holed = msgspec.structs.replace(whole, deletion_vector=lake.delete_rows([1, 3]))
        lake.checkpoint(lake.commit(removal(whole), holed))
        lake.commit(lake.file(_data(20, 2), {"p": "ü"}))
        yield lake


def _data(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "name": [f"n{number}" if number % 2 else None for number in numbers],
            "price": pa.array([f"{n}.50" for n in numbers]).cast(pa.decimal128(10, 2)),
            "at": pa.array([number * 1_000_001 for number in numbers], pa.timestamp("us", "UTC")),
            "ratio": [number / 4 for number in numbers],
        }
    )


def verified(lake: Lake) -> Report:
    return verify_log(lake.store.source)


def test_deltalake_and_duckdb_agree_with_the_log_at_every_version(lake: Lake) -> None:
    report = verified(lake)
    expected = expected_of(report.growth, 4)
    assert [(e.version, e.files, e.rows) for e in expected] == [
        (0, 0, 0),
        (1, 2, 8),
        (2, 2, 6),
        (3, 3, 8),
    ]
    readers = [DeltalakeReader(), DuckdbReader()]
    verdicts = ask_readers(readers, lake.store.location, expected, features=report.features)
    assert {(v.outcome, v.detail) for v in verdicts if v.outcome != "agrees"} == set()
    assert [v.rows for v in verdicts] == [0, 0, 8, 8, 6, 6, 8, 8]
    assert findings_of(verdicts, None) == []


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.xdist_group("spark")
def test_delta_spark_agrees_too(lake: Lake, spark: SparkSession) -> None:
    report = verified(lake)
    readers = [SparkReader(lambda: spark), DeltalakeReader(), DuckdbReader()]
    verdicts = ask_readers(
        readers, lake.store.location, expected_of(report.growth, 4), features=report.features
    )
    assert {(v.reader, v.detail) for v in verdicts if v.outcome != "agrees"} == set()


def test_a_data_file_that_changed_behind_the_log_is_noticed(lake: Lake) -> None:
    report = verified(lake)
    file = next(path for path in lake.root.glob("*.parquet") if path.name in lake.live_paths())
    file.unlink()
    verdicts = ask_readers(
        [DeltalakeReader(), DuckdbReader()],
        lake.store.location,
        expected_of(report.growth, 1),
        features=report.features,
    )
    assert {v.outcome for v in verdicts} == {"refuses"}
    assert {f.severity for f in findings_of(verdicts, "t")} == {Severity.ERROR}


@pytest.mark.parametrize(
    ("answer", "outcome", "severity"),
    [
        (Seen(rows=5, digest="a", files=2), "agrees", None),
        (Seen(rows=4, digest="a", files=2), "differs", Severity.ERROR),
        (Seen(rows=5, digest="a", files=3), "differs", Severity.ERROR),
        (Seen(rows=5, digest="b", files=2), "differs", Severity.ERROR),
        (Refused("no such feature"), "refuses", Severity.ERROR),
    ],
)
def test_each_difference_is_an_error(
    answer: Seen | Refused, outcome: str, severity: Severity | None
) -> None:
    usual = Seen(rows=5, digest="a", files=None)
    readers = [Told("one", usual), Told("two", usual), Told("three", answer)]
    verdicts = ask_readers(readers, PLACE, AT_3, features=frozenset())
    assert [v.outcome for v in verdicts] == ["agrees", "agrees", outcome]
    assert [f.severity for f in findings_of(verdicts, None)] == ([severity] if severity else [])


def test_a_known_limit_is_a_remark_with_its_date() -> None:
    reader = Told("deltalake", Refused("unsupported"))
    verdicts = ask_readers([reader], PLACE, AT_3, features=frozenset({"typeWidening"}))
    (finding,) = findings_of(verdicts, None)
    assert finding.severity is Severity.INFO
    assert "noted 2026-" in finding.message


def test_the_digest_depends_on_values_and_on_nothing_else() -> None:
    table = pa.table({"a": [1, 2, None], "b": ["x", None, "z"]})
    turned = table.select(["b", "a"]).take([2, 0, 1])
    other = table.set_column(0, "a", pa.array([1, 2, 3]))
    assert digest_of(table.to_batches()) == digest_of(turned.to_batches())
    assert digest_of(table.to_batches()) == digest_of(table.to_batches(max_chunksize=1))
    assert digest_of(table.to_batches()) != digest_of(other.to_batches())


def test_versions_are_sampled_with_the_newest_among_them() -> None:
    growth = [Growth(version, version, 0, 0) for version in range(100)]
    assert [e.version for e in expected_of(growth, 3)] == [0, 49, 99]
    assert [e.version for e in expected_of(growth[:1], 3)] == [0]
    assert expected_of([], 3) == []
