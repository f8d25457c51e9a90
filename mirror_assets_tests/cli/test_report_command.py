"""`report`: one page and one document about every table."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from mirror_assets_tests.cli.conftest import Cli, add


@pytest.fixture
def lake(cli: Cli) -> Cli:
    """Two tables of three versions, published."""
    for name in ("db.a", "db.b"):
        cli.create(name)
        for number in range(2):
            cli.commit(name, add(f"day=1/{number}.parquet"))
    cli.ok("mirror")
    return cli


def log_of(cli: Cli, name: str) -> Path:
    return cli.home / name / "_delta_log"


def test_sound_tables_make_a_page_that_needs_nothing_beside_it(lake: Cli) -> None:
    document = lake.ok("report", "--out", "all.html")
    totals = document["totals"]
    assert (totals["tables"], totals["error"], totals["failed"], totals["behind"]) == (2, 0, 0, 0)
    page = (lake.home / document["out"]).read_text()
    assert "db.a" in page
    assert "db.b" in page
    assert page.count("<polyline") == 4
    assert re.findall(r'(?:src|href)="(?!#)|url\(', page) == []


def test_readers_that_miss_the_data_files_are_shown(lake: Cli) -> None:
    done = lake.json("report", "--readers", "duckdb")
    assert done.exit_code == 1
    outcomes = [verdict["outcome"] for verdict in done.json["tables"][0]["readers"]]
    assert outcomes[-1] == "refuses"
    assert 'class="tag refuses"' in (lake.home / "mirror-report.html").read_text()


def test_what_is_wrong_with_one_table_is_told_beside_the_others(lake: Cli) -> None:
    file = log_of(lake, "db.b") / f"{2:020d}.json"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    lake.commit("db.a", add("day=1/late.parquet"))
    done = lake.json("report")
    assert done.exit_code == 1
    sound, broken = done.json["tables"]
    assert (sound["table"], sound["errors"], sound["lag_versions"]) == ("db.a", 0, 1)
    assert broken["errors"] == len([f for f in broken["findings"] if f["severity"] == "error"])
    assert {"DL-CMT-01", "DL-FILE-02"} <= {f["rule"] for f in broken["findings"]}
    assert (done.json["totals"]["behind"], done.json["totals"]["failed"]) == (1, 0)
    assert "DL-CMT-01" in (lake.home / "mirror-report.html").read_text()


def test_a_log_that_cannot_be_read_is_a_failure_and_the_page_is_whole(lake: Cli) -> None:
    shutil.rmtree(log_of(lake, "db.a"))
    log_of(lake, "db.a").write_text("no directory")
    done = lake.json("report")
    assert done.exit_code == 2
    gone, sound = done.json["tables"]
    assert gone["problem"]
    assert (gone["checked"], sound["problem"], sound["errors"]) == (None, None, 0)
    assert "could not be verified" in (lake.home / done.json["out"]).read_text()


def test_people_see_a_table_and_an_empty_metastore_is_clean(cli: Cli) -> None:
    assert cli.ok("report")["tables"] == []
    cli.create()
    done = cli.run("report", "--metastore", cli.url)
    assert done.exit_code == 0
    assert "db.t" in done.stdout


def test_a_page_that_cannot_be_written_is_a_usage_error_before_any_work(cli: Cli) -> None:
    for words in (("report", "--out"), ("verify", "--path", ".", "--html")):
        assert "no directory" in cli.refused(*words, "nowhere/a.html", code=2)["message"]
