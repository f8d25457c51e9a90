"""DuckDB admits one process: waited for, then said plainly."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from mirror_assets.errors import DatabaseLockedError, DatabaseUnavailableError
from mirror_assets.metastore import duck
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.log_writer import SqlTxnLogWriter
from mirror_assets.metastore.outcomes import Committed
from mirror_assets_tests.builders import a_metastore, a_table, add

HOLDER = """
import sys, duckdb
connection = duckdb.connect(sys.argv[1])
print("held", flush=True)
sys.stdin.readline()
connection.close()
"""


@pytest.fixture
def metastore(tmp_path):
    with a_metastore(f"duckdb:///{tmp_path / 'metastore.duckdb'}") as opened:
        yield opened


@contextmanager
def another_process_inside(metastore):
    command = [sys.executable, "-c", HOLDER, metastore.engine.url.database]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        try:
            assert holder.stdout.readline() == "held\n"
            yield holder
        finally:
            if not holder.stdin.closed:
                holder.communicate("leave\n")


def test_a_process_that_stays_is_named_in_the_error(metastore, monkeypatch):
    table = a_table(metastore)
    monkeypatch.setattr(duck, "_LOCK_SECONDS", 0.3)
    with another_process_inside(metastore):
        began = time.monotonic()
        with pytest.raises(DatabaseLockedError, match="DuckDB admits only one") as caught:
            SqlTxnLogWriter(metastore).commit(table, [add("a")])
        assert time.monotonic() - began >= 0.3
    assert "PostgreSQL" in caught.value.remedy
    assert LogReader(metastore).table(table).head_version == 0


def test_a_process_that_leaves_is_waited_for(metastore):
    table = a_table(metastore)
    with another_process_inside(metastore) as holder:
        leave = threading.Timer(0.5, holder.communicate, args=("leave\n",))
        leave.start()
        outcome = SqlTxnLogWriter(metastore).commit(table, [add("a")])
        leave.join()
    assert isinstance(outcome, Committed)


def test_a_folder_that_is_not_there_is_not_taken_for_a_lock(tmp_path):
    """Also not when its name says `lock`."""
    metastore = Metastore.open(f"duckdb:///{tmp_path / 'blocked' / 'metastore.duckdb'}")
    began = time.monotonic()
    with pytest.raises(DatabaseUnavailableError):
        LogReader(metastore).tables()
    assert time.monotonic() - began < 5
    metastore.close()


def test_two_metastores_in_one_process_take_turns(metastore):
    table = a_table(metastore)
    url = metastore.engine.url.render_as_string(hide_password=False)
    failures = []

    def work(name):
        own = Metastore.open(url)
        try:
            for number in range(5):
                SqlTxnLogWriter(own).commit(table, [add(f"{name}-{number}")])
        except Exception as error:  # noqa: BLE001 - shown by the test itself
            failures.append(error)
        finally:
            own.close()

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert LogReader(metastore).table(table).head_version == 15
