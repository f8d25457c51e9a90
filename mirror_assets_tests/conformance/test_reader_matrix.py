"""Every reader, every kind of table that the mirror writes, every version: they see the truth.

The readers of the main environment and those of `make readers` are held to SQL's files and to the
rows that the tests wrote. Who is excused by a known limit is part of what is expected, so that a
limit cannot hide more than it was noted for.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from mirror_assets.conformance.deltalake_reader import DeltalakeReader
from mirror_assets.conformance.duckdb_reader import DuckdbReader
from mirror_assets.conformance.readers import ask_readers
from mirror_assets.conformance.second_reader import SECOND_OPINIONS, SecondReader
from mirror_assets.conformance.spark_reader import SparkReader
from mirror_assets.conformance.validator import verify_log
from mirror_assets.delta.log_paths import CommitName
from mirror_assets_tests.builders import a_metastore
from mirror_assets_tests.conformance.mirrored import Mirrored, RemoteLake
from mirror_assets_tests.conformance.mirrored_kinds import KINDS, plain
from mirror_assets_tests.conftest import READERS_HOME
from mirror_assets_tests.mirror.lake import Lake
from mirror_assets_tests.store_services import StorePlace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from mirror_assets.conformance.readers import Reader
    from mirror_assets.conformance.report import ReaderVerdict
    from mirror_assets_tests.store_services import S3Server

OLD = "deltalake-0.25"
#: who does not travel to versions before the newest, or before a checkpoint
TRAVEL = {"chdb"}
PAST_CHECKPOINT = {"chdb", "sail"}
#: the readers that a known limit excuses, for some version of each kind of table
EXCUSED = {
    "plain": TRAVEL,
    "types": TRAVEL,
    "nested": TRAVEL,
    "timestamps_ntz": PAST_CHECKPOINT,
    "partitioned": PAST_CHECKPOINT,
    "partitioned_structs": PAST_CHECKPOINT,
    "vectors": PAST_CHECKPOINT | {OLD},
    "mapped": TRAVEL | {OLD},
    "mapped_partitioned": TRAVEL | {OLD, "duckdb"},
    "classic": PAST_CHECKPOINT,
    "classic_cleaned": TRAVEL,
    "v2": PAST_CHECKPOINT | {OLD},
    "v2_cleaned": TRAVEL | {OLD},
    "struct_statistics": PAST_CHECKPOINT,
    "writer_features": TRAVEL,
    "widened": PAST_CHECKPOINT | {OLD, "deltalake"},
}
#: kinds of which a reader sees no version at all
UNREAD = {
    "vectors": {OLD, "chdb"},
    "mapped": {OLD, "chdb"},
    "mapped_partitioned": {OLD, "chdb"},
    "nested": {"chdb"},
    "partitioned": {"chdb"},
    "partitioned_structs": {"chdb"},
    "v2": {OLD, "chdb"},
    "v2_cleaned": {OLD, "chdb"},
    "widened": {OLD, "deltalake"},
}

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@pytest.fixture(scope="module")
def readers() -> Iterator[list[Reader]]:
    second = [SecondReader(name, READERS_HOME, patience_s=120) for name in SECOND_OPINIONS]
    yield [DeltalakeReader(), DuckdbReader(), *second]
    for reader in second:
        reader.close()


def seen(table: Mirrored, readers: Sequence[Reader], *, few: bool = False) -> list[ReaderVerdict]:
    """What they see of every version, or of the first, one between, and the newest."""
    table.publish()
    report = verify_log(table.lake.store.source)
    assert not report.has_errors, report.findings
    expected = list(table.truth.values())
    last = len(expected) - 1
    chosen = sorted({0, last // 2, last}) if few else range(last + 1)
    return list(
        ask_readers(
            readers,
            table.lake.store.location,
            [expected[place] for place in chosen],
            features=report.features,
            types=report.types,
            partitions=report.partitions,
            options=table.lake.options,
        )
    )


def readers_of(verdicts: list[ReaderVerdict], *outcomes: str) -> set[str]:
    return {verdict.reader for verdict in verdicts if verdict.outcome in outcomes}


def judge(kind: str, verdicts: list[ReaderVerdict], *, few: bool = False) -> None:
    wrong = [v for v in verdicts if v.outcome not in ("agrees", "limit")]
    assert [(v.reader, v.version, v.outcome, v.detail) for v in wrong] == []
    everyone = {verdict.reader for verdict in verdicts}
    excused = readers_of(verdicts, "limit")
    assert excused <= EXCUSED[kind] if few else excused == EXCUSED[kind]
    assert everyone - readers_of(verdicts, "agrees") == UNREAD.get(kind, set())


@pytest.mark.readers
@pytest.mark.xdist_group("readers")
@pytest.mark.timeout(600)
@every_kind
def test_all_readers_see_the_truth_on_local_disk(
    kind: Callable[[Mirrored], None], readers: list[Reader], tmp_path: Path
) -> None:
    with a_metastore(f"sqlite:///{tmp_path / 'metastore.db'}") as metastore:
        table = Mirrored(Lake(metastore, tmp_path / "table"))
        kind(table)
        judge(kind.__name__, seen(table, readers))


@pytest.mark.readers
@pytest.mark.xdist_group("readers")
@pytest.mark.timeout(600)
@every_kind
def test_all_readers_see_the_truth_on_a_real_s3_server(
    kind: Callable[[Mirrored], None], readers: list[Reader], seaweedfs: S3Server, tmp_path: Path
) -> None:
    place = StorePlace(
        location=f"s3://{seaweedfs.bucket}/{uuid.uuid4()}/table", options=seaweedfs.options()
    )
    with a_metastore(f"sqlite:///{tmp_path / 'metastore.db'}") as metastore:
        table = Mirrored(RemoteLake(metastore, tmp_path, server=seaweedfs, place=place))
        kind(table)
        judge(kind.__name__, seen(table, readers, few=True), few=True)


@pytest.mark.readers
@pytest.mark.xdist_group("readers")
@pytest.mark.timeout(600)
def test_a_place_with_blanks_and_umlauts_is_read_by_all_but_sail(
    readers: list[Reader], tmp_path: Path
) -> None:
    with a_metastore(f"sqlite:///{tmp_path / 'metastore.db'}") as metastore:
        table = Mirrored(Lake(metastore, tmp_path / "a täble"))
        plain(table)
        verdicts = seen(table, readers, few=True)
    assert readers_of(verdicts, "agrees") == {"deltalake", "duckdb", OLD, "chdb"}
    assert readers_of(verdicts, "differs", "refuses") == set()


@pytest.mark.readers
@pytest.mark.xdist_group("readers")
@pytest.mark.timeout(600)
def test_every_reader_betrays_a_commit_that_lost_a_line(
    readers: list[Reader], tmp_path: Path
) -> None:
    with a_metastore(f"sqlite:///{tmp_path / 'metastore.db'}") as metastore:
        table = Mirrored(Lake(metastore, tmp_path / "table"))
        plain(table)
        table.publish()
        newest = table.lake.log / CommitName(max(table.truth)).name
        lines = newest.read_bytes().splitlines(keepends=True)
        newest.write_bytes(b"".join(line for line in lines if not line.startswith(b'{"add"')))
        verdicts = seen(table, readers, few=True)
    last = [verdict for verdict in verdicts if verdict.version == max(table.truth)]
    assert {v.reader: v.outcome for v in last} == {reader.name: "differs" for reader in readers}
    assert all("1 files, by the log 2" in verdict.detail for verdict in last)


@every_kind
def test_delta_spark_sees_the_truth(
    kind: Callable[[Mirrored], None], spark: SparkSession, tmp_path: Path
) -> None:
    with a_metastore(f"sqlite:///{tmp_path / 'metastore.db'}") as metastore:
        table = Mirrored(Lake(metastore, tmp_path / "a table"))
        kind(table)
        verdicts = seen(table, [SparkReader(lambda: spark)], few=True)
    assert [(v.version, v.outcome, v.detail) for v in verdicts if v.outcome != "agrees"] == []
