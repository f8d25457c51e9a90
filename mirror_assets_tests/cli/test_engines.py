"""`--engine auto`: by measured size, and said why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror_assets.cli import engines
from mirror_assets.cli.engines import (
    Engine,
    choose_for_checkpoint,
    choose_for_mirror,
    choose_for_reconcile,
)
from mirror_assets.cli.output import JsonOutput
from mirror_assets.cli.session import Session
from mirror_assets.metastore.mirror_state import pause
from mirror_assets.mirror.service import Mirror
from mirror_assets_tests.builders import a_metastore, a_table, add, commit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror_assets.metastore.database import Metastore

NAMES = [f"db.t{n}" for n in range(3)]


@pytest.fixture
def metastore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Metastore]:
    """Three tables of three versions and two files each."""
    for name, value in {"FILES": 2, "COMMITS": 9, "TABLES": 3, "FILES_READ": 9}.items():
        monkeypatch.setattr(engines, f"_SPARK_{name}", value)
    with a_metastore(f"sqlite:///{tmp_path / 'metastore.db'}") as opened:
        for name in NAMES:
            a_table(opened, name, location=str(tmp_path / name))
            for number in range(2):
                commit(opened, name, add(f"{number}.parquet"))
        yield opened


@pytest.fixture
def session(
    metastore: Metastore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Session]:
    monkeypatch.chdir(tmp_path)
    opened = Session(JsonOutput(), f"sqlite:///{tmp_path / 'metastore.db'}")
    yield opened
    opened.close()


def test_a_backfill_is_for_spark_if_enough_commits_of_enough_tables_can_be_published(
    session: Session, metastore: Metastore
) -> None:
    choice = choose_for_mirror(session, Engine.AUTO, None, None)
    assert choice.engine is Engine.SPARK
    assert choice.reason == "9 pending commits of 3 tables; Spark from 9 of 3 on"
    assert choose_for_mirror(session, Engine.ARROW, None, None).engine is Engine.ARROW

    choice = choose_for_mirror(session, Engine.AUTO, None, 1)
    assert choice.engine is Engine.ARROW
    assert choice.reason.startswith("6 pending commits of 3 tables")
    assert choose_for_mirror(session, Engine.AUTO, NAMES[:2], None).engine is Engine.ARROW

    pause(metastore, NAMES[0], "by hand")
    choice = choose_for_mirror(session, Engine.AUTO, None, None)
    assert (choice.engine, choice.reason[:30]) == (Engine.ARROW, "6 pending commits of 2 tables;")


def test_a_reconcile_is_for_spark_if_it_reads_enough_commit_files(
    session: Session, metastore: Metastore
) -> None:
    choice = choose_for_reconcile(session, Engine.AUTO, NAMES, reads_all=True)
    assert choice.engine is Engine.ARROW
    assert choice.reason.startswith("0 published commits of 3 tables")
    Mirror(metastore).settle(patience_s=30)
    choice = choose_for_reconcile(session, Engine.AUTO, NAMES, reads_all=True)
    assert choice.engine is Engine.SPARK
    assert choice.reason.startswith("9 published commits of 3 tables")
    assert choose_for_reconcile(session, Engine.AUTO, NAMES, reads_all=False).engine is Engine.ARROW


def test_a_checkpoint_is_for_spark_if_it_has_parts_enough(
    session: Session, metastore: Metastore, tmp_path: Path
) -> None:
    a_table(metastore, "db.v2", location=str(tmp_path / "v2"), features=["v2Checkpoint"])
    commit(metastore, "db.v2", add("0.parquet"))
    choice = choose_for_checkpoint(session, Engine.AUTO, "db.v2")
    assert (choice.engine, choice.reason) == (Engine.ARROW, "1 files in sidecars; Spark from 2 on")
    commit(metastore, "db.v2", add("1.parquet"))
    assert choose_for_checkpoint(session, Engine.AUTO, "db.v2").engine is Engine.SPARK
    choice = choose_for_checkpoint(session, Engine.AUTO, NAMES[0])
    assert (choice.engine, choice.reason) == (Engine.ARROW, "2 files in one file")
