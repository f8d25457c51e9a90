"""An import that is killed goes on where it stopped, and ends as if it had not been."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import select

from mirror_assets.errors import TableExistsError, TableStateError
from mirror_assets.metastore import import_decoder, import_store, tables
from mirror_assets.metastore.import_store import ImportStore
from mirror_assets.metastore.importer import import_table
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.log_writer import SqlTxnLogWriter
from mirror_assets_tests.builders import a_metastore, state_in_sql
from mirror_assets_tests.delta.samples import a_remove, an_add
from mirror_assets_tests.metastore.logs import (
    START,
    a_log,
    actions_of,
    add_checkpoint,
    info,
    state_of,
)

if TYPE_CHECKING:
    from pathlib import Path

NAME = "sales.orders"
#: what the killed process runs: it kills itself when the n-th batch was written, or is half written
CHILD = """
import os, signal, sys
from mirror_assets.metastore import import_decoder, import_store
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.importer import import_table
from mirror_assets.storage.log_source import open_log

url, root, name, flushes, where = sys.argv[1:]
import_store._BATCH_ROWS = import_decoder.PART_ROWS = 3
left = int(flushes)
victim = {"after": "flush", "inside": "_mark", "owning": None}[where]

def counted(original):
    def call(self, *arguments):
        global left
        original(self, *arguments)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    return call

if victim:
    setattr(import_store.ImportStore, victim, counted(getattr(import_store.ImportStore, victim)))
else:
    from mirror_assets.metastore import importer
    importer._Importing.own = lambda self, record: os.kill(os.getpid(), signal.SIGKILL)
import_table(Metastore.open(url), open_log(root), name)
"""


@pytest.fixture
def metastore(metastore_url):
    with a_metastore(metastore_url) as opened:
        yield opened


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake" / "orders"


def _history(seed: int = 1):
    """Twelve versions in which files come, go, and come again."""
    chance = random.Random(seed)
    paths = [f"f{number}" for number in range(9)]
    commits = [[info(0), *START, *(an_add(path) for path in paths[:4])]]
    for version in range(1, 12):
        chosen = chance.sample(paths, chance.randrange(1, 7))
        kinds = [
            an_add(path, size=version) if chance.random() < 0.6 else a_remove(path)
            for path in chosen
        ]
        commits.append([info(version), *kinds])
    return commits


def _small_batches(monkeypatch, rows: int = 3) -> None:
    monkeypatch.setattr(import_store, "_BATCH_ROWS", rows)
    monkeypatch.setattr(import_decoder, "PART_ROWS", rows)


def _everything(metastore) -> dict[str, list[tuple]]:
    """All rows of all tables, but for the times at which they were registered."""
    with metastore.read() as connection:
        return {
            table.name: sorted(
                (
                    tuple(v for k, v in row.items() if k not in ("created_at_ms", "table_id"))
                    for row in connection.execute(select(table)).mappings()
                ),
                key=repr,
            )
            for table in tables.metadata.tables.values()
        }


class _KilledError(Exception):
    pass


def _killed_at(monkeypatch, method: str, call: int) -> None:
    """From now on the n-th call of a method of the store ends the import."""
    original = getattr(ImportStore, method)
    calls = iter(range(call))

    def counted(self, *arguments):
        original(self, *arguments)
        if next(calls, None) == call - 1:
            raise _KilledError

    monkeypatch.setattr(ImportStore, method, counted)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "seed"), [("after", 11), ("after", 12), ("inside", 13), ("owning", 14)]
)
def test_an_import_killed_by_the_system_goes_on(metastore, root, monkeypatch, where, seed):
    url = metastore.engine.url.render_as_string(hide_password=False)
    flushes = random.Random(seed).randrange(1, 9)
    print(f"seed {seed}: killed {where} flush {flushes}")  # noqa: T201
    source = a_log(root, *_history())
    child = subprocess.run(
        [sys.executable, "-c", CHILD, url, str(root), NAME, str(flushes), where],
        capture_output=True,
        check=False,
        text=True,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr

    _small_batches(monkeypatch)
    before = LogReader(metastore).table(NAME)
    report = import_table(metastore, source, NAME)

    assert before.state == "IMPORTING"
    assert report.resumed_after == (before.head_version if before.head_version >= 0 else None)
    for version in range(12):
        assert state_in_sql(metastore, NAME, version) == state_of(root, version)


@pytest.mark.parametrize("with_floor", [False, True])
@pytest.mark.parametrize("method", ["flush", "_insert"])
def test_an_import_that_stopped_anywhere_ends_like_one_that_did_not(
    tmp_path, root, monkeypatch, method, with_floor
):
    source = a_log(root, *_history())
    if with_floor:
        add_checkpoint(root, 6, actions_of(state_of(root, 6)))
        (root / "_delta_log" / f"{0:020}.json").unlink()
    _small_batches(monkeypatch)
    with a_metastore(f"sqlite:///{tmp_path}/clean.db") as metastore:
        import_table(metastore, source, NAME)
        expected = _everything(metastore)

    for call in range(1, 40, 2):
        with a_metastore(f"sqlite:///{tmp_path}/{call}.db") as metastore:
            with monkeypatch.context() as killing:
                _killed_at(killing, method, call)
                try:
                    import_table(metastore, source, NAME)
                except _KilledError:
                    pass
                else:
                    break
            import_table(metastore, source, NAME)
            assert _everything(metastore) == expected, call
    assert call > 5


def test_a_table_takes_no_commits_before_it_is_owned(metastore, root, monkeypatch):
    source = a_log(root, *_history())
    with monkeypatch.context() as killing:
        _small_batches(killing)
        _killed_at(killing, "flush", 3)
        with pytest.raises(_KilledError):
            import_table(metastore, source, NAME)

    with pytest.raises(TableStateError, match="import"):
        SqlTxnLogWriter(metastore).commit(NAME, [an_add("new")])


def test_a_log_that_changed_meanwhile_is_not_gone_on_with(metastore, root, monkeypatch):
    source = a_log(root, *_history())
    with monkeypatch.context() as killing:
        _small_batches(killing)
        _killed_at(killing, "flush", 4)
        with pytest.raises(_KilledError):
            import_table(metastore, source, NAME)
    a_log(root, *_history(seed=2))

    with pytest.raises(TableStateError, match="json") as changed:
        import_table(metastore, source, NAME)

    assert "drop" in changed.value.remedy
    assert LogReader(metastore).table(NAME).state == "IMPORTING"


def test_other_options_are_not_gone_on_with(metastore, root, tmp_path, monkeypatch):
    source = a_log(root, *_history())
    add_checkpoint(root, 9, actions_of(state_of(root, 9)))
    with monkeypatch.context() as killing:
        _small_batches(killing)
        _killed_at(killing, "flush", 6)
        with pytest.raises(_KilledError):
            import_table(metastore, source, NAME)
    assert LogReader(metastore).table(NAME).head_version > 1

    with pytest.raises(TableStateError):
        import_table(metastore, source, NAME, history="checkpoint")
    with pytest.raises(TableStateError):
        import_table(metastore, source, NAME, up_to_version=1)
    with pytest.raises(TableExistsError):
        import_table(metastore, source, NAME, mirror_to=f"{tmp_path}/elsewhere")
    with pytest.raises(TableExistsError):
        import_table(metastore, a_log(tmp_path / "other", *_history()), NAME)

    assert import_table(metastore, source, NAME).version == 11


def test_two_imports_of_one_table_do_not_mix(metastore, root, monkeypatch):
    """The second one takes over what the first has begun; the first then sees it and stops."""
    source = a_log(root, *_history())
    _small_batches(monkeypatch)
    nested = []

    def interfere(progress):
        if progress.version == 5 and not nested:
            nested.append(None)
            nested[0] = import_table(metastore, source, NAME)

    with pytest.raises(TableStateError, match="another import"):
        import_table(metastore, source, NAME, progress=interfere)

    assert nested[0].version == 11
    assert state_in_sql(metastore, NAME) == state_of(root, 11)
