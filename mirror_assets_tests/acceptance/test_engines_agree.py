"""Checkpoints by Spark tasks and by this process hold the same rows, decoded and counted.

MIRROR_TEST_CORPORA_STEP=1 takes every table of the corpora; MIRROR_TEST_FILES is how many adds.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from benchmarks.samples import version_zero, write_commit_file
from mirror_assets.delta import sidecar_plan
from mirror_assets.delta.features import protocol_with
from mirror_assets.errors import UnsupportedTableError
from mirror_assets.metastore.importer import import_table
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.log_writer import SqlTxnLogWriter
from mirror_assets.mirror.bulk.checkpoints import build_checkpoint, build_checkpoints
from mirror_assets.mirror.service import Mirror
from mirror_assets.pipeline.access import Access
from mirror_assets.pipeline.work import Workers
from mirror_assets.storage.log_source import open_log
from mirror_assets_tests.acceptance.readers import Rows, arrow_rows
from mirror_assets_tests.acceptance.rebuilt import spread, table_name
from mirror_assets_tests.builders import a_metastore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirror_assets.metastore.database import Metastore
    from mirror_assets_tests.acceptance.rebuilt import Corpus

STEP = 6
FILES = int(os.environ.get("MIRROR_TEST_FILES", "1000000"))
COMMITS = 20
LARGE = "large.t"
#: what says where the rest of a V2 checkpoint lies
LAYOUT = ("sidecar", "checkpointMetadata")


def test_both_engines_build_the_same_checkpoints_of_the_corpora(
    corpus: Corpus, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar_plan, "_SMALLEST_TARGET", 2)
    url = f"sqlite:///{tmp_path / 'metastore.db'}"
    chosen = [copy.table for copy in spread(corpus.copies, STEP)]
    with a_metastore(url) as metastore:
        own = {}
        for table in chosen:
            root = _with_its_log(metastore, corpus.corpora / table, tmp_path / table)
            try:
                Mirror(metastore).checkpoints.build(table_name(table))
            except UnsupportedTableError:
                continue
            own[table] = _content(_set_aside(root))
        workers, access = Workers(spark), Access.to(url)
        whole = [table for table, content in own.items() if len(content) == 1]
        build_checkpoints(workers, access, [(table_name(table), None) for table in whole])
        for table in own.keys() - whole:
            build_checkpoint(workers, access, table_name(table))
    assert {table: _content(tmp_path / table / "_delta_log") for table in own} == own
    assert len(own) > 0.8 * len(chosen)


def test_both_engines_build_the_same_checkpoints_of_a_million_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar_plan, "_SMALLEST_TARGET", FILES // 8)
    url, root = f"sqlite:///{tmp_path / 'metastore.db'}", tmp_path / "table"
    _write_large_log(root)
    with a_metastore(url) as metastore:
        taken = import_table(metastore, open_log(str(root)), LARGE)
        assert (taken.num_files, taken.version) == (FILES, COMMITS)
        for kind, sidecars in (("classic", 0), ("v2", 2)):
            if kind == "v2":
                _set_aside(root)
                _allow_sidecars(metastore)
            mine = Mirror(metastore).checkpoints.build(LARGE)
            aside = _set_aside(root)
            theirs = build_checkpoint(Workers(spark), Access.to(url), LARGE)
            assert (mine.is_new, theirs.is_new) == (True, True)
            assert (mine.version, mine.actions) == (theirs.version, theirs.actions)

            found = _content(root / "_delta_log")
            assert found == _content(aside), kind
            # and the protocol, and the metadata
            assert sum(rows.count for rows in found) == FILES + 2, kind
            for log in (aside, root / "_delta_log"):
                parts = len(list(log.glob("_sidecars/*")))
                assert (parts > sidecars) if sidecars else (parts == 0)


def _with_its_log(metastore: Metastore, original: Path, root: Path) -> Path:
    """Taken over at a place of its own, without the checkpoints that came with it."""
    shutil.copytree(original / "_delta_log", root / "_delta_log")
    import_table(
        metastore,
        open_log(str(root)),
        table_name(original.relative_to(original.parents[1]).as_posix()),
    )
    _set_aside(root)
    return root


def _write_large_log(root: Path) -> None:
    """Commits of many small adds, with statistics and partitions, as another writer left them."""
    log, share = root / "_delta_log", FILES // COMMITS
    log.mkdir(parents=True)
    write_commit_file(log, 0, version_zero())
    for commit in range(COMMITS):
        lines = (_add_line(number) for number in range(commit * share, (commit + 1) * share))
        (log / f"{commit + 1:020}.json").write_text("".join(lines))


def _add_line(number: int) -> str:
    day, region = f"2026-01-{number % 28 + 1:02}", ("emea", "apac", "amer")[number % 3]
    stats = (
        f'{{\\"numRecords\\":{number % 1000},\\"minValues\\":{{\\"order_id\\":{number}}},'
        f'\\"maxValues\\":{{\\"order_id\\":{number + 9}}},\\"nullCount\\":{{\\"order_id\\":0}}}}'
    )
    return (
        f'{{"add":{{"path":"day={day}/region={region}/part-{number:08x}.parquet",'
        f'"partitionValues":{{"day":"{day}","region":"{region}"}},"size":{number + 1},'
        f'"modificationTime":{1_790_000_000_000 + number},"dataChange":true,"stats":"{stats}"}}}}\n'
    )


def _allow_sidecars(metastore: Metastore) -> None:
    protocol = LogReader(metastore).summary(LARGE).protocol
    wanted = protocol_with(protocol, {"v2Checkpoint"})
    SqlTxnLogWriter(metastore).commit(LARGE, [wanted])
    (published,) = Mirror(metastore).settle(patience_s=600)
    assert published.failure is None


def _set_aside(root: Path) -> Path:
    """Where the checkpoints of a log are now."""
    log = root / "_delta_log"
    aside = root / "aside"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    for file in [*log.glob("*.checkpoint*"), log / "_last_checkpoint", log / "_sidecars"]:
        if file.exists():
            file.rename(aside / file.name)
    return aside


def _content(log: Path) -> list[Rows]:
    """The rows of the top-level file without its layout, and those of the sidecars together."""
    (top,) = (pq.read_table(file) for file in log.glob("*.checkpoint*.parquet"))
    for name in LAYOUT:
        if name in top.column_names:
            top = top.filter(pc.is_null(top.column(name))).drop_columns([name])
    sidecars = [pq.read_table(file) for file in sorted(log.glob("_sidecars/*.parquet"))]
    return [arrow_rows(t) for t in (top, *([pa.concat_tables(sidecars)] if sidecars else []))]
