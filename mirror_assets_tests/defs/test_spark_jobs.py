"""Bulk jobs of Dagster by Spark: in the run's own process, and by `spark-submit` through Pipes."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mirror_assets.defs.spark_jobs import JOBS
from mirror_assets_tests.defs.test_jobs import failure, run, shown

if TYPE_CHECKING:
    import dagster as dg

    from mirror_assets.defs.keys import TableKeys
    from mirror_assets_tests.defs.platform import Platform

ROOT = Path(__file__).resolve().parents[2]
#: stands in for `spark-submit`: notes how it was called, and answers as a driver would
DRIVER = """\
import json, sys
from dagster_pipes import PipesCliArgsParamsLoader, open_dagster_pipes

with open_dagster_pipes(params_loader=PipesCliArgsParamsLoader()) as pipes:
    asked = {"words": sys.argv[1:], "job": pipes.get_extra("job"), "args": pipes.get_extra("words")}
    open(%(asked)r, "w").write(json.dumps(asked))
    pipes.log.info("the driver speaks")
    answer = json.loads(%(answer)r)
    if answer is None:
        sys.exit(3)
    pipes.report_custom_message(answer)
"""


@pytest.fixture
def mirrored(platform: Platform) -> TableKeys:
    keys = platform.table(commits=4)
    platform.world.mirror().settle(patience_s=5)
    return keys


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the stand-in; what it was asked is in the file that it gives back."""

    def make(answer: dict[str, Any] | None, *options: str) -> Path:
        asked, script = tmp_path / "asked.json", tmp_path / "submit"
        text = DRIVER % {"asked": str(asked), "answer": json.dumps(answer)}
        script.write_text(f"#!{sys.executable}\n{text}")
        script.chmod(0o755)
        monkeypatch.setenv("MIRROR_SPARK_SUBMIT", " ".join([str(script), *options]))
        return asked

    return make


def said(done: dg.ExecuteInProcessResult) -> list[str]:
    """The log of the run."""
    return [str(event.message) for event in done.all_events]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_spark_builds_the_checkpoints_that_are_missing(
    platform: Platform, mirrored: TableKeys
) -> None:
    """In a process of its own, as a run has it: a JVM keeps the environment it was born in."""
    command = [str(Path(sys.executable).parent / "dagster"), "job", "execute"]
    command += ["-m", "mirror_assets.definitions", "-j", "spark_checkpoints"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)
    assert done.returncode == 0, done.stderr[-4000:]
    assert list(platform.world.store(mirrored.table).list().checkpoints) == [4]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_spark_submit_builds_the_checkpoints_and_the_run_shows_them(
    platform: Platform, mirrored: TableKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = platform.table("sales.refunds", commits=2)
    platform.world.mirror().settle(patience_s=5)
    monkeypatch.setenv("MIRROR_SPARK_SUBMIT", "spark-submit --conf spark.ui.enabled=false")
    monkeypatch.setenv("MIRROR_SPARK_MASTER", "local[2]")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    done = run(platform, "spark_checkpoints")
    assert done.success
    found = shown(done)
    rows = {row.data["table"]: row.data for row in found["checkpoints"].records}
    assert {table: row["version"] for table, row in rows.items()} == {
        mirrored.table: 4,
        other.table: 2,
    }
    assert rows[mirrored.table]["actions"] == 6
    for keys, version in ((mirrored, 4), (other, 2)):
        assert list(platform.world.store(keys.table).list().checkpoints) == [version]


def test_a_submitted_job_is_told_its_master_its_name_and_its_words(
    platform: Platform, driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = driver({"ok": True, "job": "reconcile", "tables": 1, "findings": []}, "--name", "ours")
    monkeypatch.setenv("MIRROR_SPARK_MASTER", "spark://cluster:7077")
    config = {"tables": ["sales.orders"], "mode": "smart", "apply": True}
    done = run(platform, "spark_reconcile", "reconcile_by_spark", **config)
    assert done.success
    found = json.loads(asked.read_text())
    options = found["words"][: found["words"].index("--dagster-pipes-context")]
    assert options[:2] == ["--master", "spark://cluster:7077"]
    assert options[-3:-1] == ["--name", "ours"]
    assert Path(options[-1]).is_file()
    assert (found["job"], found["args"]) == (
        "reconcile",
        ["--mode", "smart", "--apply", "sales.orders"],
    )
    assert shown(done)["tables"].value == 1


def test_a_master_in_the_command_itself_wins(platform: Platform, driver: Any) -> None:
    asked = driver({"ok": True, "job": "compare"}, "--master", "yarn")
    assert run(platform, "spark_compare").success
    words = json.loads(asked.read_text())["words"]
    assert [b for a, b in itertools.pairwise(words) if a == "--master"] == ["yarn"]


def test_what_a_submitted_job_found_fails_the_run_and_is_shown(
    platform: Platform, driver: Any
) -> None:
    finding = {"rule": "DL-FILE-03", "table": "sales.orders", "message": "gone", "remedy": "mend"}
    driver({"ok": False, "job": "compare", "tables": ["sales.orders"], "findings": [finding]})
    done = run(platform, "spark_compare")
    assert "DL-FILE-03 sales.orders: gone. Remedy: mend" in failure(done)
    (failed,) = [event for event in done.all_events if event.is_step_failure]
    shown_rows = failed.step_failure_data.user_failure_data.metadata["findings"].records
    assert [row.data["rule"] for row in shown_rows] == ["DL-FILE-03"]


def test_the_error_of_a_submitted_job_is_that_of_the_run(platform: Platform, driver: Any) -> None:
    error = {"code": "MA-105", "table": "no.such", "message": "unknown", "remedy": "register it"}
    driver({"ok": False, "job": "backfill", "error": error})
    done = run(platform, "spark_backfill", "publish_by_spark", tables=["no.such"])
    assert "MA-105 no.such: unknown. Remedy: register it" in failure(done)


def test_a_driver_that_ends_without_an_answer_fails_the_run(
    platform: Platform, driver: Any
) -> None:
    driver(None)
    assert "ended with code 3, and without an answer" in failure(run(platform, "spark_backfill"))


@pytest.mark.parametrize(
    ("command", "master", "message"),
    [
        ("no-such-command", "local[2]", "there is no command no-such-command"),
        ("spark-submit", "sc://cluster:15002", "does not go to sc://cluster:15002"),
    ],
)
def test_a_command_that_cannot_work_is_told(
    platform: Platform, command: str, master: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRROR_SPARK_SUBMIT", command)
    monkeypatch.setenv("MIRROR_SPARK_MASTER", master)
    assert message in failure(run(platform, "spark_backfill"))


def test_every_job_takes_what_its_module_takes(platform: Platform, driver: Any) -> None:
    configs: dict[str, dict[str, Any]] = {
        "spark_rebuild": {"places": {"sales.orders": "/elsewhere"}},
        "spark_import": {"places": {"sales.orders": "/elsewhere"}},
    }
    words = {}
    for job in JOBS:
        asked = driver({"ok": True, "job": job.name})
        (op,) = job.nodes
        assert run(platform, job.name, op.name, **configs.get(job.name, {})).success
        found = json.loads(asked.read_text())
        words[found["job"]] = found["args"]
    assert words == {
        "checkpoints": [],
        "backfill": [],
        "compare": [],
        "reconcile": ["--mode", "full"],
        "rebuild": ["sales.orders=/elsewhere"],
        "imports": ["--history", "full", "--dry-run", "sales.orders=/elsewhere"],
    }
