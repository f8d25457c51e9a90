"""`python -m mirror_assets.demo`: the whole thing once, in `.demo/`: SQLite and a directory.

It uses the public API as a reader would, and prints what it does. `--without-spark` leaves the last
part out, in which Spark writes a table: it starts a JVM, and fetches Delta's jars the first time.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Final

import duckdb
import duckdb_extension_delta
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mirror_assets.delta.actions import Action, AddFile, CommitInfo, RemoveFile, Txn
from mirror_assets.errors import CommitConflictError
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.log_writer import SqlTxnLogWriter
from mirror_assets.metastore.migrate import upgrade
from mirror_assets.metastore.mirror_state import read_mirror_states
from mirror_assets.metastore.outcomes import AlreadyCommitted, Committed, Conflict, Outcome
from mirror_assets.metastore.registry import create_table
from mirror_assets.mirror.service import Mirror
from mirror_assets.pipeline.access import Access
from mirror_assets.pipeline.session import SparkOptions, open_session
from mirror_assets.pipeline.table_reader import read_table
from mirror_assets.pipeline.table_writer import NewTable, write_table

HOME: Final = Path(".demo")
LAKE: Final = HOME / "lake"
ORDERS: Final = "shop.orders"
REFUNDS: Final = "shop.refunds"
EVENTS: Final = "shop.events"
SCHEMA: Final = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": False, "metadata": {}},
            {"name": "amount", "type": "decimal(10,2)", "nullable": True, "metadata": {}},
            {"name": "day", "type": "date", "nullable": True, "metadata": {}},
        ],
    }
)

console = Console(highlight=False)


def main() -> None:
    """Run the demo; every step says what it shows."""
    shutil.rmtree(HOME, ignore_errors=True)
    LAKE.mkdir(parents=True)
    metastore = Metastore.open(f"sqlite:///{HOME / 'mirror.db'}")
    upgrade(metastore.engine)
    writer, reader = SqlTxnLogWriter(metastore), LogReader(metastore)
    try:
        _create(metastore)
        for commit in (_append, _replace, _retry, _conflict, _several_tables):
            commit(writer)
        for look in (_show_history, _travel, _show_bytes):
            look(reader)
        _mirror(metastore)
        _read_back(reader)
        if "--without-spark" not in sys.argv[1:]:
            _write_with_spark(metastore)
    finally:
        metastore.close()
    _closing_words()


def _create(metastore: Metastore) -> None:
    _step("Two tables are registered in SQL; each gets its version 0")
    for name in (ORDERS, REFUNDS):
        created = create_table(
            metastore, name, str(_place(name)), SCHEMA, partition_columns=["day"]
        )
        console.print(f"  {name} version {created.version}")


def _append(writer: SqlTxnLogWriter) -> None:
    _step("Blind appends take the next version, whoever comes first")
    for number in (1, 2, 3):
        _tell(writer.commit(ORDERS, [_add(ORDERS, number)]))


def _replace(writer: SqlTxnLogWriter) -> None:
    _step("A rewrite removes a file and adds another in one commit")
    info = CommitInfo({"operation": "UPDATE", "operationParameters": {"predicate": "id = 7"}})
    _tell(writer.commit(ORDERS, [info, _remove(1), _add(ORDERS, 4)], read_version=3))


def _retry(writer: SqlTxnLogWriter) -> None:
    _step("A job in doubt commits the same txn again: it counts once")
    txn = Txn(app_id="nightly-load", version=1)
    _tell(writer.commit(ORDERS, [txn, _add(ORDERS, 5)]))
    _tell(writer.commit(ORDERS, [txn, _add(ORDERS, 5)]))


def _conflict(writer: SqlTxnLogWriter) -> None:
    _step("Two jobs remove the same file: the second loses, and is told why")
    _tell(writer.commit(ORDERS, [_remove(2), _add(ORDERS, 6)], read_version=5))
    _tell(writer.commit(ORDERS, [_remove(2), _add(ORDERS, 7)], read_version=5))


def _several_tables(writer: SqlTxnLogWriter) -> None:
    _step("A transaction over two tables: both or none")
    with writer.transaction() as transaction:
        transaction.commit(ORDERS, [_add(ORDERS, 8)])
        transaction.commit(REFUNDS, [_add(REFUNDS, 1)])
    for outcome in transaction.outcomes:
        _tell(outcome)
    try:
        with writer.transaction() as transaction:
            transaction.commit(REFUNDS, [_add(REFUNDS, 2)])
            transaction.commit(ORDERS, [_remove(2)], read_version=5)
    except CommitConflictError as lost:
        console.print(Text(f"  neither: {lost.message}", style="yellow"))


def _show_history(reader: LogReader) -> None:
    _step(f"The history of {ORDERS}, from SQL")
    table = Table("version", "operation", "adds", "removes", "live files", "bytes", "mirror")
    for row in reader.history(ORDERS):
        cells = ("version", "operation", "num_adds", "num_removes", "num_files", "size_bytes")
        table.add_row(*(str(row[cell]) for cell in cells), str(row["mirror_status"]))
    console.print(table)


def _travel(reader: LogReader) -> None:
    _step("The state at any version is one indexed query: version 3, and now")
    for version in (3, None):
        summary = reader.summary(ORDERS, version)
        table = Table("path", "size", title=f"version {summary.version}", title_justify="left")
        for file in reader.live_files(ORDERS, summary.version):
            table.add_row(file.path, str(file.size))
        console.print(table)


def _show_bytes(reader: LogReader) -> None:
    _step("The commit file of version 4, made from SQL; its bytes have the frozen digest")
    commit = next(reader.commits(ORDERS, 4, 4))
    console.print(f"  sha256 {commit.sha256}")
    console.print(Text(commit.encode(ORDERS).decode(), style="cyan"), soft_wrap=True, end="")


def _mirror(metastore: Metastore) -> None:
    _step("The mirror publishes both logs: in order, each file once; then a checkpoint")
    mirror = Mirror(metastore, allowed_roots=[str(LAKE.resolve())])
    for result in mirror.settle(patience_s=10):
        versions = [published.version for published in result.published]
        console.print(f"  {result.claim.name} versions {versions}")
    built = mirror.checkpoints.build(ORDERS)
    console.print(f"  {ORDERS} checkpoint of version {built.version}, {built.actions} actions")
    for state in read_mirror_states(metastore):
        console.print(f"  {state.table} {state.state}, {state.lag_versions} versions behind")


def _read_back(reader: LogReader) -> None:
    _step(f"deltalake, which knows nothing of us, opens {LAKE / ORDERS.replace('.', '/')}")
    found = DeltaTable(str(_place(ORDERS)))
    head = found.version()
    table = Table("version", "files by SQL", "files by deltalake", "bytes", "rows", "same files")
    for version in range(head + 1):
        found.load_as_version(version)
        listed = pa.table(found.get_add_actions())
        expected = {file.path: file.size for file in reader.live_files(ORDERS, version)}
        seen = dict(zip(listed["path"].to_pylist(), listed["size_bytes"].to_pylist(), strict=True))
        same = "yes" if seen == expected else "NO"
        facts = (version, len(expected), len(seen), sum(seen.values()), _count_by_deltalake(found))
        table.add_row(*map(str, facts), same)
    console.print(table)


def _write_with_spark(metastore: Metastore) -> None:
    _step(f"Spark writes {EVENTS}: data files, their statistics, then one commit in SQL each")
    access = Access.to(f"sqlite:///{HOME / 'mirror.db'}", allowed_roots=(str(LAKE.resolve()),))
    place = _place(EVENTS)
    with _errors_into(HOME / "spark.log"):  # Spark keeps it, and has much to say
        spark = open_session(SparkOptions(master="local[2]", delta=True))
    try:
        rows = spark.range(10_000).selectExpr(
            "id", "cast(id % 4 as string) as kind", "cast(id * 0.25 as decimal(12,2)) as amount"
        )
        new = NewTable(location=str(place), partition_by=["kind"])
        for part in (rows.where("id < 6000"), rows.where("id >= 6000")):
            written = write_table(part, EVENTS, access=access, create=new)
            files = f"{written.rows} rows in {written.files} files"
            console.print(f"  {EVENTS} version {written.version}: {files}")
        own = read_table(spark, EVENTS, access=access).count()
        console.print(f"  planned from SQL, before anything is published: {own} rows")
        Mirror(metastore, allowed_roots=[str(LAKE.resolve())]).settle([EVENTS], patience_s=10)
        _step(f"Three readers that know nothing of us, side by side, on {EVENTS}")
        counts = {
            "deltalake": _count_by_deltalake(DeltaTable(str(place))),
            "DuckDB": _count_by_duckdb(place),
            "Delta Spark": spark.read.format("delta").load(str(place)).count(),
        }
    finally:
        spark.stop()
    table = Table(*counts, "same as SQL")
    same = "yes" if set(counts.values()) == {own} else "NO"
    table.add_row(*(str(count) for count in counts.values()), same)
    console.print(table)


@contextmanager
def _errors_into(file: Path) -> Iterator[None]:
    """What is started meanwhile writes there what it would write to standard error."""
    before = os.dup(sys.stderr.fileno())
    with file.open("ab") as log:
        os.dup2(log.fileno(), sys.stderr.fileno())
    try:
        yield
    finally:
        os.dup2(before, sys.stderr.fileno())
        os.close(before)


def _count_by_deltalake(table: DeltaTable) -> int:
    query = QueryBuilder().register("t", table)
    found = pa.table(query.execute("select count(*) as n from t").read_all())
    return int(found["n"][0].as_py())


def _count_by_duckdb(place: Path) -> int:
    site = Path(duckdb_extension_delta.__file__).parent
    with duckdb.connect() as connection:
        connection.execute(f"LOAD '{next(site.rglob('delta.duckdb_extension'))}'")
        found = connection.execute("select count(*) from delta_scan(?)", [str(place)]).fetchone()
    return int(found[0]) if found else 0


def _closing_words() -> None:
    _step("That was all of it, so far")
    console.print(
        f"  Commits are ratified in SQL ({HOME / 'mirror.db'}): atomic, gapless,\n"
        f"  the bytes of every commit file frozen; and published in {LAKE}.\n"
        "  Go on by hand, in .demo: mirror-assets mirror --follow publishes what you\n"
        "  commit; mirror-assets status says how far it is.\n"
        f"  What Spark said is in {HOME / 'spark.log'}.\n"
    )


def _place(table: str) -> Path:
    return LAKE.resolve() / table.replace(".", "/")


def _add(table: str, number: int) -> AddFile:
    """Write a data file, once, as a writer does before it commits; the action that names it."""
    path, day = _file_of(number)
    file = _place(table) / path
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        ids = range(number * 100, number * 100 + 10 * number)
        amounts = [Decimal(n) / 4 for n in ids]
        columns = {
            "id": pa.array(ids, pa.int64()),
            "amount": pa.array(amounts, pa.decimal128(10, 2)),
        }
        pq.write_table(pa.table(columns), file)
    return AddFile(
        path=path,
        partition_values={"day": day},
        size=file.stat().st_size,
        modification_time=int(file.stat().st_mtime * 1000),
        data_change=True,
        stats=json.dumps({"numRecords": 10 * number}),
    )


def _remove(number: int) -> Action:
    path, day = _file_of(number)
    return RemoveFile(
        path=path,
        deletion_timestamp=int(time.time() * 1000),
        data_change=True,
        extended_file_metadata=True,
        partition_values={"day": day},
        size=(_place(ORDERS) / path).stat().st_size,
    )


def _file_of(number: int) -> tuple[str, str]:
    day = f"2026-01-{number:02d}"
    return f"day={day}/part-{number:05d}.parquet", day


def _tell(outcome: Outcome) -> None:
    match outcome:
        case Committed():
            console.print(f"  {outcome.table} version {outcome.version} committed")
        case AlreadyCommitted():
            message = f"already version {outcome.version} (by {outcome.reason}); nothing was added"
            console.print(Text(f"  {outcome.table} {message}", style="green"))
        case Conflict():
            message = f"conflict with version {outcome.winning_version}: {outcome.reason}"
            console.print(Text(f"  {outcome.table} {message}", style="yellow"))


def _step(title: str) -> None:
    console.print()
    console.print(Text(title, style="bold"))


if __name__ == "__main__":
    main()
