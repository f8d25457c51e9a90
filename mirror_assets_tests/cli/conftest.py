"""The command line in this process, in an empty directory, with a metastore of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, make_url, select
from typer.testing import CliRunner

from mirror_assets.cli.app import app
from mirror_assets.metastore.tables import metadata
from mirror_assets.settings import Settings, unknown_variables, variable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "day", "type": "string", "nullable": True, "metadata": {}},
    ],
}


@dataclass(frozen=True)
class Result:
    exit_code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        """The one document on stdout."""
        return json.loads(self.stdout)

    @property
    def error(self) -> dict[str, Any]:
        return self.json["error"]


@dataclass
class Cli:
    """Runs commands against one metastore."""

    url: str
    home: Path
    env: Mapping[str, str] = field(default_factory=dict)

    def run(self, *words: str, stdin: str | bytes | None = None) -> Result:
        """As typed, without any option of ours."""
        done = CliRunner().invoke(app, list(words), input=stdin, env=dict(self.env))
        assert "Traceback" not in done.output
        return Result(done.exit_code, done.stdout, done.stderr)

    def json(self, *words: str, stdin: str | bytes | None = None) -> Result:
        """With `--json` and the metastore."""
        return self.run(*words, "--json", "--metastore", self.url, stdin=stdin)

    def ok(self, *words: str, stdin: str | bytes | None = None) -> dict[str, Any]:
        """The document of a command that must end well."""
        done = self.json(*words, stdin=stdin)
        assert done.exit_code == 0, done
        return done.json

    def refused(self, *words: str, stdin: str | bytes | None = None, code: int = 1) -> Any:
        """The error of a command that must not end well."""
        done = self.json(*words, stdin=stdin)
        assert done.exit_code == code, done
        error = done.error
        assert error["message"]
        assert error["remedy"]
        return error

    def file(self, name: str, *lines: object) -> str:
        """A file of JSON lines; text is taken as it is."""
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        (self.home / name).write_text("".join(f"{text}\n" for text in texts))
        return name

    def create(self, name: str = "db.t", *options: str, location: str | None = None) -> Any:
        """A table partitioned by day."""
        schema = self.file("schema.json", SCHEMA)
        where = location or f"{self.home}/{name}"
        words = ("create", name, "--location", where, "--schema", schema, "--partition-by", "day")
        return self.ok(*words, *options)

    def commit(self, name: str, *actions: object, options: tuple[str, ...] = ()) -> Any:
        """Actions that must be committed."""
        return self.ok("commit", name, "--actions", self.file("actions.json", *actions), *options)

    def dump(self) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of the metastore."""
        url = make_url(self.url)
        if url.drivername == "postgresql":
            url = url.set(drivername="postgresql+psycopg")
        engine = create_engine(url)
        try:
            with engine.connect() as connection:
                return {
                    table.name: sorted(map(tuple, connection.execute(select(table))), key=str)
                    for table in metadata.sorted_tables
                }
        finally:
            engine.dispose()


def add(path: str = "day=1/a.parquet", **members: object) -> dict[str, Any]:
    """An add action of the table that `Cli.create` makes."""
    standard = {
        "path": path,
        "partitionValues": {"day": "1"},
        "size": 10,
        "modificationTime": 1_700_000_000_000,
        "dataChange": True,
    }
    return {"add": standard | members}


def remove(path: str = "day=1/a.parquet", **members: object) -> dict[str, Any]:
    standard = {"path": path, "deletionTimestamp": 1_700_000_000_000, "dataChange": True}
    return {"remove": standard | members}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and an environment without settings."""
    monkeypatch.chdir(tmp_path)
    settings = [variable(key) for key in (*Settings.model_fields, "config")]
    for name in [*settings, *unknown_variables()]:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def bare(home: Path) -> Cli:
    """A metastore that has not been made yet."""
    return Cli(f"sqlite:///{home}/metastore.db", home)


@pytest.fixture
def cli(bare: Cli) -> Cli:
    """A metastore in SQLite."""
    bare.ok("init")
    return bare


@pytest.fixture
def any_cli(metastore_url: str, home: Path) -> Cli:
    """A metastore on each engine in turn."""
    cli = Cli(metastore_url, home)
    cli.ok("init")
    return cli


@pytest.fixture
def execute() -> Callable[[str, str], None]:
    """Run one statement behind the program's back."""

    def run(url: str, statement: str) -> None:
        engine = create_engine(url)
        with engine.begin() as connection:
            connection.exec_driver_sql(statement)
        engine.dispose()

    return run
