"""`diff`, `reconcile`, `cleanup` and `rebuild` as an operator types them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from mirror_assets_tests.cli.conftest import Cli, add

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def log(cli: Cli) -> Path:
    """The log of db.t: version 0 to 4, published, with a checkpoint of version 3."""
    cli.create()
    for number in range(4):
        cli.commit("db.t", add(f"day=1/{number}.parquet"))
    cli.ok("mirror", "db.t")
    cli.ok("checkpoint", "db.t", "--version", "3")
    return cli.home / "db.t" / "_delta_log"


def commit_file(log: Path, version: int) -> Path:
    return log / f"{version:020d}.json"


def test_a_whole_log_needs_nothing(cli: Cli, log: Path) -> None:
    assert log.is_dir()
    why = {
        "incremental": "only --mode full reads the commit files",
        "smart": "only --mode full reads the commit files",
        "full": "5 published commits of 1 tables; Spark from 500000 of 20 on",
    }
    for mode, reason in why.items():
        assert cli.ok("reconcile", "--mode", mode) == {
            "findings": [],
            "plan": [],
            "applied": [],
            "recommended_next_mode": "incremental",
            "engine": "arrow",
            "engine_reason": reason,
        }
    assert cli.ok("diff", "db.t") == {"table": "db.t", "findings": []}
    assert "agree" in cli.run("diff", "db.t", "--metastore", cli.url).stdout


def test_a_gap_is_planned_then_repaired(cli: Cli, log: Path) -> None:
    file = commit_file(log, 2)
    data = file.read_bytes()
    file.unlink()
    planned = cli.json("reconcile", "db.t")
    assert planned.exit_code == 1
    assert not file.exists()
    (finding,), (repair,) = planned.json["findings"], planned.json["plan"]
    assert (finding["rule"], finding["severity"], finding["version"]) == ("DL-FILE-03", "error", 2)
    assert finding["remedy"]
    assert (repair["kind"], repair["file"]) == ("republish", file.name)
    assert planned.json["recommended_next_mode"] == "full"
    done = cli.ok("reconcile", "db.t", "--apply")
    assert (done["findings"], done["applied"]) == ([], planned.json["plan"])
    assert file.read_bytes() == data


def test_a_person_sees_the_way_out_of_every_finding(cli: Cli, log: Path) -> None:
    commit_file(log, 2).unlink()
    (finding,) = cli.json("reconcile", "db.t").json["findings"]
    shown = cli.run("reconcile", "db.t", "--metastore", cli.url)
    assert f"remedy for DL-FILE-03: {finding['remedy']}" in shown.stderr
    cli.create("db.other")
    (cli.home / "db.other" / "_delta_log" / f"{0:020d}.json").unlink()
    shown = cli.run("reconcile", "--metastore", cli.url)
    assert "db.other" in shown.stderr


def test_other_content_is_shown_and_left_alone(cli: Cli, log: Path) -> None:
    file = commit_file(log, 2)
    file.write_bytes(file.read_bytes().replace(b'"size":10', b'"size":11'))
    data = file.read_bytes()
    shown = cli.json("diff", "db.t")
    assert shown.exit_code == 1
    (finding,) = shown.json["findings"]
    assert finding["message"] == "add day=1/1.parquet: size is 10 in SQL, 11 in the log"
    done = cli.json("reconcile", "--mode", "full", "--apply")
    assert (done.exit_code, done.json["applied"]) == (1, [])
    assert file.read_bytes() == data
    assert cli.ok("diff", "db.t", "--version", "1")["findings"] == []
    told = cli.run("reconcile", "--mode", "full", "--metastore", cli.url)
    assert (told.exit_code, "DL-FILE-02" in told.stderr) == (1, True)


def test_one_table_that_cannot_be_looked_at_does_not_hide_the_others(
    cli: Cli, log: Path, execute: Callable[[str, str], None]
) -> None:
    cli.create("db.other")
    execute(cli.url, "UPDATE dl_tables SET location = 's3://' WHERE name = 'db.other'")
    commit_file(log, 2).unlink()
    done = cli.json("reconcile", "--apply")
    assert done.exit_code == 1
    assert [finding["table"] for finding in done.json["findings"]] == ["db.other"]
    assert [repair["table"] for repair in done.json["applied"]] == ["db.t"]


def test_cleanup_plans_then_deletes(
    cli: Cli, log: Path, execute: Callable[[str, str], None]
) -> None:
    young = cli.ok("cleanup", "db.t", "--apply")
    assert (young["delete"], young["keep_from"]) == ([], None)
    execute(cli.url, "UPDATE dl_table_versions SET timestamp_ms = timestamp_ms - 3456000000")
    plan = cli.ok("cleanup", "db.t")
    assert plan["keep_from"] == 3
    assert plan["delete"][:3] == [commit_file(log, version).name for version in range(3)]
    assert commit_file(log, 0).exists()
    assert cli.ok("cleanup", "db.t", "--apply") == plan | {"applied": True}
    assert not commit_file(log, 0).exists()
    assert DeltaTable(str(log.parent)).version() == 4
    assert cli.ok("reconcile", "--mode", "full")["findings"] == []


def test_cleanup_is_refused_while_something_waits(cli: Cli, log: Path) -> None:
    cli.commit("db.t", add("day=1/late.parquet"))
    assert cli.refused("cleanup", "db.t")["code"] == "MA-108"
    assert commit_file(log, 0).exists()


def test_rebuild_makes_the_same_log_elsewhere(cli: Cli, log: Path) -> None:
    done = cli.ok("rebuild", "db.t", "--to", "./copy")
    assert (done["commits"], done["checkpoints"]) == (5, [4])
    copy = cli.home / "copy"
    for version in range(5):
        there = commit_file(copy / "_delta_log", version)
        assert there.read_bytes() == commit_file(log, version).read_bytes()
    assert DeltaTable(str(copy)).version() == 4
    assert cli.refused("rebuild", "db.t", "--to", "./copy")["code"] == "MA-106"


@pytest.mark.parametrize("word", ["diff", "reconcile", "cleanup"])
def test_an_unknown_table_is_refused(cli: Cli, word: str) -> None:
    assert cli.refused(word, "db.none")["code"] == "MA-105"
    assert cli.refused("rebuild", "db.none", "--to", "./copy")["code"] == "MA-105"


def test_rebuild_stays_below_the_allowed_roots(cli: Cli, log: Path) -> None:
    assert log.is_dir()
    fenced = Cli(cli.url, cli.home, {"MIRROR_ALLOWED_ROOTS": f"file://{cli.home}/lake"})
    assert fenced.refused("rebuild", "db.t", "--to", "./copy")["code"] == "MA-201"
