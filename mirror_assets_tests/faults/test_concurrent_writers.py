"""Many processes, killed and cut off at random: no version lost, doubled or out of order."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy import select

from mirror_assets.delta.actions import AddFile, CommitInfo
from mirror_assets.metastore.commit_plan import GROUP_TAG
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.tables import dl_table_versions
from mirror_assets_tests.builders import a_metastore, a_table
from mirror_assets_tests.faults import committer
from mirror_assets_tests.faults.committer import read_log, work_of

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerProcess

    from mirror_assets.metastore.database import Metastore

PROCESSES = 32
TABLES = 8
#: one in four of them commits to every table: together more than 10,000 versions
COMMITS_EACH = 116
SECONDS = 400
KILLS = 48
CUT_EVERY_SECONDS = 0.3

#: importing costs a process more than all its commits: a server that has done it once forks them;
#: it opens no database, and the idle threads of the libraries it loads are used by no committer
FORK_SERVER = multiprocessing.get_context("forkserver")
PROCESS = FORK_SERVER.Process

pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS + 60)]


@dataclass
class Crowd:
    """Committers, of which one is killed now and then, and started again."""

    url: str
    tables: list[str]
    folder: Path
    dice: random.Random
    running: dict[str, ForkServerProcess] = field(default_factory=dict)
    kills: int = 0
    cuts: int = 0

    def start(self, name: str) -> None:
        arguments = (self.url, self._log(name), name, COMMITS_EACH, self.tables)
        self.running[name] = PROCESS(target=committer.main, args=arguments, daemon=True)
        self.running[name].start()

    def kill_one(self) -> None:
        """Kill one that is at work, wherever it is in it."""
        at_work = [name for name in sorted(self.running) if self._log(name).exists()]
        if not at_work:
            return
        name = self.dice.choice(at_work)
        process = self.running[name]
        process.kill()
        process.join()
        if process.exitcode != 0:
            self.kills += 1
            self.start(name)

    def acknowledged(self) -> int:
        """How many commits the committers know of."""
        return sum(path.read_text().count("done") for path in self.folder.glob("*.log"))

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def settle(self) -> None:
        """Forget those that have done their work; fail if one could not."""
        for name, process in list(self.running.items()):
            if process.exitcode is not None:
                assert process.exitcode == 0, f"{name} ended with {process.exitcode}"
                del self.running[name]

    def stop(self) -> None:
        for process in self.running.values():
            process.kill()
            process.join()


def run_the_crowd(metastore: Metastore, folder: Path, seed: int) -> Crowd:
    dice = random.Random(seed)
    FORK_SERVER.set_forkserver_preload(["pytest", committer.__name__])
    tables = [a_table(metastore, f"lake.t{number}") for number in range(TABLES)]
    url = metastore.engine.url.render_as_string(hide_password=False)
    crowd = Crowd(url, tables, folder, dice)
    deadline = time.monotonic() + SECONDS
    with ExitStack() as stack:
        stack.callback(crowd.stop)
        cutter = Cutter(url) if metastore.dialect.name == "postgresql" else None
        if cutter is not None:
            stack.callback(cutter.close)
        for number in range(PROCESSES):
            crowd.start(f"w{number}")
        while crowd.running:
            assert time.monotonic() < deadline, f"{len(crowd.running)} processes are still at work"
            time.sleep(CUT_EVERY_SECONDS)
            crowd.settle()
            if crowd.acknowledged() * KILLS > crowd.kills * PROCESSES * COMMITS_EACH:
                crowd.kill_one()
            if cutter is not None:
                crowd.cuts += cutter.cut_one()
    return crowd


class Cutter:
    """Ends a connection of the server, wherever its transaction stands."""

    def __init__(self, url: str) -> None:
        dsn = url.replace("postgresql+psycopg://", "postgresql://")
        self._connection = psycopg.connect(dsn, autocommit=True)

    def cut_one(self) -> int:
        """Prefer one that is about to commit; how many there were to cut."""
        ended = self._connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid != pg_backend_pid()"
            " order by query ilike 'commit' desc, random() limit 1"
        ).fetchall()
        return len(ended)

    def close(self) -> None:
        self._connection.close()


@pytest.mark.parametrize(
    "engine", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]
)
def test_processes_killed_and_cut_off_at_random_lose_and_double_nothing(
    engine, tmp_path, request, record_property
):
    if engine == "sqlite":
        url = f"sqlite:///{tmp_path / 'metastore.db'}"
    else:
        url = request.getfixturevalue("postgres_url")()
    seed = int.from_bytes(os.urandom(4))
    print(f"seed {seed}")  # noqa: T201 - shown when it fails
    with a_metastore(url) as metastore:
        began = time.monotonic()
        crowd = run_the_crowd(metastore, tmp_path, seed)
        record_property("seconds", round(time.monotonic() - began))
        record_property("kills", crowd.kills)
        assert crowd.kills > 10
        assert engine == "sqlite" or crowd.cuts > 10
        metastore.close()  # its own idle connections were cut, too
        expected = what_was_promised(crowd)
        versions = sum(check_table(metastore, table, expected[table]) for table in crowd.tables)
        assert versions >= 10_000
        check_groups(metastore, crowd.tables)


def what_was_promised(crowd: Crowd) -> dict[str, set[str]]:
    """The commit ids that each table must hold. Every committer has ended: all are answered."""
    expected: dict[str, set[str]] = {table: set() for table in crowd.tables}
    for number in range(PROCESSES):
        name = f"w{number}"
        intents, done = read_log(crowd.folder / f"{name}.log")
        assert sorted(set(intents)) == sorted(set(done)) == list(range(COMMITS_EACH))
        for commit in intents:
            work = work_of(name, commit, crowd.tables)
            for table in work.tables:
                expected[table].add(work.commit_id)
    return expected


def check_table(metastore: Metastore, table: str, expected: set[str]) -> int:
    """Gapless, complete, nothing twice, in time, and every digest holds; how many versions."""
    reader = LogReader(metastore)
    versions, stamps, added = [], [], []
    for found in reader.commits(table):
        found.encode(table)
        versions.append(found.version)
        info = next(a for a in found.file.actions if isinstance(a, CommitInfo))
        stamps.append(info.get("inCommitTimestamp"))
        files = [a.path for a in found.file.actions if isinstance(a, AddFile)]
        assert found.version == 0 or files == [info.get("txnId")]
        added += files
    assert versions == list(range(len(expected) + 1))
    assert all(earlier < later for earlier, later in pairwise(stamps))
    assert Counter(added) == Counter(expected)
    live = [file.path for file in reader.live_files(table)]
    assert live == added
    head = reader.table(table)
    assert (head.head_version, head.num_files) == (versions[-1], len(expected))
    assert head.size_bytes == 1000 * len(expected)
    return len(versions)


def check_groups(metastore: Metastore, tables: list[str]) -> None:
    """Every multi-table transaction is in all of its tables."""
    versions = dl_table_versions
    query = select(versions.c.group_id, versions.c.table_id).where(versions.c.group_id.is_not(None))
    with metastore.read() as connection:
        participants = Counter(group for group, _ in connection.execute(query))
    assert len(participants) == PROCESSES * len(range(3, COMMITS_EACH, 4))
    assert set(participants.values()) == {len(tables)}
    (some,) = LogReader(metastore).commits(tables[-1], first=1, last=1)
    info = next(a for a in some.file.actions if isinstance(a, CommitInfo))
    assert info.get("tags")[GROUP_TAG] in participants
