"""Metastores of another release, absent, down, broken or read-only: each a clear error."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from mirror_assets_tests.cli.conftest import SCHEMA, Cli, add
from mirror_assets_tests.services import free_port

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(("revision", "word"), [("9999", "newer"), ("0001", "older")])
def test_a_schema_of_another_release_is_refused(
    cli: Cli, revision: str, word: str, execute: Callable[[str, str], None]
) -> None:
    cli.create()
    execute(cli.url, f"update alembic_version set version_num = '{revision}'")
    before = cli.dump()
    file = cli.file("add.json", add())
    for words in (("tables",), ("state", "db.t"), ("commit", "db.t", "--actions", file)):
        error = cli.refused(*words, code=2)
        assert error["code"] == "MA-103"
        assert word in error["message"]
        assert revision in error["message"]
    assert cli.dump() == before


def test_init_does_not_touch_a_newer_schema(cli: Cli, execute: Callable[[str, str], None]) -> None:
    execute(cli.url, "update alembic_version set version_num = '9999'")
    assert cli.refused("init", code=2)["code"] == "MA-103"


@pytest.mark.parametrize("engine", ["sqlite", "duckdb"])
def test_a_slip_in_the_path_makes_no_empty_database(bare: Cli, engine: str) -> None:
    bare.url = f"{engine}:///{bare.home}/slip.db"
    error = bare.refused("tables", code=2)
    assert error["code"] == "MA-103"
    assert "slip.db" in error["message"]
    assert list(bare.home.iterdir()) == []


def test_a_database_without_a_schema_says_init(bare: Cli) -> None:
    (bare.home / "metastore.db").touch()
    error = bare.refused("tables", code=2)
    assert error["code"] == "MA-103"
    assert "mirror-assets init" in error["remedy"]


@pytest.mark.parametrize("words", [("init",), ("tables",), ("state", "db.t")])
def test_a_database_that_is_down_is_named_without_its_password(
    bare: Cli, words: tuple[str, ...]
) -> None:
    bare.url = f"postgresql://user:secret@127.0.0.1:{free_port()}/db"
    done = bare.json(*words)
    assert (done.exit_code, done.error["code"]) == (2, "MA-101")
    assert done.error["remedy"]
    assert "secret" not in done.stdout + done.stderr


def test_a_commit_to_a_database_that_is_down_answers_on_stdout_with_json_only(bare: Cli) -> None:
    bare.url = f"postgresql://user:secret@127.0.0.1:{free_port()}/db"
    file = bare.file("add.json", add())
    done = bare.json("commit", "db.t", "--actions", file)
    assert (done.exit_code, done.error["code"]) == (2, "MA-101")


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:////nowhere/at/all.db",
        "mysql://user:secret@host/db",
        "not a url with secret",
        "postgresql://user:secret@host:port/db",
    ],
)
def test_a_metastore_url_that_leads_nowhere_is_a_failure(bare: Cli, url: str) -> None:
    bare.url = url
    done = bare.json("tables")
    assert done.exit_code == 2
    assert done.error["code"] in ("MA-103", "MA-601")
    assert "secret" not in done.stdout + done.stderr


def test_init_where_nothing_can_be_made_is_a_failure(bare: Cli) -> None:
    bare.url = f"sqlite:///{bare.home}/no/such/directory/metastore.db"
    assert bare.refused("init", code=2)["code"] == "MA-101"


def test_a_file_that_is_no_database_is_a_failure(bare: Cli) -> None:
    (bare.home / "metastore.db").write_text("hello\n" * 1000)
    for words in (("tables",), ("init",)):
        assert bare.refused(*words, code=2)["code"] == "MA-601"


def read_only_sqlite(cli: Cli) -> str:
    return f"sqlite:///file:{cli.home}/metastore.db?mode=ro&uri=true"


def test_a_read_only_sqlite_can_be_read_and_not_written(cli: Cli) -> None:
    cli.create()
    before = cli.dump()
    writable, cli.url = cli.url, read_only_sqlite(cli)
    assert cli.ok("state", "db.t")["version"] == 0
    file = cli.file("add.json", add())
    error = cli.refused("commit", "db.t", "--actions", file, code=2)
    assert error["code"] == "MA-104"
    schema = cli.file("schema.json", SCHEMA)
    words = ("create", "db.u", "--location", f"{cli.home}/u", "--schema", schema)
    assert cli.refused(*words, code=2)["code"] == "MA-104"
    doctor = cli.json("doctor")
    assert doctor.exit_code == 1
    assert [c["name"] for c in doctor.json["checks"] if not c["ok"]] == ["writable"]
    cli.url = writable
    assert cli.dump() == before


def test_a_read_only_postgres_can_be_read_and_not_written(
    postgres_url: Callable[[], str], home: os.PathLike[str]
) -> None:
    url = postgres_url()
    cli = Cli(url, home)
    cli.ok("init")
    cli.create()
    before = cli.dump()
    cli.url = f"{url}?options=-c%20default_transaction_read_only%3Don"
    assert cli.ok("state", "db.t")["version"] == 0
    file = cli.file("add.json", add())
    assert cli.refused("commit", "db.t", "--actions", file, code=2)["code"] == "MA-104"
    doctor = cli.json("doctor")
    assert [c["name"] for c in doctor.json["checks"] if not c["ok"]] == ["writable"]
    cli.url = url
    assert cli.dump() == before
