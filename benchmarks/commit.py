"""A commit of one file: what a writer waits for, early and late in a table's life (goals 1-5)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Final

from benchmarks import delta_rs
from benchmarks.bench import Bench
from benchmarks.measuring import Sample, in_turns, measure
from benchmarks.raw_sql import RawWriter
from benchmarks.reporting import Result
from benchmarks.samples import a_table, adds, an_add, one_add_commits
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_writer import SqlTxnLogWriter

_SHORT: Final = 10
_WARM_UP: Final = 10
_WRITE: Final = "delta-rs `write_deltalake(path)`"
_TRANSACTION: Final = "delta-rs `create_write_transaction`, no data file"
_BARE: Final = "4 statements in the bare driver, synced to disk all the same"
_NUMBERS: Final = count(1)


def run(bench: Bench) -> Iterator[Result]:
    """Ours and delta-rs's commits in turns, at a short and at a long history."""
    yield from _at_short_history(bench)
    old = {engine: bench.metastore(engine) for engine in ("postgresql", "sqlite")}
    length = bench.of(10_000, 150)
    grown = {engine: _Table(bench, store, history=length) for engine, store in old.items()}
    yield from _at_long_history(bench, grown["postgresql"], length)
    for name, table in (("Postgres", grown["postgresql"]), ("SQLite", grown["sqlite"])):
        yield _flatness(bench, name, table, length)
    yield from _above_the_floor(bench)


class _Table:
    """A table of ours with a history of commits of one file each."""

    def __init__(self, bench: Bench, metastore: Metastore, *, history: int) -> None:
        self.name = a_table(metastore, f"t{next(_NUMBERS)}")
        self.engine = metastore.dialect.name
        self._writer = SqlTxnLogWriter(metastore)
        self._server = bench.server_cpu if self.engine == "postgresql" else None
        self._files = map(an_add, count(1))
        # statements and caches get warm in another table, so that this one keeps its age
        warm = a_table(metastore, f"t{next(_NUMBERS)}")
        for actions in one_add_commits(_WARM_UP):
            self._writer.commit(warm, actions)
        for _ in range(history):
            self._writer.commit(self.name, [next(self._files)])

    def sample(self, calls: int) -> Sample:
        """Commit some more."""
        commits = [[next(self._files)] for _ in range(calls)]
        return measure(lambda each: self._writer.commit(self.name, each), commits, self._server)


def _at_short_history(bench: Bench) -> Iterator[Result]:
    template = delta_rs.write_log(bench.path("short"), _SHORT)
    stores = [bench.metastore("postgresql"), bench.metastore("sqlite")]

    def theirs(append: Callable[[Path], None]) -> Callable[[], Sample]:
        def contender() -> Sample:
            table = shutil.copytree(template, bench.path("copy"))
            return measure(append, [table] * _SHORT)

        return contender

    def ours(metastore: Metastore) -> Callable[[], Sample]:
        return lambda: _Table(bench, metastore, history=_SHORT).sample(_calls(bench))

    def bare(metastore: Metastore) -> Callable[[], Sample]:
        """The same rows by the bare driver, into a database of its own."""
        raw = RawWriter.of(metastore, _Table(bench, metastore, history=_SHORT).name)
        bench.stack.callback(raw.close)
        files = map(an_add, count(1_000_000))
        rows = iter(lambda: raw.row(next(files)), None)
        return lambda: measure(raw.commit, [next(rows) for _ in range(_calls(bench))])

    floors = [bare(bench.metastore("postgresql")), bare(bench.metastore("sqlite"))]
    write, transaction, postgres, sqlite, bare_postgres, bare_sqlite = in_turns(
        bench.rounds, theirs(delta_rs.append_row), theirs(_append_add), *map(ours, stores), *floors
    )
    what = f"one-add commit, {{}}, {_SHORT} commits of history, p50"
    for goal, name, sample, floor, bound in (
        ("1", "Postgres", postgres, bare_postgres, 1 / 15),
        ("5", "SQLite", sqlite, bare_sqlite, 1 / 50),
    ):
        yield _wall(goal, what.format(name), sample, (_WRITE, write), bound)
        yield _wall(goal, what.format(name), sample, (_TRANSACTION, transaction))
        yield _wall(goal, what.format(name), sample, (_BARE, floor))


def _at_long_history(bench: Bench, table: _Table, length: int) -> Iterator[Result]:
    log = delta_rs.write_log(bench.path("long"), length)
    write, transaction, sample = in_turns(
        bench.rounds,
        lambda: measure(delta_rs.append_row, [log] * 2),
        lambda: measure(_append_add, [log] * 2),
        lambda: table.sample(_calls(bench)),
    )
    what = f"one-add commit, Postgres, {length:,} commits of history, p50"
    yield _wall("2", what, sample, (_WRITE, write), 1 / 50)
    yield _wall("2", what, sample, (_TRANSACTION, transaction))


def _flatness(bench: Bench, name: str, grown: _Table, length: int) -> Result:
    """Each in a database of its own: all tables of a database share its indexes."""
    empty = bench.metastore(grown.engine)
    young, aged = in_turns(
        bench.rounds,
        lambda: _Table(bench, empty, history=0).sample(_calls(bench)),
        lambda: grown.sample(_calls(bench)),
    )
    whose = "client and server" if grown.engine == "postgresql" else "client"
    return Result(
        goal="3",
        what=f"CPU per commit, {name}, {length:,} commits of history, {whose}",
        unit="ms",
        ours=aged.total_cpu * 1000,
        against="ours at 0 commits",
        theirs=young.total_cpu * 1000,
        bound=1.2,
    )


def _above_the_floor(bench: Bench) -> Iterator[Result]:
    metastore, calls = bench.metastore("postgresql"), _calls(bench)
    table = _Table(bench, metastore, history=1)
    raw = RawWriter.of(metastore, _Table(bench, metastore, history=1).name)
    rows = iter([raw.row(add) for add in adds(_WARM_UP + calls * bench.rounds)])
    for _ in range(_WARM_UP):
        raw.commit(next(rows))

    def floor() -> Sample:
        return measure(raw.commit, [next(rows) for _ in range(calls)], bench.server_cpu)

    sample, bare = in_turns(bench.rounds, lambda: table.sample(calls), floor)
    raw.close()
    for what, ours, theirs, bound in (
        ("CPU of the client per commit, Postgres", sample.cpu, bare.cpu, 2),
        ("the same with the server's", sample.total_cpu, bare.total_cpu, None),
    ):
        yield Result(
            goal="4",
            what=what,
            unit="ms",
            ours=ours * 1000,
            against="4 statements in bare psycopg, nothing checked or encoded",
            theirs=theirs * 1000,
            bound=bound,
        )


def _calls(bench: Bench) -> int:
    return bench.of(120, 30)


def _append_add(table: Path) -> None:
    delta_rs.append_adds(table, [delta_rs.add_action(an_add(next(_NUMBERS), writer=7))])


def _wall(
    goal: str, what: str, ours: Sample, theirs: tuple[str, Sample], bound: float | None = None
) -> Result:
    peer, sample = theirs
    return Result(
        goal=goal,
        what=what,
        unit="ms",
        ours=ours.wall * 1000,
        against=peer,
        theirs=sample.wall * 1000,
        bound=bound,
    )
