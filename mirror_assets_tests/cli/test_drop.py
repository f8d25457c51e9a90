"""`drop`: SQL forgets a table, the store does not."""

from __future__ import annotations

from deltalake import DeltaTable

from mirror_assets_tests.cli.conftest import Cli, add


def test_drop_tells_before_it_acts_and_leaves_the_log_alone(cli: Cli):
    cli.create("db.t")
    cli.commit("db.t", add("day=1/a.parquet"))
    cli.ok("mirror")
    cli.commit("db.t", add("day=1/b.parquet"))

    told = cli.ok("drop", "db.t")
    assert (told["applied"], told["versions"], told["unmirrored_versions"]) == (False, 3, 1)
    assert [table["table"] for table in cli.ok("tables")["tables"]] == ["db.t"]

    assert cli.ok("drop", "db.t", "--apply")["state"] == "DROPPED"
    assert cli.ok("tables")["tables"] == []
    assert cli.refused("state", "db.t")["code"] == "MA-105"
    root = cli.home / "db.t"
    assert DeltaTable(str(root)).version() == 1

    again = cli.ok("import", str(root), "--name", "db.t")
    assert again["version"] == 1
    assert cli.commit("db.t", add("day=1/c.parquet"))["version"] == 2
