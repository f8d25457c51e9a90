"""The edges of the program: usage errors, bugs, pipes, and the real console script."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from mirror_assets import __version__
from mirror_assets.cli import app as application
from mirror_assets.cli.command import add_command
from mirror_assets.cli.exits import ExitCode
from mirror_assets.cli.output import dump, plain
from mirror_assets_tests.cli.conftest import SCHEMA, Cli, add

SCRIPT = Path(sys.executable).with_name("mirror-assets")


@pytest.mark.parametrize(
    "words",
    [
        ("commit", "db.t", "--nonsense"),
        ("commit",),
        ("commit", "db.t"),
        ("commit", "db.t", "--actions", "a", "--table", "db.u=b"),
        ("commit", "--table", "db.u"),
        ("commit", "--table", "db.u=-", "--table", "db.v=-"),
        ("commit", "--table", "db.u=a", "--table", "db.u=b"),
        ("commit", "--table", "db.u=a", "--table", "db.v=b", "--read-version", "1"),
        ("commit", "db.t", "--actions", "a", "--read-version", "one"),
        ("commit", "db.t", "--actions", "a", "--app-id", "x"),
        ("commit", "db.t", "--actions", "a", "--commit-id", "x"),
        ("commit", "db.t", "--actions", "nowhere.json"),
        ("create", "db.t", "--location", "t", "--schema", "nowhere.json"),
        ("create", "db.t", "--location", "t", "--schema", ".", "--property", "x"),
        ("state", "db.t", "--version", "-1"),
        ("state", "db.t", "--version", "1", "--timestamp", "1"),
        ("state", "db.t", "--timestamp", "yesterday"),
        ("history", "db.t", "--limit", "0"),
        ("history", "db.t", "--limit", f"{2**63}"),
        ("explain", "nonsense"),
        ("nonsense",),
        ("config", "nonsense"),
    ],
)
def test_a_wrong_command_line_is_a_failure_in_both_languages(
    cli: Cli, words: tuple[str, ...]
) -> None:
    cli.env = {"MIRROR_METASTORE_URL": cli.url}
    spoken = cli.run(*words, "--json")
    assert (spoken.exit_code, spoken.error["code"]) == (2, "MA-602")
    assert spoken.error["remedy"]
    written = cli.run(*words)
    assert (written.exit_code, written.stdout) == (2, "")
    assert written.stderr


@pytest.fixture
def broken() -> typer.Typer:
    """A program with a bug in it."""

    def crash(session: object) -> ExitCode:
        """Crash."""
        message = "cannot reach postgresql://user:secret@host/db"
        raise RuntimeError(message)

    def interrupt(session: object) -> ExitCode:
        """Be interrupted."""
        raise KeyboardInterrupt

    program = typer.Typer(cls=application._Group)
    add_command(program, "crash", crash)
    add_command(program, "interrupt", interrupt)
    return program


def test_a_bug_is_one_line_and_a_hint(broken: typer.Typer, home: Path) -> None:
    done = CliRunner().invoke(broken, ["crash"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "unexpected RuntimeError" in done.stderr
    assert "--debug" in done.stderr
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr


def test_debug_shows_the_traceback_on_stderr(broken: typer.Typer, home: Path) -> None:
    done = CliRunner().invoke(broken, ["crash", "--debug", "--json"])
    assert done.exit_code == 2
    assert "Traceback" in done.stderr
    assert "secret" not in done.stderr
    assert json.loads(done.stdout)["error"]["code"] == "MA-000"


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_an_interrupt_ends_quietly(broken: typer.Typer, home: Path, options: list[str]) -> None:
    done = CliRunner().invoke(broken, ["interrupt", *options])
    assert (done.exit_code, done.stdout, done.stderr) == (130, "", "")


def test_a_document_holds_what_is_no_text() -> None:
    assert json.loads(dump({"name": "\udcff"})) == {"name": "\udcff"}


def test_control_characters_are_spelled_out() -> None:
    assert plain("a\x1b[31m\x00\u202e") == "a\\x1b[31m\\x00\\u202e"


def script(home: Path, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [SCRIPT, *words], cwd=home, input=stdin, capture_output=True, check=False, timeout=120
    )


def test_the_console_script_says_its_version(home: Path) -> None:
    assert script(home, "--version").stdout.decode().strip() == __version__


def test_the_console_script_from_init_to_history(home: Path) -> None:
    (home / "schema.json").write_text(json.dumps(SCHEMA))
    made = script(home, "init", "--json")
    assert (made.returncode, made.stderr) == (0, b"")
    create = script(home, "create", "db.t", "--location", "t", "--schema", "schema.json")
    assert create.returncode == 0, create.stderr
    bad = script(home, "commit", "db.t", "--actions", "-", "--json", stdin=b"{")
    assert (bad.returncode, bad.stderr) == (1, b"")
    assert json.loads(bad.stdout)["error"]["code"] == "MA-302"
    action = json.dumps(add(partitionValues={})).encode()
    done = script(home, "commit", "db.t", "--actions", "-", "--json", stdin=action)
    assert json.loads(done.stdout)["version"] == 1
    history = script(home, "history", "db.t", "--json")
    assert [c["version"] for c in json.loads(history.stdout)["commits"]] == [1, 0]


def test_a_database_that_is_down_keeps_stdout_clean(home: Path) -> None:
    url = "postgresql://user:secret@127.0.0.1:1/db"
    done = script(home, "commit", "t", "--actions", "-", "--json", "--metastore", url)
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "MA-101"
    assert b"secret" not in done.stdout + done.stderr


def test_a_reader_that_goes_away_is_no_error(cli: Cli) -> None:
    cli.create()
    cli.commit("db.t", *(add(f"day=1/{number}.parquet") for number in range(2000)))
    words = f"'{SCRIPT}' state db.t --files --json --metastore '{cli.url}' | head -c 10"
    done = subprocess.run(
        ["bash", "-c", words], cwd=cli.home, capture_output=True, check=False, timeout=120
    )
    assert done.stdout == b'{"table":"'
    assert b"Traceback" not in done.stderr
    assert b"Exception" not in done.stderr
