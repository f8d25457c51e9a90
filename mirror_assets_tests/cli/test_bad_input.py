"""Bad input: one clear error with table, version, rule and remedy, and nothing half written."""

from __future__ import annotations

import json
import re

import pytest

from mirror_assets_tests.cli.conftest import SCHEMA, Cli, add, remove

METADATA = {
    "metaData": {
        "id": "11111111-1111-4111-8111-111111111111",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(SCHEMA),
        "partitionColumns": ["day"],
        "configuration": {},
    }
}
PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}


def protocol(*features: str) -> dict[str, object]:
    body = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": list(features)}
    return {"protocol": body}


def line(action: object, old: str, new: str) -> str:
    """An action's line with a piece of its text replaced."""
    text = json.dumps(action)
    assert old in text
    return text.replace(old, new)


BAD_ACTIONS = {
    "no json": ([add(), '{"add":{"path":'], "DL-CMT-02"),
    "no json at all": (["hello"], "DL-CMT-02"),
    "an array": (["[1,2]"], "DL-CMT-02"),
    "two actions on a line": ([{**add(), **remove("day=1/x.parquet")}], "DL-CMT-03"),
    "a member given twice": ([line(add(), '"size": 10', '"size": 10, "size": 11')], "DL-CMT-13"),
    "an empty object": (["{}"], "DL-CMT-03"),
    "no path": ([{"add": {"size": 1}}], "DL-ADD-01"),
    "the same path added twice": ([add(), add()], "DL-REC-02"),
    "the same path added and removed": ([add(), remove()], "DL-REC-03"),
    "two metaData": ([METADATA, METADATA], "DL-CMT-07"),
    "two protocols": ([PROTOCOL, PROTOCOL], "DL-CMT-08"),
    "an unknown writer feature": ([protocol("inCommitTimestamp", "teleport")], "DL-PROT-11"),
    "a partition key too few": ([add(partitionValues={})], "DL-ADD-07"),
    "a partition key too many": ([add(partitionValues={"day": "1", "x": "2"})], "DL-ADD-07"),
    "another partition key": ([add(partitionValues={"month": "1"})], "DL-ADD-07"),
    "a negative size": ([add(size=-1)], "DL-ADD-01"),
    "a lone surrogate in a path": ([add("day=1/\ud800.parquet")], "DL-CMT-02"),
    "a lone surrogate in a value": ([add(partitionValues={"day": "\udfff"})], "DL-CMT-02"),
    "a size beyond 64 bit": ([line(add(), '"size": 10', f'"size": {2**63}')], "DL-ADD-01"),
    "a size as text": ([add(size="10")], "DL-ADD-01"),
    "a size with an exponent": ([line(add(), '"size": 10', '"size": 1e1')], "DL-ADD-01"),
    "an integer beyond 64 bit in commitInfo": (
        [f'{{"commitInfo":{{"operation":"WRITE","x":{2**70}}}}}', add()],
        "DL-CMT-14",
    ),
    "NaN in the statistics": ([add(stats='{"numRecords":NaN}')], "DL-STAT-01"),
    "infinity in the statistics": ([add(stats='{"minValues":{"id":Infinity}}')], "DL-STAT-01"),
    "NaN as a number": ([line(add(), '"size": 10', '"size": NaN')], "DL-CMT-02"),
    "statistics that are not JSON": ([add(stats="{")], "DL-STAT-01"),
    "NUL in a path": ([add("day=1/\x00.parquet")], "DL-ADD-03"),
    "an encoded NUL in a path": ([add("day=1/%00.parquet")], "DL-ADD-02"),
    "a control character in a path": ([add("day=1/\x1b[31m.parquet")], "DL-ADD-03"),
    "NUL in a tag": ([add(tags={"a": "\x00"})], "DL-ADD-10"),
    "NUL in an application id": ([{"txn": {"appId": "\x00", "version": 1}}], "DL-TXN-01"),
    "dots in a path": ([add("../elsewhere/a.parquet")], "DL-ADD-02"),
    "encoded dots in a path": ([add("%2e%2e/elsewhere/a.parquet")], "DL-ADD-02"),
    "an encoded slash behind dots": ([add("day=1/..%2fa.parquet")], "DL-ADD-02"),
    "dots in an absolute path": ([add("file:///data/../etc/a.parquet")], "DL-ADD-02"),
}


@pytest.mark.parametrize(("actions", "rule"), BAD_ACTIONS.values(), ids=BAD_ACTIONS)
def test_bad_actions_are_refused_with_table_version_and_rule(
    cli: Cli, actions: list[object], rule: str
) -> None:
    cli.create()
    before = cli.dump()
    error = cli.refused("commit", "db.t", "--actions", cli.file("bad.json", *actions))
    assert (error["table"], error["version"]) == ("db.t", 1)
    assert error["rule"].startswith(rule), error
    assert cli.dump() == before


@pytest.mark.parametrize(
    "name",
    [
        "NUL in a tag",
        "NUL in an application id",
        "a lone surrogate in a value",
        "an integer beyond 64 bit in commitInfo",
        "a partition key too few",
    ],
)
def test_every_engine_is_spared_what_it_could_not_store(any_cli: Cli, name: str) -> None:
    any_cli.create()
    before = any_cli.dump()
    any_cli.refused("commit", "db.t", "--actions", any_cli.file("bad.json", *BAD_ACTIONS[name][0]))
    assert any_cli.dump() == before


def test_no_engine_is_asked_for_a_name_that_is_no_text(any_cli: Cli) -> None:
    file = any_cli.file("add.json", add())
    for name in ("t\x00", "\udcff"):
        for words in (("state", name), ("history", name), ("commit", name, "--actions", file)):
            assert any_cli.refused(*words)["code"] == "MA-105"


def test_an_application_id_that_is_no_text_is_refused(any_cli: Cli) -> None:
    any_cli.create()
    words = ("commit", "db.t", "--actions", any_cli.file("add.json", add()))
    error = any_cli.refused(*words, "--app-id", "\udcff", "--app-version", "1")
    assert error["rule"] == "DL-TXN-01"


def test_a_malformed_line_is_named_by_its_number(cli: Cli) -> None:
    cli.create()
    error = cli.refused("commit", "db.t", "--actions", cli.file("bad.json", add(), "", "{"))
    assert error["message"].startswith("line 3: ")


def test_bytes_that_are_not_utf8_are_refused(cli: Cli) -> None:
    cli.create()
    error = cli.refused("commit", "db.t", "--actions", "-", stdin=b'{"add":{"path":"\xff"}}\n')
    assert error["rule"] in ("DL-CMT-01", "DL-CMT-02")


def test_a_person_reads_the_same_on_stderr_and_nothing_on_stdout(cli: Cli) -> None:
    cli.create()
    file = cli.file("bad.json", add(size=-1))
    done = cli.run("commit", "db.t", "--actions", file, "--metastore", cli.url)
    assert (done.exit_code, done.stdout) == (1, "")
    assert re.match(r"error MA-301 table db\.t version 1 rule DL-ADD-\d\d: ", done.stderr)
    assert "remedy: " in done.stderr


def test_names_in_errors_do_not_steer_the_terminal(cli: Cli) -> None:
    done = cli.run("history", "db.\x1b[31mt", "--metastore", cli.url)
    assert done.exit_code == 1
    assert "\x1b" not in done.stderr


def test_a_remove_of_a_path_never_added_is_committed_with_a_warning(any_cli: Cli) -> None:
    any_cli.create()
    file = any_cli.file("gone.json", remove("day=1/never.parquet"))
    done = any_cli.json("commit", "db.t", "--actions", file)
    assert (done.exit_code, done.json["version"]) == (0, 1)
    (finding,) = done.json["findings"]
    assert (finding["rule"], finding["severity"]) == ("DL-REM-06", "warning")
    assert "DL-REM-06" in done.stderr


@pytest.mark.parametrize(
    "location",
    [
        "../t",
        "a/../../t",
        "/data/../etc/t",
        "/data/./t",
        "/data/%2e%2e/t",
        "file:///data/%2E%2E/t",
        "s3://bucket/a%2f..%2ft",
        "s3://bucket/%252e%252e/t",
        "/data/t\x01",
        "/data/\x1b[31m",
        "file:///data/%00",
        "ftp://host/t",
        "s3://user:password@bucket/t",
        "",
    ],
)
def test_a_location_that_could_leave_its_root_is_refused(cli: Cli, location: str) -> None:
    schema = cli.file("schema.json", SCHEMA)
    before = cli.dump()
    error = cli.refused("create", "db.t", "--location", location, "--schema", schema)
    assert (error["code"], error["table"]) == ("MA-201", "db.t")
    assert cli.dump() == before


def test_a_location_outside_of_the_allowed_roots_is_refused(cli: Cli) -> None:
    inside, outside = cli.home / "inside", cli.home / "outside"
    inside.mkdir()
    outside.mkdir()
    (inside / "link").symlink_to(outside)
    cli.env = {"MIRROR_ALLOWED_ROOTS": str(inside)}
    schema = cli.file("schema.json", SCHEMA)
    for location in (outside / "t", cli.home / "inside2", inside / "link" / "t", "s3://inside/t"):
        error = cli.refused("create", "db.t", "--location", str(location), "--schema", schema)
        assert error["code"] == "MA-201"
        assert str(inside) in error["remedy"]
    cli.create(location=str(inside / "t"))


@pytest.mark.parametrize(
    "name",
    [
        "t'; drop table dl_tables; --",
        'db."t"',
        "<script>alert(1)</script>",
        "<b>t</b>",
        "a.b.c.d",
        "../t",
        "",
        "t\x00",
        "täglich",
        "\udcff",
        "x" * 300,
    ],
)
def test_a_name_with_sql_or_html_in_it_is_refused(cli: Cli, name: str) -> None:
    schema = cli.file("schema.json", SCHEMA)
    before = cli.dump()
    error = cli.refused("create", name, "--location", f"{cli.home}/t", "--schema", schema)
    assert error["table"] == name
    assert cli.dump() == before
    file = cli.file("add.json", add())
    for words in (("state", name), ("history", name), ("commit", name, "--actions", file)):
        assert cli.refused(*words)["code"] == "MA-105"


@pytest.mark.parametrize(
    "spelling", ["{home}/t", "{home}/t/", "file://{home}/t", "file://localhost{home}/t", "./t", "t"]
)
def test_two_tables_at_one_location_are_refused(cli: Cli, spelling: str) -> None:
    cli.create("db.t", location=f"{cli.home}/t")
    schema = cli.file("schema.json", SCHEMA)
    before = cli.dump()
    where = spelling.format(home=cli.home)
    error = cli.refused("create", "db.u", "--location", where, "--schema", schema)
    assert (error["code"], error["table"]) == ("MA-106", "db.u")
    assert "'db.t'" in error["message"]
    assert cli.dump() == before


def test_a_location_with_a_delta_log_wants_to_be_imported(cli: Cli) -> None:
    log = cli.home / "t" / "_delta_log"
    log.mkdir(parents=True)
    schema = cli.file("schema.json", SCHEMA)
    words = ("create", "db.t", "--location", "t", "--schema", schema)
    (log / "00000000000000000000.json").write_text("{}")
    error = cli.refused(*words)
    assert error["code"] == "MA-106"
    assert "mirror-assets import" in error["remedy"]
    (log / "00000000000000000000.json").unlink()
    cli.ok(*words)


@pytest.mark.parametrize(
    ("schema", "options", "rule"),
    [
        ("not json", (), "DL-SCH-01"),
        ('{"type":"long"}', (), "DL-SCH-0"),
        ('{"type":"struct","fields":[{"name":"a"}]}', (), "DL-SCH-0"),
        (json.dumps(SCHEMA), ("--partition-by", "month"), "DL-META-0"),
        (json.dumps(SCHEMA), ("--property", "delta.feature.teleport=supported"), "DL-PROT-11"),
    ],
)
def test_a_table_that_cannot_be_made_leaves_nothing(
    cli: Cli, schema: str, options: tuple[str, ...], rule: str
) -> None:
    file = cli.file("schema.json", schema)
    before = cli.dump()
    where = f"{cli.home}/t"
    error = cli.refused("create", "db.t", "--location", where, "--schema", file, *options)
    assert error["table"] == "db.t"
    assert error["rule"].startswith(rule)
    assert cli.dump() == before


@pytest.mark.parametrize("words", [("state", "db.x"), ("history", "db.x")])
def test_an_unknown_table_is_refused(cli: Cli, words: tuple[str, ...]) -> None:
    error = cli.refused(*words)
    assert (error["code"], error["table"]) == ("MA-105", "db.x")


@pytest.mark.parametrize(
    "options",
    [
        ("--version", "9"),
        ("--version", f"{2**70}"),
        ("--timestamp", "2000-01-01"),
        ("--timestamp", f"-{2**70}"),
    ],
)
def test_a_version_that_is_not_there_is_refused(cli: Cli, options: tuple[str, ...]) -> None:
    cli.create()
    error = cli.refused("state", "db.t", *options)
    assert (error["code"], error["table"]) == ("MA-109", "db.t")


def test_a_read_version_ahead_of_the_head_is_refused(cli: Cli) -> None:
    cli.create()
    file = cli.file("add.json", add())
    error = cli.refused("commit", "db.t", "--actions", file, "--read-version", "9")
    assert (error["code"], error["table"]) == ("MA-109", "db.t")
