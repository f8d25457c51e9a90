"""`import` at the command line: what it answers, and that a refusal leaves nothing behind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets_tests.cli.conftest import SCHEMA, Cli, add, remove

if TYPE_CHECKING:
    from pathlib import Path

PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
METADATA = {
    "metaData": {
        "id": "11111111-1111-4111-8111-111111111111",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(SCHEMA),
        "partitionColumns": ["day"],
        "configuration": {},
    }
}
ADD = {"partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
COMMITS = [
    [PROTOCOL, METADATA, add("day=1/a.parquet")],
    [add("day=1/b.parquet", size=5), {"commitInfo": {"operation": "WRITE"}}],
    [remove("day=1/a.parquet")],
]


def write_log(cli: Cli, commits: list[list[object]], name: str = "t") -> Path:
    """A log of our own making, with blanks that no canonical line has."""
    log = cli.home / name / "_delta_log"
    log.mkdir(parents=True)
    for version, actions in enumerate(commits):
        lines = [a if isinstance(a, str) else json.dumps(a) for a in actions]
        (log / f"{version:020d}.json").write_text("\n".join(lines) + "\n")
    return log


def test_import_takes_a_table_over_with_its_history(any_cli: Cli) -> None:
    log = write_log(any_cli, COMMITS)
    done = any_cli.ok("import", "./t", "--name", "db.t")
    assert done["table"] == "db.t"
    assert (done["first_version"], done["version"], done["commits"]) == (0, 2, 3)
    assert (done["adds"], done["removes"]) == (2, 1)
    assert (done["exact_lines"], done["rewritten_lines"]) == (0, 6)
    assert done["dry_run"] is False

    state = any_cli.ok("state", "db.t", "--files")
    assert (state["version"], state["num_files"], state["size_bytes"]) == (2, 1, 5)
    assert state["files"] == [add("day=1/b.parquet", size=5)["add"]]
    assert any_cli.ok("state", "db.t", "--version", "0")["num_files"] == 1

    metastore = Metastore.open(any_cli.url)
    for commit in LogReader(metastore).commits("db.t"):
        assert commit.encode("db.t") == (log / f"{commit.version:020d}.json").read_bytes()
    metastore.close()
    assert any_cli.commit("db.t", add("day=1/c.parquet"))["version"] == 3


def test_a_dry_run_writes_nothing(any_cli: Cli) -> None:
    write_log(any_cli, COMMITS)
    before = any_cli.dump()
    done = any_cli.ok("import", "t", "--name", "db.t", "--dry-run")
    assert (done["dry_run"], done["version"], done["commits"]) == (True, 2, 3)
    assert any_cli.dump() == before


def test_import_may_stop_at_a_version(cli: Cli) -> None:
    write_log(cli, COMMITS)
    done = cli.ok("import", "t", "--name", "db.t", "--up-to-version", "1")
    assert (done["version"], done["commits"]) == (1, 2)
    assert cli.ok("tables")["tables"][0]["head_version"] == 1


def test_the_log_may_be_published_elsewhere(cli: Cli) -> None:
    write_log(cli, COMMITS)
    done = cli.ok("import", "t", "--name", "db.t", "--mirror-to", "./elsewhere")
    assert done["location"] == f"file://{cli.home}/elsewhere"
    (file,) = cli.ok("state", "db.t", "--files")["files"]
    assert file["path"] == f"file://{cli.home}/t/day=1/b.parquet"


@pytest.mark.parametrize("kept", [[3, 4, 5], [4, 5], [5], []], ids=str)
def test_a_log_without_its_beginning_is_published_elsewhere_behind_a_checkpoint(
    any_cli: Cli, kept: list[int]
) -> None:
    """Whatever commit files a cleanup has left above, or at, the checkpoint of version 3 or 5."""
    cli, log = any_cli, any_cli.home / "t" / "_delta_log"
    for number in range(6):
        write_deltalake(cli.home / "t", pa.table({"id": [number]}), mode="append")
        if number == 3 or (number == 5 and 4 not in kept):
            DeltaTable(cli.home / "t").create_checkpoint()
    files = sorted(DeltaTable(cli.home / "t").file_uris())
    assert len(files) == 6
    for number in set(range(6)) - set(kept):
        (log / f"{number:020d}.json").unlink()

    done = cli.ok("import", "t", "--name", "db.t", "--mirror-to", "./elsewhere")
    assert done["version"] == 5
    (mirrored,) = cli.ok("mirror")["tables"]
    assert (mirrored["mirrored_version"], mirrored["failed"]) == (5, False)
    found = DeltaTable(cli.home / "elsewhere")
    assert found.version() == 5
    paths = pa.table(found.get_add_actions())["path"].to_pylist()
    assert sorted(path.removeprefix("file://") for path in paths) == files
    cli.commit("db.t", {"add": {**ADD, "path": "x.parquet"}})
    cli.ok("mirror")
    assert len(DeltaTable(cli.home / "elsewhere").file_uris()) == len(files) + 1


def test_no_log_is_published_over_another_one(cli: Cli) -> None:
    write_log(cli, COMMITS)
    write_log(cli, COMMITS, "other")
    before = cli.dump()
    for target in ("t", "other"):
        words = ("import", "t", "--name", "db.t", "--mirror-to", target)
        assert cli.refused(*words)["code"] == "MA-106"
    assert cli.dump() == before


BAD_LOGS = {
    "no protocol": ([[METADATA, add()]], "DL-CMT-06"),
    "no metaData": ([[PROTOCOL, add()]], "DL-CMT-06"),
    "nothing in version 0": ([["{}"]], "DL-"),
    "a malformed line": ([[PROTOCOL, METADATA], ['{"add":{"path":']], "DL-CMT-02"),
    "an add without a path": ([[PROTOCOL, METADATA], ['{"add":{"size":1}}']], "DL-ADD-01"),
}


@pytest.mark.parametrize(("commits", "rule"), BAD_LOGS.values(), ids=BAD_LOGS)
def test_a_broken_log_is_refused_with_findings(
    cli: Cli, commits: list[list[object]], rule: str
) -> None:
    write_log(cli, commits)
    before = cli.dump()
    done = cli.json("import", "t", "--name", "db.t")
    assert done.exit_code == 1
    assert (done.error["code"], done.error["table"]) == ("MA-304", "db.t")
    assert done.error["remedy"]
    (first, *_) = done.json["findings"]
    assert first["severity"] == "error"
    assert first["rule"].startswith(rule)
    assert first["file"] or first["version"] is not None
    assert cli.dump() == before

    shown = cli.run("import", "t", "--name", "db.t", "--metastore", cli.url)
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert first["rule"] in shown.stderr


def test_a_gap_in_the_log_is_refused(cli: Cli) -> None:
    log = write_log(cli, COMMITS)
    (log / f"{1:020d}.json").unlink()
    before = cli.dump()
    done = cli.json("import", "t", "--name", "db.t")
    assert (done.exit_code, done.error["code"]) == (1, "MA-304")
    assert done.json["findings"]
    assert cli.dump() == before


def test_a_place_without_a_log_is_a_failure(cli: Cli) -> None:
    error = cli.refused("import", "nowhere", "--name", "db.t", code=2)
    assert (error["code"], error["table"]) == ("MA-202", "db.t")


def test_a_place_is_imported_once(cli: Cli) -> None:
    write_log(cli, COMMITS)
    cli.ok("import", "t", "--name", "db.t")
    before = cli.dump()
    for name in ("db.t", "db.u"):
        assert cli.refused("import", "t", "--name", name)["code"] == "MA-106"
    assert cli.dump() == before


@pytest.mark.parametrize("location", ["../t", "t/%2e%2e/u", "s3://bucket/a/../t"])
def test_a_location_that_could_leave_its_root_is_refused(cli: Cli, location: str) -> None:
    assert cli.refused("import", location, "--name", "db.t")["code"] == "MA-201"
    write_log(cli, COMMITS)
    words = ("import", "t", "--name", "db.t", "--mirror-to", location)
    assert cli.refused(*words)["code"] == "MA-201"


def test_an_import_stays_below_the_allowed_roots(cli: Cli) -> None:
    write_log(cli, COMMITS)
    cli.env = {"MIRROR_ALLOWED_ROOTS": f"{cli.home}/inside"}
    assert cli.refused("import", "t", "--name", "db.t")["code"] == "MA-201"


@pytest.mark.parametrize("name", ["t'; drop table dl_tables; --", "<script>", ""])
def test_a_name_with_sql_or_html_in_it_is_refused(cli: Cli, name: str) -> None:
    write_log(cli, COMMITS)
    before = cli.dump()
    assert cli.refused("import", "t", "--name", name)["table"] == name
    assert cli.dump() == before


@pytest.mark.parametrize("number", ["9", f"{2**63 - 1}"])
def test_a_version_that_the_log_does_not_have_is_refused(cli: Cli, number: str) -> None:
    write_log(cli, COMMITS)
    error = cli.refused("import", "t", "--name", "db.t", "--up-to-version", number)
    assert error["code"] == "MA-304"
