"""Writers side by side: on tables of their own, and all on one table (goals 6 and 7)."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import median
from typing import Any

from benchmarks.bench import Bench
from benchmarks.raw_sql import RawWriter
from benchmarks.reporting import Result
from benchmarks.samples import a_metastore, a_table, an_add
from mirror_assets.delta.actions import AddFile
from mirror_assets.delta.conflicts import ReadSet
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.log_writer import SqlTxnLogWriter
from mirror_assets.metastore.outcomes import Committed

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["benchmarks.concurrent"])
_WARM_UP = 5


@dataclass(frozen=True, slots=True)
class _Tally:
    """What some writers did together."""

    per_second: float
    conflicts: int
    commits: int


@dataclass(frozen=True, slots=True)
class _Order:
    """What one writer is to do."""

    url: str
    table: str
    number: int
    seconds: float

    def files(self) -> Iterator[AddFile]:
        """Files that no other writer adds, nor this one in another round."""
        identity = self.number << 20 | time.time_ns() & 0xFFFFF
        return (an_add(number, identity) for number in count())


def run(bench: Bench) -> Iterator[Result]:
    """One writer and many in turns; then blind appends and compare-and-swap in turns."""
    url = bench.url("postgresql")
    metastore = a_metastore(url)
    many = bench.of(32, 8)
    tables = [a_table(metastore, f"own{number}") for number in range(many)]
    seconds, rounds = bench.of(4, 1), bench.of(3, 1)
    alone, together = _in_turns(
        rounds,
        lambda: _work(_append, url, tables[:1], seconds),
        lambda: _work(_append, url, tables, seconds),
    )
    yield Result(
        goal="6",
        what=f"commits of {many} writers on {many} tables, Postgres",
        unit="/s",
        ours=together.per_second,
        against="one writer",
        theirs=alone.per_second,
        bound=1.5,
        at_least=True,
    )

    name = a_table(metastore, "shared")
    SqlTxnLogWriter(metastore).commit(name, [an_add(0)])
    writers = [name] * 8
    blind, swapping, bare = _in_turns(
        rounds,
        lambda: _work(_append, url, writers, seconds),
        lambda: _work(_compare_and_swap, url, writers, seconds),
        lambda: _work(_compare_and_swap_bare, url, writers, seconds),
    )
    for who, loop, bound in (("bare psycopg", bare, 3), ("our writer", swapping, None)):
        lost = loop.conflicts / max(1, loop.commits)
        yield Result(
            goal="7",
            what="commits of 8 blind appenders on one table, Postgres",
            unit="/s",
            ours=blind.per_second,
            against=f"CAS on a remembered head, {who}, {lost:.1f} conflicts per commit",
            theirs=loop.per_second,
            bound=bound,
            at_least=True,
        )
    yield Result(
        goal="7",
        what="conflicts of the 8 blind appenders",
        unit="",
        ours=blind.conflicts,
        against="none allowed",
        theirs=0,
        bound=1,
    )
    _require_gapless(metastore, name)
    metastore.close()


def _in_turns(rounds: int, *contenders: Callable[[], _Tally]) -> list[_Tally]:
    taken: list[list[_Tally]] = [[] for _ in contenders]
    for _ in range(rounds):
        for tallies, contender in zip(taken, contenders, strict=True):
            tallies.append(contender())
    return [
        _Tally(
            median(t.per_second for t in tallies),
            sum(t.conflicts for t in tallies),
            sum(t.commits for t in tallies),
        )
        for tallies in taken
    ]


def _work(
    loop: Callable[[_Order, Any, Any], None], url: str, tables: Sequence[str], seconds: float
) -> _Tally:
    """A process per table name; all begin at once and stop when the time is over."""
    start = _PROCESSES.Barrier(len(tables))
    answers = _PROCESSES.SimpleQueue()
    orders = [_Order(url, table, number, seconds) for number, table in enumerate(tables, start=1)]
    processes = [
        _PROCESSES.Process(target=loop, args=(order, start, answers), daemon=True)
        for order in orders
    ]
    for process in processes:
        process.start()
    tallies = [answers.get() for _ in processes]
    for process in processes:
        process.join()
    commits = sum(commits for commits, _ in tallies)
    return _Tally(commits / seconds, sum(conflicts for _, conflicts in tallies), commits)


def _append(order: _Order, start: Any, answers: Any) -> None:
    metastore = Metastore.open(order.url)
    writer = SqlTxnLogWriter(metastore)
    files = order.files()
    for _ in range(_WARM_UP):
        writer.commit(order.table, [next(files)])
    start.wait()
    deadline = time.perf_counter() + order.seconds
    commits = conflicts = 0
    while time.perf_counter() < deadline:
        outcome = writer.commit(order.table, [next(files)])
        if isinstance(outcome, Committed):
            commits += 1
        else:
            conflicts += 1
    answers.put((commits, conflicts))
    metastore.close()


def _compare_and_swap(order: _Order, start: Any, answers: Any) -> None:
    """Whoever has read the table may only commit if nothing has happened since."""
    metastore = Metastore.open(order.url)
    writer, reader = SqlTxnLogWriter(metastore), LogReader(metastore)
    files, everything = order.files(), ReadSet(whole_table=True)
    head = reader.table(order.table).head_version
    writer.commit(order.table, [next(files)], read_version=head - 1, reads=everything)  # warms
    start.wait()
    deadline = time.perf_counter() + order.seconds
    commits = conflicts = 0
    add = next(files)
    while time.perf_counter() < deadline:
        match writer.commit(order.table, [add], read_version=head, reads=everything):
            case Committed(version=head):
                commits += 1
                add = next(files)
            case _:
                conflicts += 1
                head = reader.table(order.table).head_version
    answers.put((commits, conflicts))
    metastore.close()


def _compare_and_swap_bare(order: _Order, start: Any, answers: Any) -> None:
    metastore = Metastore.open(order.url)
    writer = RawWriter.of(metastore, order.table)
    metastore.close()
    files = order.files()
    start.wait()
    deadline = time.perf_counter() + order.seconds
    commits = conflicts = 0
    row = writer.row(next(files))
    while time.perf_counter() < deadline:
        if writer.commit(row):
            commits += 1
            row = writer.row(next(files))
        else:
            conflicts += 1
            writer.look()
    answers.put((commits, conflicts))
    writer.close()


def _require_gapless(metastore: Metastore, name: str) -> None:
    """What raced must still be a log."""
    reader = LogReader(metastore)
    versions = [row["version"] for row in reader.history(name)]
    expected = list(range(reader.table(name).head_version, -1, -1))
    if versions != expected:
        message = f"{name}: the versions have gaps"
        raise AssertionError(message)
