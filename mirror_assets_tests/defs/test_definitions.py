"""Definitions load whatever the metastore says, and show every table."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from mirror_assets.defs.build import build_definitions, build_tables
from mirror_assets.defs.registry import RegisteredTable, Registry, read_registry
from mirror_assets.settings import load_settings

if TYPE_CHECKING:
    from mirror_assets_tests.defs.platform import Platform

ROOT = Path(__file__).resolve().parents[2]
PLATFORM_KEYS = {"platform/metastore", "platform/object_store"}


def asset_keys(defs: dg.Definitions) -> set[str]:
    dg.Definitions.validate_loadable(defs)
    return {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()}


def test_every_registered_table_has_its_four_assets(platform: Platform) -> None:
    platform.table("sales.orders")
    platform.table("refunds")
    expected = {
        f"{place}/{asset}"
        for place in ("sales/orders", "refunds")
        for asset in ("commits", "checkpoints", "delta_log", "mirror_lag")
    }
    assert asset_keys(build_definitions()) == expected | PLATFORM_KEYS


def test_definitions_load_without_any_table(platform: Platform) -> None:
    assert asset_keys(build_definitions()) == PLATFORM_KEYS


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///nowhere/at/all.db",
        "postgresql://nobody:secret@127.0.0.1:1/none",
        "no url",
        "oracle://host/db",
    ],
)
def test_definitions_load_without_a_metastore_and_say_why(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRROR_METASTORE_URL", url)
    assert asset_keys(build_definitions()) == PLATFORM_KEYS
    problem = read_registry().problem
    assert problem
    assert "secret" not in problem


def test_definitions_load_with_settings_that_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRROR_LAG_OBJECTIVES", "sales.orders")
    assert asset_keys(build_definitions()) == PLATFORM_KEYS
    assert "lag_objectives" in (read_registry().problem or "")


def test_the_last_good_answer_stands_in_for_a_metastore_that_is_gone(
    platform: Platform, tmp_path: Path
) -> None:
    platform.table("sales.orders")
    assert "sales/orders/commits" in asset_keys(build_definitions())
    platform.metastore.close()
    (tmp_path / "metastore.db").rename(tmp_path / "elsewhere.db")
    assert "sales/orders/commits" in asset_keys(build_definitions())
    assert "there is no metastore" in (read_registry().problem or "")


def test_the_tables_of_another_metastore_are_not_shown(
    platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform.table("sales.orders")
    build_definitions()
    monkeypatch.setenv("MIRROR_METASTORE_URL", f"sqlite:///{tmp_path / 'other.db'}")
    assert asset_keys(build_definitions()) == PLATFORM_KEYS


def test_a_table_that_dagster_cannot_show_leaves_the_others_alone() -> None:
    tables = tuple(
        RegisteredTable(name=name, location=f"file:///lake/{name}")
        for name in ("sales.a-b", "sales.a_b", "sales.good")
    )
    registry = Registry(settings=load_settings().settings, tables=tables)
    assert list(build_tables(registry).broken) == ["sales.a_b"]
    assert "sales/good/commits" in asset_keys(build_definitions(registry))


def test_assets_say_whose_they_are_and_where_they_lie(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRROR_TABLE_OWNERS", "team:sales,ann@example.com")
    monkeypatch.setenv("MIRROR_LAG_OBJECTIVES", "sales.orders=600")
    keys = platform.table("sales.orders")
    graph = build_definitions().resolve_asset_graph()
    commits, lag = graph.get(keys.commits), graph.get(keys.mirror_lag)
    assert commits.group_name == "sales__orders"
    assert list(commits.owners) == ["team:sales", "ann@example.com"]
    assert commits.kinds == {"deltalake", "json"}
    assert str(platform.root) in (commits.description or "")
    policy = lag.freshness_policy
    assert policy.warn_window.to_timedelta().total_seconds() == 1_200
    assert policy.fail_window.to_timedelta().total_seconds() == 3_000


@pytest.mark.slow
@pytest.mark.parametrize("metastore", ["absent", "empty", "with a table"])
def test_dagster_validates_the_workspace(
    metastore: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if metastore != "absent":
        platform = request.getfixturevalue("platform")
        if metastore != "empty":
            platform.table("sales.orders")
    command = [str(Path(sys.executable).parent / "dagster"), "definitions", "validate"]
    command += ["--workspace", str(ROOT / "workspace.yaml")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_loading_starts_no_jvm_and_leaves_nothing_open(platform: Platform) -> None:
    platform.table("sales.orders")
    code = (
        "import os, mirror_assets.definitions\n"
        "from pathlib import Path\n"
        "opened = [os.path.realpath(f) for f in Path('/proc/self/fd').iterdir()]\n"
        "children = Path(f'/proc/self/task/{os.getpid()}/children').read_text().split()\n"
        "assert not children, children\n"
        "assert not [f for f in opened if f.endswith('metastore.db')], opened\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
