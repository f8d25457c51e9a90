"""`fence`, `unfence`, `release`, `adopt` and `fork` as an operator types them."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from mirror_assets_tests.cli.conftest import Cli, add
from mirror_assets_tests.mirror.foreigners import rows

NO_ICT = ("--property", "delta.enableInCommitTimestamps=false")


def test_fence_changes_are_published_at_once(any_cli: Cli) -> None:
    cli = any_cli
    cli.create("db.t", *NO_ICT)
    up = cli.ok("fence", "db.t")
    assert (up["table"], up["state"], up["version"], up["visible"]) == ("db.t", "FENCED", 1, True)
    assert up["protocol"]["writerFeatures"] == ["appendOnly", "invariants", "mirrorAssetsFence"]
    (table,) = cli.ok("tables")["tables"]
    assert table["fenced"]
    again = cli.ok("fence", "db.t")
    assert (again["state"], again["version"], again["visible"]) == ("FENCED", None, True)
    down = cli.ok("unfence", "db.t")
    assert (down["state"], down["version"], down["visible"]) == ("UNFENCED", 2, True)
    assert down["protocol"] == {"minReaderVersion": 1, "minWriterVersion": 2}
    assert DeltaTable(str(cli.home / "db.t")).version() == 2
    operations = [commit["operation"] for commit in cli.ok("history", "db.t")["commits"]]
    assert operations == ["DROP FEATURE", "UPGRADE PROTOCOL", "CREATE TABLE"]


def test_release_gives_the_table_back_and_takes_no_commits(any_cli: Cli) -> None:
    cli = any_cli
    cli.create("db.t", *NO_ICT)
    cli.commit("db.t", add())
    cli.ok("fence", "db.t")
    done = cli.ok("release", "db.t")
    assert (done["table"], done["state"], done["version"]) == ("db.t", "RELEASED", 3)
    assert done["checkpoint_version"] == 3
    assert done["features"] == ["appendOnly", "invariants"]
    refused = cli.refused("commit", "db.t", "--actions", cli.file("a.json", add("day=1/b.parquet")))
    assert (refused["code"], refused["table"]) == ("MA-108", "db.t")
    assert "adopt db.t --apply" in refused["remedy"]
    for word in ("fence", "checkpoint", "cleanup"):
        assert cli.refused(word, "db.t")["code"] == "MA-108"
    assert cli.ok("mirror")["tables"][0]["state"] == "RELEASED"
    assert cli.ok("reconcile", "--mode", "full")["findings"][0]["severity"] == "info"
    assert cli.ok("status", "--fail-on-lag", "0")["tables"][0]["state"] == "RELEASED"
    taken = cli.refused("import", str(cli.home / "db.t"), "--name", "db.t")
    assert (taken["code"], "adopt db.t" in taken["remedy"]) == ("MA-106", True)


def test_a_table_that_deltalake_wrote_is_fenced_and_released(cli: Cli) -> None:
    root = str(cli.home / "theirs")
    write_deltalake(root, rows(1))
    cli.ok("import", root, "--name", "db.theirs")
    cli.ok("fence", "db.theirs")
    with pytest.raises(CommitFailedError, match="mirrorAssetsFence"):
        write_deltalake(root, rows(2), mode="append")
    cli.ok("release", "db.theirs")
    write_deltalake(root, rows(2), mode="append")
    assert DeltaTable(root).to_pyarrow_table().num_rows == 2


def test_adopt_plans_then_takes_a_table_back(cli: Cli) -> None:
    root = str(cli.home / "theirs")
    write_deltalake(root, rows(1))
    cli.ok("import", root, "--name", "db.theirs")
    assert cli.ok("adopt", "db.theirs")["commits"] == []
    write_deltalake(root, rows(2), mode="append")
    plan = cli.ok("adopt", "db.theirs")
    assert (plan["applied"], plan["head_version"], plan["version"]) == (False, 0, 1)
    (commit,) = plan["commits"]
    assert (commit["operation"], commit["num_adds"]) == ("WRITE", 1)
    assert cli.ok("state", "db.theirs")["version"] == 0
    assert cli.ok("adopt", "db.theirs", "--apply") == {**plan, "applied": True}
    assert cli.ok("state", "db.theirs")["num_files"] == 2
    cli.ok("release", "db.theirs")
    assert cli.ok("adopt", "db.theirs")["state"] == "RELEASED"
    assert cli.ok("adopt", "db.theirs", "--apply")["state"] == "OK"
    assert cli.ok("fence", "db.theirs")["visible"]


def test_a_fenced_log_is_another_metastores_until_that_one_is_gone(cli: Cli) -> None:
    cli.create("db.t", *NO_ICT)
    cli.ok("fence", "db.t")
    root = str(cli.home / "db.t")
    second = Cli(f"sqlite:///{cli.home}/second.db", cli.home)
    second.ok("init")
    words = ("import", root, "--name", "db.t")
    for options in ((), ("--dry-run",)):
        refused = second.json(*words, *options)
        assert (refused.exit_code, refused.error["code"]) == (1, "MA-304")
        assert "release" in refused.error["remedy"]
        assert "--take-over" in refused.error["remedy"]
    assert second.ok("tables")["tables"] == []
    assert second.ok(*words, "--take-over")["version"] == 1
    assert second.ok("unfence", "db.t")["visible"]
    assert second.ok("release", "db.t")["state"] == "RELEASED"


def test_fork_plans_then_moves_the_table(any_cli: Cli) -> None:
    cli = any_cli
    cli.create("db.t", *NO_ICT)
    cli.commit("db.t", add("day=1/a.parquet", size=4))
    (cli.home / "db.t/_delta_log" / f"{1:020}.json").write_text("{}")
    assert cli.json("mirror").json["tables"][0]["state"] == "DIVERGED"
    plan = cli.json("fork", "db.t", "--to", "./new")
    assert (plan.exit_code, plan.json["state"], plan.json["applied"]) == (1, "DIVERGED", False)
    assert (plan.json["num_missing"], plan.json["missing"]) == (1, ["day=1/a.parquet"])
    assert cli.refused("fork", "db.t", "--to", "./new", "--apply")["code"] == "MA-108"
    assert not (cli.home / "new").exists()
    (cli.home / "new/day=1").mkdir(parents=True)
    (cli.home / "new/day=1/a.parquet").write_bytes(b"data")
    assert cli.ok("fork", "db.t", "--to", "./new")["num_missing"] == 0
    done = cli.ok("fork", "db.t", "--to", "./new", "--apply")
    assert (done["state"], done["commits"], done["checkpoints"]) == ("OK", 2, [1])
    cli.commit("db.t", add("day=1/b.parquet"))
    assert cli.ok("mirror")["tables"][0]["mirrored_version"] == 2
    assert DeltaTable(str(cli.home / "new")).version() == 2
    (table,) = cli.ok("tables")["tables"]
    assert table["location"] == f"file://{cli.home}/new"
    assert cli.refused("fork", "db.t", "--to", "./new")["code"] == "MA-106"
    assert cli.refused("fork", "db.t", "--to", "./a/../b")["code"] == "MA-201"
    assert cli.refused("fork", "db.none", "--to", "./b")["code"] == "MA-105"
    assert cli.run("fork", "db.t", "--metastore", cli.url).exit_code == 2


@pytest.mark.parametrize("word", ["fence", "unfence", "release", "adopt"])
def test_unknown_tables_are_refused(cli: Cli, word: str) -> None:
    assert cli.refused(word, "db.none")["code"] == "MA-105"
    assert cli.refused(word, "no\0name")["code"] == "MA-105"
