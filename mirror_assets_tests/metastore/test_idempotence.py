"""The same work twice is done once: by commit id, by txn(appId, version), after a kill."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

import pytest

from mirror_assets.delta.actions import DomainMetadata
from mirror_assets.metastore import log_reader
from mirror_assets.metastore.outcomes import AlreadyCommitted, CommitRequest, Committed, Conflict
from mirror_assets.metastore.outcomes import new_commit_id as fresh_id
from mirror_assets.metastore.rows import from_row
from mirror_assets_tests.builders import a_table, add, commit, paths, txn


def test_the_same_commit_id_commits_once(metastore, writer, reader):
    table = a_table(metastore)
    first = writer.commit(table, [add("a")], commit_id="mine")
    commit(metastore, table, add("b"))
    again = writer.commit(table, [add("a")], commit_id="mine")
    assert isinstance(first, Committed)
    assert again == AlreadyCommitted(table=table, version=1, reason="commit_id")
    assert reader.table(table).head_version == 2


def test_the_same_commit_id_is_found_whatever_is_asked_with_it(metastore, writer, reader):
    """A retry may be judged differently by now: it was committed, and that is the answer."""
    table = a_table(metastore)
    commit(metastore, table, add("a"))
    writer.commit(table, [add("b")], read_version=1, commit_id="mine")
    commit(metastore, table, reader.summary(table).metadata)
    again = writer.commit(table, [add("b")], read_version=1, commit_id="mine")
    assert again == AlreadyCommitted(table=table, version=2, reason="commit_id")


def test_a_commit_id_counts_for_its_table_only(metastore, writer):
    first, second = a_table(metastore), a_table(metastore)
    assert isinstance(writer.commit(first, [add("a")], commit_id="mine"), Committed)
    assert isinstance(writer.commit(second, [add("a")], commit_id="mine"), Committed)


@pytest.mark.parametrize("version", [5, 4, 0, -1])
def test_an_application_version_that_is_not_newer_was_done_before(
    metastore, writer, reader, version
):
    table = a_table(metastore)
    commit(metastore, table, add("a"), txn("etl", 5))
    commit(metastore, table, add("b"), txn("other", 99))
    again = writer.commit(table, [add("c"), txn("etl", version)])
    assert again == AlreadyCommitted(table=table, version=1, reason="txn")
    assert paths(reader.live_files(table)) == ["a", "b"]


def test_a_newer_application_version_is_committed(metastore, writer, reader):
    table = a_table(metastore)
    commit(metastore, table, add("a"), txn("etl", 5))
    assert isinstance(writer.commit(table, [add("b"), txn("etl", 6)]), Committed)
    assert reader.txns(table)["etl"].version == 6
    assert reader.txns(table, 1)["etl"].version == 5


def test_application_ids_are_compared_as_they_are(metastore, writer):
    table = a_table(metastore)
    commit(metastore, table, txn("App", 5))
    for app_id in ("app", "App ", "Äpp", "App%", "A_p", ""):
        assert isinstance(writer.commit(table, [txn(app_id, 1)]), Committed), app_id


def test_a_conflict_or_a_breach_uses_up_neither_id_nor_version(metastore, writer, reader):
    table = a_table(metastore)
    commit(metastore, table, reader.summary(table).metadata)
    lost = writer.commit(table, [add("a"), txn("etl", 1)], read_version=0, commit_id="mine")
    assert isinstance(lost, Conflict)
    done = writer.commit(table, [add("a"), txn("etl", 1)], read_version=1, commit_id="mine")
    assert isinstance(done, Committed)
    assert done.version == 2


def test_a_group_that_was_committed_in_another_shape_is_told_apart(metastore, writer, reader):
    first, second = a_table(metastore), a_table(metastore)
    writer.commit(first, [add("a")], commit_id="mine")
    requests = [CommitRequest(table=t, actions=[add("a")]) for t in (first, second)]
    (done, lost) = writer.commit_all(requests, commit_id="mine")
    assert isinstance(done, AlreadyCommitted)
    assert isinstance(lost, Conflict)
    assert reader.table(second).head_version == 0


def test_fresh_commit_ids_are_uuids_in_the_order_of_time():
    ids = [fresh_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert [one[:13] for one in ids] == sorted(one[:13] for one in ids)
    assert {one[14] for one in ids} == {"7"}


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_client_that_was_killed_tries_again_with_its_id(metastore, writer, reader, moment):
    """Killed around COMMIT, it cannot know; asking again answers it."""
    table = a_table(metastore)
    url = metastore.engine.url.render_as_string(hide_password=False)
    metastore.close()
    script = textwrap.dedent("""
        import os, signal, sys
        from mirror_assets.metastore.database import Metastore
        from mirror_assets.metastore.log_writer import SqlTxnLogWriter
        from mirror_assets_tests.builders import add

        url, table, moment = sys.argv[1:]
        metastore = Metastore.open(url)
        commit, run = metastore.engine.dialect.do_commit, metastore.dialect.run
        commits_along = metastore.dialect.name == "postgresql"

        def die():
            os.kill(os.getpid(), signal.SIGKILL)

        def die_around(connection):
            if moment == "after":
                commit(connection)
            die()

        def die_instead(connection, steps, *, is_all=False):
            if is_all and moment == "before" and commits_along:
                die()
            return run(connection, steps, is_all=is_all)

        metastore.engine.dialect.do_commit = die_around
        metastore.dialect.run = die_instead
        SqlTxnLogWriter(metastore).commit(table, [add("a")], commit_id="mine")
    """)
    done = subprocess.run([sys.executable, "-c", script, url, table, moment], check=False)
    assert done.returncode == -signal.SIGKILL
    outcome = writer.commit(table, [add("a")], commit_id="mine")
    assert isinstance(outcome, AlreadyCommitted if moment == "after" else Committed)
    assert outcome.version == 1
    assert paths(reader.live_files(table)) == ["a"]


def test_only_the_newest_action_of_each_application_and_domain_is_read(
    metastore, reader, monkeypatch
):
    table = a_table(metastore, features=["domainMetadata"])
    for number in range(1, 4):
        mine = DomainMetadata(domain="mine", configuration=f"{number}", removed=number == 3)
        yours = DomainMetadata(domain="yours", configuration=f"{number}", removed=False)
        commit(metastore, table, txn("etl", number), mine, *([yours] if number < 3 else []))
    commit(metastore, table, txn("other", 7))
    read: list[str] = []
    monkeypatch.setattr(
        log_reader, "from_row", lambda kind, row: read.append(kind.name) or from_row(kind, row)
    )
    assert {app: a.version for app, a in reader.txns(table).items()} == {"etl": 3, "other": 7}
    assert {name: a.configuration for name, a in reader.domains(table).items()} == {"yours": "2"}
    assert read == ["dl_txn_actions"] * 2 + ["dl_domain_metadata"] * 2
    assert {app: a.version for app, a in reader.txns(table, 2).items()} == {"etl": 2}
    assert {n: a.configuration for n, a in reader.domains(table, 1).items()} == {
        "mine": "1",
        "yours": "1",
    }
    assert reader.txns(table, 0) == reader.domains(table, 0) == {}
