"""Backpressure: a writer that runs away from the mirror is warned, held up, refused."""

from __future__ import annotations

import threading
import time

import pytest
from sqlalchemy import update

from mirror_assets.errors import BackpressureError
from mirror_assets.metastore.log_writer import Backpressure, SqlTxnLogWriter
from mirror_assets.metastore.outcomes import Committed
from mirror_assets.metastore.tables import dl_tables
from mirror_assets_tests.builders import a_table, add, commit


def mirrored_until(metastore, version):
    with metastore.write() as connection:
        connection.execute(update(dl_tables).values(mirrored_version=version))


def a_backlog(metastore, versions):
    """A table whose newest `versions` versions are not mirrored."""
    table = a_table(metastore)
    for number in range(2):
        commit(metastore, table, add(f"{number}"))
    mirrored_until(metastore, 2 - versions)
    return table


def test_without_limits_nobody_waits(metastore, writer):
    table = a_backlog(metastore, 3)
    assert writer.commit(table, [add("a")]).findings == []


@pytest.mark.parametrize(("backlog", "rules"), [(1, []), (2, ["MA-107"])])
def test_a_backlog_at_the_warning_limit_is_noted_in_the_outcome(metastore, backlog, rules):
    table = a_backlog(metastore, backlog)
    writer = SqlTxnLogWriter(metastore, backpressure=Backpressure(warn=2))
    outcome = writer.commit(table, [add("a")])
    assert isinstance(outcome, Committed)
    assert [finding.rule for finding in outcome.findings] == rules


def test_a_backlog_at_the_refusal_limit_is_refused_at_once(metastore, reader):
    table = a_backlog(metastore, 2)
    limits = Backpressure(warn=1, wait=1, refuse=2, wait_seconds=60)
    with pytest.raises(BackpressureError) as caught:
        SqlTxnLogWriter(metastore, backpressure=limits).commit(table, [add("a")])
    assert caught.value.table == table
    assert reader.table(table).head_version == 2
    mirrored_until(metastore, 2)
    outcome = SqlTxnLogWriter(metastore, backpressure=limits).commit(table, [add("a")])
    assert isinstance(outcome, Committed)


def test_a_writer_that_waited_in_vain_is_refused(metastore, reader):
    table = a_backlog(metastore, 1)
    limits = Backpressure(wait=1, wait_seconds=0.2)
    began = time.monotonic()
    with pytest.raises(BackpressureError):
        SqlTxnLogWriter(metastore, backpressure=limits).commit(table, [add("a")])
    assert time.monotonic() - began >= 0.2
    assert reader.table(table).head_version == 2


def test_a_waiting_writer_goes_on_when_the_mirror_has_caught_up(metastore):
    table = a_backlog(metastore, 1)
    writer = SqlTxnLogWriter(metastore, backpressure=Backpressure(wait=1, wait_seconds=60))
    mirror = threading.Timer(0.3, mirrored_until, args=(metastore, 2))
    mirror.start()
    try:
        assert writer.commit(table, [add("a")]).version == 3
    finally:
        mirror.join()
