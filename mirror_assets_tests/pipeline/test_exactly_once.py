"""Rows are in a table once, whatever fails: tasks and attempts; drivers are killed elsewhere."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it
from typer.testing import CliRunner

from mirror_assets.cli.app import app
from mirror_assets.errors import SparkJobError, WriteRefusedError
from mirror_assets.pipeline import data_writer
from mirror_assets.pipeline.streaming import table_sink
from mirror_assets.pipeline.table_writer import NewTable
from mirror_assets_tests.pipeline.killing import known_orphans
from mirror_assets_tests.pipeline.lakehouse import TABLE, by_all, by_deltalake

if TYPE_CHECKING:
    from pathlib import Path

    from mirror_assets_tests.pipeline.lakehouse import Lakehouse


def failing_in_task(tries: Path, times: int) -> Any:
    """A column function that fails in the second partition, this many times, after rows came."""

    def checked(number):
        if number == 150:
            with tries.open("a") as file:
                file.write("x")
            if len(tries.read_text()) <= times:
                raise OSError("the executor lost its disk")
        return number

    return F.udf(checked, "long")


def test_a_task_that_fails_twice_leaves_its_rows_once(lakehouse: Lakehouse, tmp_path: Path) -> None:
    numbers = lakehouse.spark.range(0, 200, 1, 2)
    clumsy = failing_in_task(tmp_path / "tries", 2)
    written = lakehouse.write(numbers.select(clumsy("id").alias("id")))
    lakehouse.mirror()
    assert written.rows == 200
    for seen in by_all(lakehouse.spark, lakehouse.place()):
        assert sorted(row[0] for row in seen) == list(range(200))
    assert lakehouse.orphans() == set()

    hopeless = failing_in_task(tmp_path / "more", 99)
    with pytest.raises(SparkJobError, match="could not write"):
        lakehouse.write(numbers.select(hopeless("id").alias("id")))
    assert lakehouse.reader.table(TABLE).head_version == 1
    lakehouse.mirror()
    assert len(by_deltalake(lakehouse.place())) == 200


def test_a_file_that_a_lost_attempt_writes_late_is_not_committed_but_known(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = "_temporary/0/_temporary/attempt_1/part-00000.parquet"
    original = data_writer._with_settings

    def with_a_late_file(frame: Any, work: Any) -> None:
        original(frame, work)
        (directory,) = (d for d in lakehouse.place().iterdir() if not d.name.startswith("_"))
        (directory / late).parent.mkdir(parents=True)
        shutil.copy(next(directory.glob("*.parquet")), directory / late)

    monkeypatch.setattr(data_writer, "_with_settings", with_a_late_file)
    assert lakehouse.write(lakehouse.spark.range(3).coalesce(1)).rows == 3
    (orphan,) = lakehouse.orphans()
    assert orphan.endswith(late)
    assert known_orphans(lakehouse) == {orphan}


def test_a_stream_that_lost_its_checkpoint_is_refused_and_not_skipped(
    lakehouse: Lakehouse,
) -> None:
    new = NewTable(location=str(lakehouse.place()))
    sink = table_sink(TABLE, access=lakehouse.access, app_id="events", create=new)
    rows = lakehouse.spark.range(3).coalesce(1)
    sink(rows, 4)
    sink(rows, 4)
    with pytest.raises(WriteRefusedError, match="the query is at batch 0") as refused:
        sink(rows, 0)
    assert "checkpointLocation" in str(refused.value.remedy)
    assert lakehouse.reader.table(TABLE).head_version == 1


def test_the_command_line_mirrors_and_checkpoints_by_spark_and_says_why(
    lakehouse: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(type(lakehouse.spark), "stop", lambda _: None)
    lakehouse.write(lakehouse.spark.range(3))
    common = ("--json", "--metastore", f"sqlite:///{tmp_path / 'metastore.db'}")
    for words, engine, reason in [
        (["mirror", "--engine", "spark"], "spark", "asked for"),
        (["checkpoint", TABLE, "--engine", "spark"], "spark", "asked for"),
        (["reconcile", "--mode", "full", "--engine", "spark"], "spark", "asked for"),
        (["reconcile"], "arrow", "only --mode full"),
        (["mirror"], "arrow", "0 pending commits of 0 tables"),
        (["checkpoint", TABLE], "arrow", "files in one file"),
    ]:
        done = CliRunner().invoke(app, [*words, *common])
        assert done.exit_code == 0, done.output
        answer = json.loads(done.stdout)
        assert answer["engine"] == engine
        assert reason in answer["engine_reason"]
    assert (lakehouse.place() / "_delta_log" / "_last_checkpoint").exists()
    assert len(by_deltalake(lakehouse.place())) == 3
