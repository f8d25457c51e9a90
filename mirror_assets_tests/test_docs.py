"""What the documentation says is there is there, and what is there is documented."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from mirror_assets.cli.app import app
from mirror_assets.delta.conflicts import ConflictReason
from mirror_assets.metastore.tables import metadata
from mirror_assets.settings import Settings, variable

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md")])
COMMON_OPTIONS = {"--json", "--metastore", "--debug", "--help", "-h"}
#: columns that docs/metastore.md explains once for all action tables
PLACE = {"table_id", "version", "ordinal", "extra", "raw"}


def commands(group: object, prefix: str = "") -> dict[str, object]:
    found = {}
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            found |= commands(command, f"{prefix}{name} ")
        else:
            found[f"{prefix}{name}"] = command
    return found


COMMANDS = commands(typer.main.get_command(app))


def section(page: str, title: str) -> str:
    """The text below a heading of the second level; empty without it."""
    text = (DOCS / page).read_text()
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def options_of(command: object) -> set[str]:
    return {word for p in command.params for word in p.opts if word.startswith("-")}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_has_help(name: str) -> None:
    command = COMMANDS[name]
    assert command.help
    assert [p.name for p in command.params if not p.help and p.name != "help"] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented_with_its_options_and_no_others(name: str) -> None:
    text = section("cli.md", name)
    own = options_of(COMMANDS[name]) - COMMON_OPTIONS
    documented = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)) - COMMON_OPTIONS
    assert documented == own
    assert f"$ mirror-assets {name}" in text
    assert "JSON: " in text


def test_the_options_of_every_command_are_documented() -> None:
    text = section("cli.md", "Every command")
    for command in COMMANDS.values():
        assert options_of(command) >= {"--json", "--metastore", "--debug"}
    assert COMMON_OPTIONS - {"-h"} <= set(re.findall(r"--[a-z]+", text))


def test_every_documented_command_exists() -> None:
    words = {name.partition(" ")[0] for name in COMMANDS}
    for page in PAGES:
        used = set(re.findall(r"mirror-assets ([a-z][a-z-]*)", page.read_text()))
        assert used <= words, page


@pytest.mark.parametrize("key", Settings.model_fields)
def test_every_setting_is_documented(key: str) -> None:
    text = section("cli.md", "Settings")
    assert f"| `{key}` | `{variable(key)}` |" in text


@pytest.mark.parametrize("table", metadata.sorted_tables, ids=lambda table: table.name)
def test_every_sql_table_is_documented_with_its_columns_and_no_others(table: object) -> None:
    text = section("metastore.md", table.name)
    named = {
        word
        for row in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
        for word in re.findall(r"`(\w+)`", row)
    }
    columns = set(table.columns.keys())
    assert columns - PLACE <= named <= columns


def test_no_other_sql_table_is_documented() -> None:
    named = set(re.findall(r"^## (dl_\w+)", (DOCS / "metastore.md").read_text(), re.MULTILINE))
    assert named == {table.name for table in metadata.sorted_tables}


def test_every_reason_of_a_conflict_is_documented() -> None:
    text = section("commits.md", "Who loses")
    assert [reason for reason in ConflictReason if f"`{reason.value}`" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith(("https://", "http://")):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        if anchor:
            assert anchor in anchors(found), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_name_no_machine(page: Path) -> None:
    text = page.read_text()
    assert re.findall(r"(?<![\w.])/(?:work|root|home|tmp|Users)/\S*", text) == []
    assert re.findall(r"\b(?:artifactory|nexus|pypi\.[a-z-]+\.[a-z]+)\b", text) == []


def test_decisions_are_numbered_and_short() -> None:
    pages = sorted((DOCS / "decisions").glob("*.md"))
    for number, page in enumerate(pages, start=1):
        assert page.name.startswith(f"{number:04d}-")
        assert page.read_text().startswith(f"# {number}. ")
        assert len(page.read_text().splitlines()) <= 40


def test_the_readme_works_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for key in (*Settings.model_fields, "config"):
        monkeypatch.delenv(variable(key), raising=False)
    _, _, text = (ROOT / "README.md").read_text().partition("## By hand")
    blocks = dict(re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL))
    fields = [
        {"name": name, "type": "string", "nullable": True, "metadata": {}} for name in ("id", "day")
    ]
    Path("orders.json").write_text(json.dumps({"type": "struct", "fields": fields}))
    Path("actions.json").write_text(blocks["json"])
    for line in blocks["console"].splitlines():
        words = shlex.split(line.removeprefix("$ mirror-assets "))
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
    assert "day=2026-01-31/part-0.parquet" in done.stdout

    another = blocks["json"].replace("part-0", "part-1").encode()
    variables = {"lines": another}
    exec(compile(blocks["python"], "README.md", "exec"), variables)
    assert variables["outcome"].version == 2


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub links to them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
