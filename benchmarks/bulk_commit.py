"""A commit of 10,000 files: validated, encoded, digested and written (goal 8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

from benchmarks import delta_rs
from benchmarks.bench import Bench
from benchmarks.measuring import Sample, in_turns, measure
from benchmarks.reporting import Result
from benchmarks.samples import a_table, adds
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_writer import SqlTxnLogWriter

_ENGINES = {"postgresql": "Postgres", "sqlite": "SQLite", "duckdb": "DuckDB"}
_NAMES = count(1)


def run(bench: Bench) -> Iterator[Result]:
    """Every round commits to tables that hold nothing yet, on every side."""
    files = bench.of(10_000, 1_000)
    batch = adds(files)
    same = [delta_rs.add_action(add) for add in batch]

    def theirs() -> Sample:
        table = delta_rs.write_log(bench.path("bulk"), 1)
        return measure(lambda actions: delta_rs.append_adds(table, actions), [same])

    def ours(metastore: Metastore) -> Callable[[], Sample]:
        def contender() -> Sample:
            name, writer = a_table(metastore, f"t{next(_NAMES)}"), SqlTxnLogWriter(metastore)
            server = bench.server_cpu if metastore.dialect.name == "postgresql" else None
            return measure(lambda actions: writer.commit(name, actions), [batch], server)

        return contender

    stores = [bench.metastore(engine) for engine in _ENGINES]
    for store in stores:
        ours(store)()  # warm
    peer, *samples = in_turns(bench.rounds, theirs, *map(ours, stores))
    for name, sample in zip(_ENGINES.values(), samples, strict=True):
        yield Result(
            goal="8",
            what=f"commit of {files:,} adds, {name}, wall",
            unit="ms",
            ours=sample.wall * 1000,
            against="delta-rs `create_write_transaction`",
            theirs=peer.wall * 1000,
            bound=1,
        )
        yield Result(
            goal="8",
            what=f"the same, {name}, CPU of client and server",
            unit="ms",
            ours=sample.total_cpu * 1000,
            against="delta-rs",
            theirs=peer.cpu * 1000,
        )
