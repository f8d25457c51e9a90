"""The state of a table with a million live files: its summary, and all of them (goal 16)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from random import Random

from sqlalchemy import select

from benchmarks import delta_rs
from benchmarks.bench import Bench
from benchmarks.measuring import calmest_child, in_child, measure
from benchmarks.reporting import Result
from benchmarks.samples import a_metastore, a_table, adds, an_add
from mirror_assets.metastore.arrow_reader import stream
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_reader import LogReader, is_live
from mirror_assets.metastore.log_writer import SqlTxnLogWriter
from mirror_assets.metastore.rows import to_row
from mirror_assets.metastore.tables import dl_add_files

_ENGINES = {"postgresql": "Postgres", "sqlite": "SQLite", "duckdb": "DuckDB"}
_TABLE = "big"
_LISTED = ("path", "partition_values", "size", "modification_time", "stats")


def run(bench: Bench) -> Iterator[Result]:
    """Load the same files everywhere, then ask in turns."""
    files, per_commit = bench.of(1_000_000, 10_000), bench.of(10_000, 2_000)
    log = delta_rs.write_checkpointed(bench.path("big"), files)
    urls = {engine: bench.url(engine) for engine in _ENGINES}
    stores = {engine: a_metastore(url) for engine, url in urls.items()}
    _load(stores.values(), files, per_commit)

    versions = files // per_commit
    for engine, store in stores.items():
        yield _summary(engine, store, versions, bench.of(200, 20))
        store.close()

    peers, ours = [], {engine: [] for engine in _ENGINES}
    for _ in range(bench.of(3, 1)):
        peers.append(in_child(delta_rs.count_listed_files, table=str(log)))
        for engine, url in urls.items():
            ours[engine].append(in_child(count_live_files, url=url))
    peer = calmest_child(peers)
    for engine, name in _ENGINES.items():
        sample = calmest_child(ours[engine])
        if {sample.value, peer.value} != {files}:
            message = f"{files} files went in, {sample.value} and {peer.value} came out"
            raise AssertionError(message)
        for what, unit, mine, other, bound in (
            ("wall", "s", sample.wall, peer.wall, 0.5),
            ("peak memory", "MB", sample.peak_mb, peer.peak_mb, None),
        ):
            yield Result(
                goal="16",
                what=f"all {files:,} live files as Arrow, {name}, {what}",
                unit=unit,
                ours=mine,
                against="delta-rs open + `get_add_actions`",
                theirs=other,
                bound=bound,
            )


def count_live_files(url: str) -> int:
    """Stream what delta-rs lists, too, of every live file."""
    metastore = Metastore.open(url)
    table = LogReader(metastore).table(_TABLE)
    columns = (dl_add_files.c[name] for name in _LISTED)
    query = select(*columns).where(is_live(dl_add_files, table.table_id, table.head_version))
    return sum(batch.num_rows for batch in stream(metastore, query))


def _load(stores: Iterable[Metastore], files: int, per_commit: int) -> None:
    """Commits of one file each, to which the others are added past the writer.

    The totals of the versions do not count those, but are asked for all the same.
    """
    versions = files // per_commit
    with ExitStack() as stack:
        connections = []
        for store in stores:
            writer, name = SqlTxnLogWriter(store), a_table(store, _TABLE)
            for version in range(1, versions + 1):
                writer.commit(name, [an_add(version, writer=1)])
            connections.append((store.dialect, stack.enter_context(store.write())))
        for version in range(1, versions + 1):
            batch = adds(per_commit - 1, version * per_commit)
            rows = [to_row(add, (1, version, n))[1] for n, add in enumerate(batch, start=2)]
            for dialect, connection in connections:
                dialect.insert_bulk(connection, dl_add_files, rows)


def _summary(engine: str, metastore: Metastore, versions: int, calls: int) -> Result:
    reader, random = LogReader(metastore), Random(0)
    asked = [random.randint(0, versions) for _ in range(calls)]
    samples = [
        measure(lambda version: reader.summary(_TABLE, version), asked).wall for _ in range(3)
    ]
    return Result(
        goal="16",
        what=f"summary of a version, {_ENGINES[engine]}, p50",
        unit="ms",
        ours=min(samples) * 1000,
        against="the limit",
        theirs=1,
        # DuckDB is opened for every question, because it admits one process
        bound=None if engine == "duckdb" else 1,
    )
