"""What each command answers: the fields of the contract, on every engine."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from mirror_assets.cli.app import app
from mirror_assets.conformance.rulebook import rulebook
from mirror_assets_tests.cli.conftest import SCHEMA, Cli, add, remove

if TYPE_CHECKING:
    from pathlib import Path


def test_init_says_the_revision_and_may_be_repeated(metastore_url: str, home: Path) -> None:
    cli = Cli(metastore_url, home)
    first = cli.ok("init")
    assert first["revision"]
    assert cli.ok("init") == first


def test_create_commits_version_zero(any_cli: Cli) -> None:
    created = any_cli.create("db.t", "--property", "delta.appendOnly=true", location="./tables/t")
    assert (created["table"], created["version"]) == ("db.t", 0)
    assert created["location"] == f"file://{any_cli.home}/tables/t"
    state = any_cli.ok("state", "db.t")
    assert state["metadata"]["partitionColumns"] == ["day"]
    assert state["metadata"]["configuration"]["delta.appendOnly"] == "true"
    assert json.loads(state["metadata"]["schemaString"]) == SCHEMA


def test_a_day_in_the_life_of_a_table(any_cli: Cli) -> None:
    any_cli.create()
    first = any_cli.commit("db.t", add("day=1/a.parquet"), add("day=1/b.parquet", size=5))
    assert (first["outcome"], first["version"], first["reason"]) == ("committed", 1, None)
    second = any_cli.commit("db.t", remove("day=1/a.parquet"), options=("--read-version", "1"))
    assert second["version"] == 2

    now = any_cli.ok("state", "db.t", "--files")
    assert (now["version"], now["num_files"], now["size_bytes"]) == (2, 1, 5)
    assert now["files"] == [add("day=1/b.parquet", size=5)["add"]]
    assert set(now["protocol"]) >= {"minReaderVersion", "minWriterVersion"}

    then = any_cli.ok("state", "db.t", "--version", "1", "--files")
    assert [file["path"] for file in then["files"]] == ["day=1/a.parquet", "day=1/b.parquet"]
    for moment in (str(first["timestamp_ms"]), then["timestamp"]):
        assert any_cli.ok("state", "db.t", "--timestamp", moment)["version"] == 1
    assert any_cli.ok("state", "db.t")["files"] is None

    commits = any_cli.ok("history", "db.t")["commits"]
    assert [commit["version"] for commit in commits] == [2, 1, 0]
    assert [commit["operation"] for commit in commits] == ["DELETE", "WRITE", "CREATE TABLE"]
    assert [(c["num_adds"], c["num_removes"]) for c in commits] == [(0, 1), (2, 0), (0, 0)]
    assert [commit["mirror_state"] for commit in commits] == ["PENDING", "PENDING", "SUCCESS"]
    assert commits[1]["timestamp_ms"] == first["timestamp_ms"]
    assert len(any_cli.ok("history", "db.t", "--limit", "2")["commits"]) == 2

    (table,) = any_cli.ok("tables")["tables"]
    assert table["table"] == "db.t"
    assert table["location"] == f"file://{any_cli.home}/db.t"
    assert (table["head_version"], table["mirrored_version"], table["state"]) == (2, 0, "ACTIVE")
    assert table["protocol"] == now["protocol"]


def test_actions_may_come_from_stdin(cli: Cli) -> None:
    cli.create()
    done = cli.ok("commit", "db.t", "--actions", "-", stdin=json.dumps(add()))
    assert done["version"] == 1


def test_the_same_commit_id_commits_once(any_cli: Cli) -> None:
    any_cli.create()
    options = ("--commit-id", str(uuid.uuid4()))
    any_cli.commit("db.t", add(), options=options)
    again = any_cli.commit("db.t", add(), options=options)
    assert (again["outcome"], again["version"]) == ("already_committed", 1)
    assert again["reason"] == "commit_id"


def test_the_same_application_version_commits_once(any_cli: Cli) -> None:
    any_cli.create()
    options = ("--app-id", "loader", "--app-version", "7")
    any_cli.commit("db.t", add(), options=options)
    again = any_cli.commit("db.t", add("day=1/b.parquet"), options=options)
    assert (again["outcome"], again["version"], again["reason"]) == ("already_committed", 1, "txn")


def test_a_txn_of_the_file_is_not_added_a_second_time(cli: Cli) -> None:
    cli.create()
    txn = {"txn": {"appId": "loader", "version": 7}}
    cli.commit("db.t", add(), txn, options=("--app-id", "loader", "--app-version", "7"))
    assert cli.ok("history", "db.t")["commits"][0]["num_txns"] == 1


def test_a_conflict_names_the_winner_and_exits_with_one(any_cli: Cli) -> None:
    any_cli.create()
    any_cli.commit("db.t", add())
    any_cli.commit("db.t", remove())
    file = any_cli.file("again.json", remove(), add("day=1/b.parquet"))
    before = any_cli.dump()
    done = any_cli.json("commit", "db.t", "--actions", file, "--read-version", "1")
    assert done.exit_code == 1
    assert done.json["outcome"] == "conflict"
    assert (done.json["version"], done.json["reason"]) == (2, "concurrent_delete_delete")
    assert any_cli.dump() == before


def test_several_tables_are_committed_together(any_cli: Cli) -> None:
    for name in ("db.a", "db.b"):
        any_cli.create(name)
    file = any_cli.file("add.json", add())
    done = any_cli.ok("commit", "--table", f"db.a={file}", "--table", f"db.b={file}")
    assert (done["outcome"], done["version"], done["reason"]) == ("committed", None, None)
    assert [(t["table"], t["version"]) for t in done["tables"]] == [("db.a", 1), ("db.b", 1)]
    (a,), (b,) = (any_cli.ok("history", n, "--limit", "1")["commits"] for n in ("db.a", "db.b"))
    assert a["group_id"] == b["group_id"] is not None


def test_a_conflict_of_one_table_stops_all(any_cli: Cli) -> None:
    for name in ("db.a", "db.b"):
        any_cli.create(name)
    any_cli.commit("db.b", add())
    any_cli.commit("db.b", remove())
    more = any_cli.file("more.json", add("day=1/x.parquet"))
    gone = any_cli.file("gone.json", remove())
    before = any_cli.dump()
    done = any_cli.json(
        *("commit", "--table", f"db.a={more}", "--table", f"db.b={gone}"),
        *("--read-version", "db.b=1"),
    )
    assert (done.exit_code, done.json["outcome"]) == (1, "conflict")
    assert done.json["tables"][0]["table"] == "db.b"
    assert any_cli.dump() == before


def test_doctor_finds_nothing_wrong(any_cli: Cli) -> None:
    done = any_cli.ok("doctor")
    assert done["ok"] is True
    names = [check["name"] for check in done["checks"]]
    assert names == [
        *("python", "packages", "java", "environment", "allowed_roots"),
        *("metastore", "schema_revision", "writable", "clock", "stores"),
    ]
    assert all(set(check) == {"name", "ok", "detail", "remedy"} for check in done["checks"])


def test_doctor_names_what_is_wrong(bare: Cli) -> None:
    done = bare.json("doctor")
    assert done.exit_code == 1
    assert done.json["ok"] is False
    broken = [check for check in done.json["checks"] if not check["ok"]]
    assert [check["name"] for check in broken] == ["metastore"]
    assert "init" in broken[0]["remedy"]
    assert list(bare.home.iterdir()) == []


def test_config_show_hides_the_password_and_names_the_source(bare: Cli) -> None:
    bare.env = {"MIRROR_METASTORE_URL": "postgresql://user:secret@host/db"}
    for words in (("config", "show", "--json"), ("config", "show")):
        done = bare.run(*words)
        assert done.exit_code == 0
        assert "secret" not in done.stdout + done.stderr
        assert "postgresql://user:***@host/db" in done.stdout
        assert "environment" in done.stdout


def test_an_option_wins_over_the_environment(bare: Cli) -> None:
    bare.env = {"MIRROR_METASTORE_URL": "sqlite:///env.db"}
    found = {setting["key"]: setting for setting in bare.ok("config", "show")["settings"]}
    assert found["metastore_url"]["source"] == "option"


@pytest.mark.parametrize("code", ["MA-101", "ma-301", "MA-112", "MA-602"])
def test_explain_knows_every_code(bare: Cli, code: str) -> None:
    done = bare.ok("explain", code)
    assert done["code"] == code.upper()
    assert done["meaning"]
    assert done["remedy"]


@pytest.mark.parametrize("rule", rulebook())
def test_explain_knows_every_rule(rule: str) -> None:
    done = json.loads(CliRunner().invoke(app, ["explain", rule, "--json"]).stdout)
    assert done["code"] == rule
    assert done["meaning"]
    assert done["remedy"]


def test_explain_of_anything_else_is_a_usage_error(bare: Cli) -> None:
    assert "MA-301" in bare.refused("explain", "MA-391", code=2)["remedy"]


def test_people_get_tables_without_json(cli: Cli) -> None:
    cli.create("db.t")
    cli.commit("db.t", add("day=1/[red]x[/red].parquet".replace("[", "%5B").replace("]", "%5D")))
    for words in (
        ("tables",),
        ("history", "db.t"),
        ("state", "db.t", "--files"),
        ("doctor",),
        ("config", "show"),
        ("explain", "MA-101"),
        ("init",),
    ):
        done = cli.run(*words, "--metastore", cli.url)
        assert done.exit_code == 0, done
        assert done.stdout.strip()
        assert done.stderr == ""


def test_an_empty_metastore_says_how_to_begin(cli: Cli) -> None:
    done = cli.run("tables", "--metastore", cli.url)
    assert "mirror-assets create" in done.stdout
