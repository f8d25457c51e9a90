"""Bulk jobs as `spark-submit`, Dagster and people start them: words in, one document out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from mirror_assets.errors import ConfigurationError, TableNotFoundError
from mirror_assets.jobs import backfill, checkpoints, compare, imports, rebuild, reconcile
from mirror_assets.jobs.submitting import run_submitted
from mirror_assets_tests.builders import a_metastore, a_table, add, commit, remove

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from mirror_assets.metastore.database import Metastore

TABLE, OTHER = "sales.orders", "sales.items"
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory without settings, where the jobs are started."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def url(home: Path) -> str:
    return f"sqlite:///{home / 'metastore.db'}"


@pytest.fixture
def metastore(url: str, home: Path) -> Iterator[Metastore]:
    with a_metastore(url) as opened:
        for name in (TABLE, OTHER):
            a_table(opened, name, location=str(home / name), features=["v2Checkpoint"])
            commit(opened, name, *(add(f"{n}.parquet", size=n) for n in range(10)))
            commit(opened, name, remove("1.parquet", deletion_timestamp=4_000_000_000_000))
        yield opened


@pytest.fixture
def run(spark: SparkSession, url: str) -> Callable[..., dict[str, Any]]:
    def started(job: Any, *words: str) -> dict[str, Any]:
        answer = job.main(spark, [*words, "--metastore", url])
        assert json.loads(json.dumps(answer)) == answer
        return answer

    return started


def test_the_jobs_do_a_tables_whole_life(
    run: Callable[..., dict[str, Any]], metastore: Metastore, home: Path
) -> None:
    answer = run(backfill, TABLE, "--to-version", "1")
    assert [(t["table"], t["commits"]) for t in answer["tables"]] == [(TABLE, 2)]
    answer = run(backfill)
    assert {t["table"]: t["commits"] for t in answer["tables"]} == {TABLE: 1, OTHER: 3}
    assert answer["ok"]

    (built,) = run(checkpoints, TABLE, "--version", "1")["checkpoints"]
    assert (built["table"], built["version"], built["is_new"]) == (TABLE, 1, True)
    made = run(checkpoints)["checkpoints"]
    assert {c["table"]: c["version"] for c in made} == {TABLE: 2, OTHER: 2}
    assert run(checkpoints)["checkpoints"] == []

    answer = run(compare)
    assert (answer["ok"], answer["findings"], answer["tables"]) == (True, [], [OTHER, TABLE])
    (home / TABLE / "_delta_log" / f"{1:020d}.json").unlink()
    answer = run(reconcile)
    assert (answer["ok"], [r["version"] for r in answer["plan"]]) == (False, [1])
    assert run(reconcile, "--apply")["applied"] == answer["plan"]
    assert run(reconcile)["ok"]

    (log,) = run(rebuild, f"{TABLE}={home / 'again'}")["logs"]
    assert (log["table"], log["commits"]) == (TABLE, 3)
    words = [f"back.{n}={home / place}" for n, place in enumerate(["again", "nowhere"])]
    answer = run(imports, *words, "--dry-run")
    assert [t["outcome"] for t in answer["tables"]] == ["importable", "refused"]
    (again,) = run(imports, words[0])["tables"]
    assert (again["outcome"], again["commits"], again["num_files"]) == ("imported", 3, 9)
    answer = run(imports, words[0])
    assert (answer["ok"], answer["tables"][0]["outcome"]) == (True, "already_ours")


@pytest.mark.parametrize(
    ("job", "words", "message"),
    [
        (backfill, ["--to-version", "soon"], "invalid int"),
        (checkpoints, ["--version", "3"], "name it"),
        (checkpoints, [TABLE, OTHER, "--version", "3"], "name it"),
        (imports, [TABLE], "no NAME=URI"),
        (imports, [f"{TABLE}=/a", f"{TABLE}=/b"], "of its own"),
        (rebuild, [], "required"),
        (reconcile, ["--mode", "magic"], "invalid choice"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_done(
    run: Callable[..., dict[str, Any]], job: Any, words: list[str], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        run(job, *words)


def test_a_job_that_fails_answers_with_its_error_and_the_way_out(
    spark: SparkSession,
    metastore: Metastore,
    url: str,
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    words = ["no.such", "--metastore", url]
    assert run_submitted(backfill.main, backfill.taken(), words) == 2
    answer = json.loads(capfdbinary.readouterr().out)
    assert (answer["ok"], answer["error"]["code"]) == (False, TableNotFoundError.code)
    assert run_submitted(imports.main, imports.taken(), ["what?"]) == 2
    assert json.loads(capfdbinary.readouterr().out)["error"]["code"] == ConfigurationError.code


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.xdist_group("spark")
def test_spark_submit_starts_a_job_with_the_settings_of_its_machine(
    metastore: Metastore, url: str, home: Path
) -> None:
    environment = {
        **os.environ,
        "MIRROR_METASTORE_URL": url,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    submit = [str(SUBMIT), "--master", "local[2]", "--driver-memory", "512m"]
    submit += ["--name", "nightly", "--conf", "spark.ui.enabled=false", str(backfill.__file__)]
    done = subprocess.run(
        [*submit, TABLE],
        env=environment,
        cwd=home,
        capture_output=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:].decode()
    answer = json.loads(done.stdout)
    assert [(t["table"], t["commits"]) for t in answer["tables"]] == [(TABLE, 3)]
    assert len(list((home / TABLE / "_delta_log").glob("*.json"))) == 3
