"""Work items on Spark: errors, retries and answers. What the jobs do is in the contracts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mirror_assets.errors import SparkJobError, TableStateError
from mirror_assets.mirror.bulk.checkpoints import build_checkpoints
from mirror_assets.mirror.bulk.logs import backfill
from mirror_assets.pipeline.access import Access
from mirror_assets.pipeline.work import Workers, run_items
from mirror_assets_tests.builders import a_metastore, a_table

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_an_error_of_a_task_is_raised_as_what_it_was(spark: SparkSession, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'metastore.db'}"
    with a_metastore(url) as metastore:
        workers, access = Workers(spark), Access.to(url)
        names = [a_table(metastore, f"db.t{n}", location=str(tmp_path / str(n))) for n in range(2)]
        backfill(workers, access)
        with pytest.raises(TableStateError, match="is not published") as refused:
            build_checkpoints(workers, access, [(names[0], None), (names[1], 9)])
        assert refused.value.table == names[1]


def test_a_task_may_fail_twice_and_an_item_is_answered_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    def clumsy(number: int) -> dict[str, Any]:
        tries = tmp_path / f"tries-{number}"
        with tries.open("a") as file:
            file.write("x")
        if number == 1 and len(tries.read_text()) < 3:
            raise OSError("a disk was full")
        return {"number": number * 10}

    assert run_items(spark, [0, 1, 2], clumsy) == [{"number": n} for n in (0, 10, 20)]
    assert (tmp_path / "tries-1").read_text() == "xxx"

    def hopeless(number: int) -> dict[str, Any]:
        raise OSError(f"no disk {number}")

    with pytest.raises(SparkJobError, match="no disk"):
        run_items(spark, [1], hopeless)
    assert run_items(spark, [], hopeless) == []
