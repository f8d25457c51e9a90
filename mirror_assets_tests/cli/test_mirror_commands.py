"""`mirror`, `status`, `checkpoint`, `pause`, `resume`, `verify-store`, and `commit --wait`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from mirror_assets_tests.cli.conftest import Cli, add

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror_assets_tests.store_services import S3Server

STATUS = {
    *("table", "head_version", "mirrored_version", "checkpoint_version", "state", "reason"),
    *("lag_versions", "lag_seconds", "last_error"),
}


def commits(cli: Cli, name: str, number: int) -> None:
    for each in range(number):
        cli.commit(name, add(f"day=1/{name}-{each}.parquet"))


def status(cli: Cli, name: str = "db.t") -> dict[str, Any]:
    (found,) = cli.ok("status", name)["tables"]
    return found


def log(cli: Cli, name: str = "db.t") -> Path:
    return cli.home / name / "_delta_log"


def test_commits_become_files_that_deltalake_reads(any_cli: Cli) -> None:
    cli = any_cli
    assert cli.create()["visible"] is True
    commits(cli, "db.t", 2)
    before = status(cli)
    assert set(before) >= STATUS
    assert (before["head_version"], before["mirrored_version"]) == (2, 0)
    assert (before["state"], before["lag_versions"], before["lag_seconds"] > 0) == ("OK", 2, True)
    (done,) = cli.ok("mirror")["tables"]
    expected = {"table": "db.t", "mirrored_version": 2, "commits": 2, "checkpoints": 0}
    assert {key: done[key] for key in expected} == expected
    assert done["failed"] is False
    after = status(cli)
    assert (after["lag_versions"], after["lag_seconds"], after["last_error"]) == (0, 0, None)
    assert len(DeltaTable(str(cli.home / "db.t")).file_uris()) == 2


def test_only_the_named_tables_up_to_the_named_version(cli: Cli) -> None:
    for name in ("db.a", "db.b"):
        cli.create(name)
        commits(cli, name, 3)
    (done,) = cli.ok("mirror", "db.a", "--to-version", "2")["tables"]
    assert (done["table"], done["mirrored_version"], done["commits"]) == ("db.a", 2, 2)
    assert status(cli, "db.b")["mirrored_version"] == 0


def test_a_due_checkpoint_comes_with_the_commits(cli: Cli) -> None:
    cli.create("db.t", "--property", "delta.checkpointInterval=2")
    commits(cli, "db.t", 2)
    (done,) = cli.ok("mirror")["tables"]
    assert done["checkpoints"] == 1
    assert status(cli)["checkpoint_version"] == 2


def test_a_checkpoint_by_hand(cli: Cli) -> None:
    cli.create()
    commits(cli, "db.t", 2)
    cli.ok("mirror")
    old = cli.ok("checkpoint", "db.t", "--version", "1")
    assert (old["version"], old["is_new"]) == (1, True)
    new = cli.ok("checkpoint", "db.t")
    assert set(new) >= {"version", "actions", "bytes", "seconds"}
    assert (new["version"], new["actions"]) == (2, 4)
    assert cli.ok("checkpoint", "db.t")["is_new"] is False
    refused = cli.refused("checkpoint", "db.t", "--version", "9")
    assert refused["error"] == "TableStateError"


def test_a_table_that_stops_is_exit_code_1_and_the_others_are_published(cli: Cli) -> None:
    for name in ("db.bad", "db.good"):
        cli.create(name)
        commits(cli, name, 1)
    (log(cli, "db.bad") / f"{1:020d}.json").write_text("{}")
    done = cli.json("mirror")
    bad, good = done.json["tables"]
    assert (done.exit_code, bad["failed"], bad["state"]) == (1, True, "DIVERGED")
    assert (good["failed"], good["mirrored_version"]) == (False, 1)
    assert cli.json("status", "--fail-on-lag", "1000").exit_code == 1
    assert cli.json("status", "db.good", "--fail-on-lag", "1000").exit_code == 0
    assert "MA-402" in status(cli, "db.bad")["last_error"]


def test_pause_and_resume_a_table_or_all(cli: Cli) -> None:
    for name in ("db.a", "db.b"):
        cli.create(name)
        commits(cli, name, 1)
    assert cli.ok("pause", "db.a") == {"table": "db.a", "state": "PAUSED"}
    cli.ok("mirror")
    assert (status(cli, "db.a")["state"], status(cli, "db.a")["lag_versions"]) == ("PAUSED", 1)
    assert status(cli, "db.b")["lag_versions"] == 0
    everything = cli.ok("pause")
    assert (everything["table"], everything["state"]) == (None, "PAUSED")
    assert [table["state"] for table in cli.ok("resume")["tables"]] == ["OK", "OK"]
    cli.ok("mirror")
    assert status(cli, "db.a")["lag_versions"] == 0


def test_what_is_known_of_each_version(cli: Cli) -> None:
    cli.create()
    commits(cli, "db.t", 1)
    (found,) = cli.ok("status", "db.t", "--versions")["tables"]
    pending, published = found["versions"]
    assert (pending["version"], pending["status"]) == (1, "PENDING")
    assert (published["status"], published["resolved_by"]) == ("SUCCESS", "put")


def test_what_makes_no_sense_is_refused(cli: Cli) -> None:
    cli.refused("mirror", "--follow", "--engine", "spark", code=2)
    cli.refused("mirror", "--follow", "--to-version", "1", code=2)
    for word in ("mirror", "status", "checkpoint", "pause", "resume"):
        assert cli.refused(word, "db.none")["error"] == "TableNotFoundError"


def test_a_store_is_verified(cli: Cli, rclone_s3: S3Server) -> None:
    safe = cli.ok("verify-store", "./somewhere")
    assert (safe["safe"], safe["findings"]) == (True, [])
    cli.env = through(rclone_s3)
    done = cli.json("verify-store", f"s3://{rclone_s3.bucket}/somewhere")
    assert (done.exit_code, done.json["safe"], done.json["remembered"]) == (1, False, True)


@pytest.mark.xdist_group("seaweedfs")
def test_a_real_s3_server_is_safe(cli: Cli, seaweedfs: S3Server) -> None:
    cli.env = through(seaweedfs)
    done = cli.ok("verify-store", f"s3://{seaweedfs.bucket}/{cli.home.name}")
    assert (done["safe"], done["findings"]) == (True, [])


def test_an_unsafe_store_is_said_plainly_and_so_is_who_answers_for_it(
    cli: Cli, rclone_s3: S3Server
) -> None:
    name = f"s3://{rclone_s3.bucket}"
    cli.env = through(rclone_s3)
    cli.json("verify-store", f"{name}/somewhere")
    cli.create(location=f"{name}/{cli.home.name}/t")
    refused = cli.json("mirror")
    (table,) = refused.json["tables"]
    assert (refused.exit_code, table["state"]) == (1, "PAUSED")
    assert "single_writer" in table["reason"]
    (check,) = (c for c in cli.json("doctor").json["checks"] if c["name"] == "stores")
    assert (check["ok"], name in check["remedy"]) == (False, True)

    cli.env = {**cli.env, "MIRROR_SINGLE_WRITER": name}
    cli.ok("resume", "db.t")
    assert cli.ok("mirror")["tables"][0]["mirrored_version"] == 0
    said = cli.json("status")
    (store,) = (s for s in said.json["stores"] if s["store"] == name)
    assert (store["safe"], store["single_writer"]) == (False, True)
    assert "only SQL's lease" in said.stderr
    (check,) = (c for c in cli.json("doctor").json["checks"] if c["name"] == "stores")
    assert (check["ok"], "only SQL's lease" in check["detail"]) == (True, True)


def test_a_store_is_reached_by_settings_and_credentials_by_name(
    cli: Cli, moto_s3: S3Server
) -> None:
    canary = "canary-4711"  # moto checks no signatures
    cli.env = {**through(moto_s3), "TEST_SECRET": canary}
    cli.create(location=f"s3://{moto_s3.bucket}/{cli.home.name}/t")
    commits(cli, "db.t", 2)
    cli.ok("mirror")
    assert status(cli)["mirrored_version"] == 2
    shown = cli.run("config", "show").stdout + cli.run("status", "--metastore", cli.url).stdout
    assert "TEST_SECRET" in shown
    assert canary not in shown + str(cli.dump())


def test_a_credential_that_is_not_set_is_named(cli: Cli) -> None:
    cli.env = {"MIRROR_STORE_CREDENTIALS": "secret_access_key=NO_SUCH_VARIABLE"}
    error = cli.refused("verify-store", "s3://bucket/t", code=2)
    assert "NO_SUCH_VARIABLE" in error["message"]


def test_wait_says_whether_the_commit_is_in_the_log(any_cli: Cli) -> None:
    cli = any_cli
    cli.create()
    assert cli.commit("db.t", add(), options=("--wait", "10"))["visible"] is True
    assert (log(cli) / f"{1:020d}.json").exists()
    assert "visible" not in cli.commit("db.t", add("day=1/b.parquet"))


def test_waiting_never_fails_or_slows_a_commit(cli: Cli) -> None:
    cli.create()
    (cli.home / "db.t").rename(cli.home / "away")
    (cli.home / "db.t").write_text("a file is in the way")
    started = time.monotonic()
    done = cli.commit("db.t", add(), options=("--wait", "1"))
    assert (done["outcome"], done["version"], done["visible"]) == ("committed", 1, False)
    assert time.monotonic() - started < 15
    (cli.home / "db.t").unlink()
    (cli.home / "away").rename(cli.home / "db.t")
    cli.ok("resume", "db.t")


def test_a_conflict_is_not_waited_for(cli: Cli) -> None:
    cli.create()
    cli.commit("db.t", add())
    gone = {"remove": {"path": "day=1/a.parquet", "dataChange": True}}
    file = cli.file("gone.json", gone)
    assert cli.ok("commit", "db.t", "--actions", file, "--read-version", "1")["version"] == 2
    words = ("commit", "db.t", "--actions", file, "--read-version", "1", "--wait", "5")
    done = cli.json(*words)
    assert (done.exit_code, done.json["outcome"], done.json["visible"]) == (1, "conflict", False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_follower_drains_on_a_signal(cli: Cli, number: signal.Signals, tmp_path: Path) -> None:
    cli.create()
    errors = tmp_path / "stderr"
    with errors.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "mirror_assets_tests.cli.run", "mirror", "--follow", "--json"],
            env={**os.environ, "MIRROR_METASTORE_URL": cli.url, "MIRROR_LOG_LEVEL": "info"},
            stdout=subprocess.PIPE,
            stderr=stream,
            text=True,
        )
        wait_for(lambda: b"follower_started" in errors.read_bytes())
        commits(cli, "db.t", 2)
        wait_for(lambda: status(cli)["mirrored_version"] == 2)
        process.send_signal(number)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, errors.read_text()
    assert '"commits":2' in out
    assert b"follower_stopped" in errors.read_bytes()
    assert cli.ok("status")["followers"] == []


def through(server: S3Server) -> dict[str, str]:
    return {
        "MIRROR_STORE_ENDPOINT": server.endpoint,
        "MIRROR_STORE_REGION": "us-east-1",
        "MIRROR_STORE_CREDENTIALS": "access_key_id=TEST_KEY,secret_access_key=TEST_SECRET",
        "TEST_KEY": server.access_key,
        "TEST_SECRET": server.secret_key,
    }


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_cut_names_what_can_be_read_together(cli):
    for name in ("db.a", "db.b"):
        cli.create(name)
    cli.ok("pause", "db.b")
    actions = cli.file("actions.json", add())
    cli.ok("commit", "--table", f"db.a={actions}", "--table", f"db.b={actions}", "--wait", "5")

    torn = cli.ok("cut", "db.a", "db.b")
    assert [(t["table"], t["version"]) for t in torn["tables"]] == [("db.a", 0), ("db.b", 0)]
    (group,) = torn["incomplete"]
    assert (group["published"], group["missing"]) == ({"db.a": 1}, {"db.b": 1})

    cli.ok("resume", "db.b")
    cli.ok("mirror")
    whole = cli.ok("cut")
    assert [(t["table"], t["version"]) for t in whole["tables"]] == [("db.a", 1), ("db.b", 1)]
    assert whole["incomplete"] == []
