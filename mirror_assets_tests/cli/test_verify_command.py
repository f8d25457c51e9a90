"""`verify` as an operator types it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from mirror_assets_tests.cli.conftest import Cli, add

#: tables of the corpora without an error, by the profile
SOUND = {"strict": 156, "foreign": 163, "read": 165}


@pytest.fixture
def root(cli: Cli) -> Path:
    """The table db.t: version 0 to 3, published, with a checkpoint of version 2."""
    cli.create()
    for number in range(3):
        cli.commit("db.t", add(f"day=1/{number}.parquet"))
    cli.ok("mirror", "db.t")
    cli.ok("checkpoint", "db.t", "--version", "2")
    return cli.home / "db.t"


def test_a_table_of_ours_is_clean(cli: Cli, root: Path) -> None:
    for words in (("db.t",), ("--path", str(root)), ("--path", str(root), "--profile", "strict")):
        document = cli.ok("verify", *words)
        assert [f for f in document["findings"] if f["severity"] != "info"] == []
        assert document["checked"]["versions"] == 4
        assert document["checked"]["files"] >= 6
        assert document["checked"]["rules"] > 100


def test_damage_is_told_with_rule_place_and_remedy(cli: Cli, root: Path) -> None:
    file = root / "_delta_log" / f"{3:020d}.json"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    done = cli.json("verify", "--path", str(root), "--profile", "read")
    assert done.exit_code == 1
    (found,) = done.json["findings"]
    assert (found["rule"], found["version"], found["file"]) == ("DL-CMT-01", 3, file.name)
    assert all(found[word] for word in ("says", "section", "source", "remedy"))
    done = cli.json("verify", "db.t")
    assert {"DL-CMT-01", "DL-FILE-02"} <= {f["rule"] for f in done.json["findings"]}


def test_people_see_findings_and_a_summary(cli: Cli, root: Path) -> None:
    (root / "_delta_log" / f"{1:020d}.json").unlink()
    done = cli.run("verify", "--path", str(root), "--metastore", cli.url)
    assert done.exit_code == 1
    assert "DL-FILE-03" in done.stderr
    assert "verified" in done.stdout


def test_a_place_without_a_table_is_a_failure(cli: Cli, tmp_path: Path) -> None:
    assert cli.json("verify", "--path", str(tmp_path / "nothing")).exit_code == 2
    assert cli.json("verify", "db.unknown").exit_code == 1
    assert cli.json("verify").exit_code == 2


def test_one_commit_is_verified_by_itself(cli: Cli, root: Path) -> None:
    document = cli.ok("verify", "db.t", "--version", "2")
    assert (document["findings"], document["checked"]["files"]) == ([], 1)
    file = root / "_delta_log" / f"{2:020d}.json"
    file.write_bytes(file.read_bytes().replace(b'"size":10', b'"size":11'))
    done = cli.json("verify", "db.t", "--version", "2")
    assert done.exit_code == 1
    assert {"DL-FILE-02", "DL-REC-10"} <= {f["rule"] for f in done.json["findings"]}
    assert cli.ok("verify", "db.t", "--version", "3")["findings"] == []
    assert cli.json("verify", "db.t", "--version", "9").exit_code == 1
    assert cli.json("verify", "--path", str(root), "--version", "2").exit_code == 2


def test_a_reader_without_its_environment_names_the_way_to_make_it(cli: Cli, root: Path) -> None:
    done = cli.json("verify", "--path", str(root), "--readers", "deltalake-0.25")
    assert (done.exit_code, done.error["code"]) == (2, "MA-413")
    assert "make readers" in done.error["remedy"]


def test_an_unknown_reader_is_answered_with_those_that_there_are(cli: Cli, root: Path) -> None:
    done = cli.json("verify", "--path", str(root), "--readers", "deltalake,polars")
    assert done.exit_code == 2
    assert "polars" in done.error["message"]
    assert all(name in done.error["remedy"] for name in ("duckdb", "sail", "chdb"))


@pytest.mark.parametrize("profile", ["strict", "foreign", "read"])
def test_every_table_of_the_corpora_is_answered_with_all_reports(
    cli: Cli, corpora: Path, profile: str
) -> None:
    tables = sorted(log.parent for log in corpora.rglob("_delta_log"))
    reports = ("--html", "page.html", "--junit", "page.xml")
    codes = Counter()
    for table in tables:
        done = cli.json("verify", "--path", str(table), "--profile", profile, *reports)
        errors = [f for f in done.json["findings"] if f["severity"] == "error"]
        assert done.exit_code == bool(errors), (table, done)
        codes[int(done.exit_code)] += 1
    assert len(tables) == 191
    assert codes == {0: SOUND[profile], 1: len(tables) - SOUND[profile]}
