"""Checkpoints of a million live files and a hundred thousand tombstones (goals 12-15, 20).

Floors and peers take their turns with ours, each in a process of its own. Delta Spark, whose
session alone takes longer than all of them, comes once: its second checkpoint counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from shutil import copy
from typing import Any

import msgspec
import pyarrow.parquet as pq
from deltalake import DeltaTable

from benchmarks.bench import Bench
from benchmarks.measuring import ChildSample, calmest_child, cpu_of, in_child
from benchmarks.reporting import Result
from benchmarks.samples import (
    PARTITION_COLUMNS,
    SCHEMA,
    a_metastore,
    adds,
    an_add,
    write_commit_file,
)
from mirror_assets.delta.actions import Action, AddFile, RemoveFile
from mirror_assets.delta.features import protocol_with
from mirror_assets.delta.last_checkpoint import CheckpointHint, encode_hint
from mirror_assets.delta.log_paths import ClassicCheckpoint, CommitName, LastCheckpoint
from mirror_assets.metastore.checkpoint_builder import build_checkpoint
from mirror_assets.metastore.checkpoint_source import CheckpointSource
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.log_writer import SqlTxnLogWriter
from mirror_assets.metastore.outcomes import Committed
from mirror_assets.metastore.registry import create_table
from mirror_assets.mirror.checkpointer import publish_checkpoint
from mirror_assets.pipeline.session import SparkOptions, open_session
from mirror_assets.storage.options import StoreOptions
from mirror_assets.storage.stores import open_store

_TABLE = "bench.big"
_COMMITS = 100
_CHANGED = 1_000
#: every so many files one is removed
_STEP = 11
_CODEC = "delta.parquet.compression.codec"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """A table in PostgreSQL, and the version at which it is to be checkpointed."""

    url: str
    table: str
    version: int
    files: int


def run(bench: Bench) -> Iterator[Result]:
    """Load once; then ours, floors and delta-rs in turns; V2 last, for it changes the table."""
    files = bench.of(1_000_000, 20_000)
    big = _load(bench.url("postgresql"), files)
    small = _load(bench.url("postgresql"), files // 10)
    out = bench.path("checkpoint.parquet")
    _in_child(bench, build, big, out=str(out))
    turns = _turns(bench, big, out, _peer(bench.path("peer"), out, big.version))
    yield from _against_floors(files, **turns)
    yield _against_spark(files, turns["ours"], _peer(bench.path("peer"), out, big.version))
    yield from _memory(files, turns["ours"], _in_child(bench, build, small, out=f"{out}.small"))
    yield from _sizes(files, bench, big, out)
    yield from _incremental(bench, big)


def build(url: str, table: str, version: int, out: str) -> dict[str, Any]:
    """A classic checkpoint into a local file."""
    with Path(out).open("wb") as file:
        content = build_checkpoint(Metastore.open(url), table, version, file, now_ms=_now_ms())
        return {"adds": content.adds, "removes": content.removes, "bytes": file.tell()}


def read_only(url: str, table: str, version: int) -> dict[str, Any]:
    """The floor of reading: the same batches, thrown away."""
    source = CheckpointSource.open(Metastore.open(url), table, version, now_ms=_now_ms())
    return {
        "adds": sum(batch.num_rows for batch in source.adds()),
        "removes": sum(batch.num_rows for batch in source.removes()),
    }


def write_only(checkpoint: str, out: str, codec: str) -> dict[str, Any]:
    """The floor of writing: the table is in memory already, and only the writing is timed."""
    table = pq.read_table(checkpoint)
    wall, cpu = time.perf_counter(), time.process_time()
    pq.write_table(
        table,
        out,
        row_group_size=50_000,
        compression=codec,
        compression_level=1 if codec == "zstd" else None,
        use_dictionary=[f"add.partitionValues.key_value.{part}" for part in ("key", "value")],
        write_statistics=["add.path", "remove.path"],
        store_schema=False,
    )
    spent = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    return {**spent, "bytes": Path(out).stat().st_size}


def delta_rs_checkpoint(table: str) -> dict[str, Any]:
    """delta-rs at a version that has none yet, without the time it takes to open the table."""
    log = Path(table) / "_delta_log"
    version = max(int(file.stem) for file in log.glob("*.json")) + 1
    write_commit_file(log, version, [an_add(version, writer=1)])
    opened = DeltaTable(table)
    wall, cpu = time.perf_counter(), time.process_time()
    opened.create_checkpoint()
    spent = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    return {**spent, "with_open": time.process_time()}


def delta_spark_checkpoint(table: str) -> dict[str, Any]:
    """Delta Spark's second checkpoint: warm, and with the state of the first in memory."""
    options = SparkOptions(
        master="local[2]", delta=True, memory="4g", conf={"spark.ui.enabled": "false"}
    )
    spark: Any = open_session(options)
    try:
        virtual_machine: Any = spark._jvm  # noqa: SLF001 - there is no other door
        log = virtual_machine.org.apache.spark.sql.delta.DeltaLog.forTable(
            spark._jsparkSession,  # noqa: SLF001 - the same
            table,
        )
        log.checkpoint()
        version = log.unsafeVolatileSnapshot().version() + 1
        write_commit_file(Path(table) / "_delta_log", version, [an_add(version, writer=1)])
        spark.read.format("delta").load(table).limit(0).collect()
        java = int(virtual_machine.java.lang.ProcessHandle.current().pid())
        wall, cpu = time.perf_counter(), cpu_of(java)
        log.checkpoint()
        return {"wall": time.perf_counter() - wall, "cpu": cpu_of(java) - cpu}
    finally:
        spark.stop()


def publish(url: str, table: str, version: int, location: str) -> dict[str, Any]:
    """A checkpoint into a store, decoded and counted before, with its pointer."""
    store = open_store(location, StoreOptions(durable=False), allowed_roots=[])
    store.put_if_absent(CommitName(version), b"{}\n")
    done = publish_checkpoint(Metastore.open(url), store, table, version, now_ms=_now_ms())
    return {"written": done.sidecars_written, "kept": done.sidecars_kept}


def _turns(bench: Bench, big: _Loaded, out: Path, peer: Path) -> dict[str, ChildSample]:
    taken: dict[str, list[ChildSample]] = {}
    for _ in range(bench.of(3, 1)):
        for name, call in (
            ("reading", lambda: _in_child(bench, read_only, big)),
            ("ours", lambda: _in_child(bench, build, big, out=str(out))),
            (
                "writing",
                lambda: _timed(write_only, checkpoint=str(out), out=f"{out}.again", codec="zstd"),
            ),
            ("delta_rs", lambda: _timed(delta_rs_checkpoint, table=str(peer))),
        ):
            taken.setdefault(name, []).append(call())
    return {name: calmest_child(samples) for name, samples in taken.items()}


def _peer(table: Path, checkpoint: Path, version: int) -> Path:
    """The same state for delta-rs, which starts from a checkpoint: ours."""
    log = table / "_delta_log"
    log.mkdir(parents=True)
    copy(checkpoint, log / ClassicCheckpoint(version).name)
    rows = pq.ParquetFile(checkpoint).metadata.num_rows
    hint = CheckpointHint(version=version, size=rows)
    (log / LastCheckpoint().name).write_bytes(encode_hint(hint))
    write_commit_file(log, version, [])
    return table


def _against_floors(
    files: int,
    *,
    ours: ChildSample,
    reading: ChildSample,
    writing: ChildSample,
    delta_rs: ChildSample,
) -> Iterator[Result]:
    what = f"checkpoint of {files:,} files, Postgres, "
    floor = "read floor + write floor"
    with_open = delta_rs.value["with_open"]
    for goal, name, mine, against, theirs, bound in (
        ("12", "CPU with the server", ours.cpu, "delta-rs, opened before", delta_rs.cpu, 0.45),
        ("12", "CPU with the server", ours.cpu, "delta-rs, open included", with_open, None),
        ("12", "wall", ours.wall, "delta-rs, opened before", delta_rs.wall, None),
        ("13", "CPU with the server", ours.cpu, floor, reading.cpu + writing.cpu, 1.2),
        ("13", "wall", ours.wall, floor, reading.wall + writing.wall, 1.3),
    ):
        yield Result(
            goal=goal,
            what=what + name,
            unit="s",
            ours=mine,
            against=against,
            theirs=theirs,
            bound=bound,
        )


def _against_spark(files: int, ours: ChildSample, peer: Path) -> Result:
    theirs = _timed(delta_spark_checkpoint, table=str(peer))
    return Result(
        goal="12",
        what=f"checkpoint of {files:,} files, Postgres, CPU with the server",
        unit="s",
        ours=ours.cpu,
        against="Delta Spark's second one",
        theirs=theirs.cpu,
        bound=1 / 8,
    )


def _memory(files: int, big: ChildSample, small: ChildSample) -> Iterator[Result]:
    what = f"checkpoint of {files:,} files, Postgres, peak memory"
    for against, theirs, bound in (
        ("the limit", 300.0, 1.0),
        ("a tenth of the files", small.peak_mb, 1.5),
    ):
        yield Result(
            goal="14",
            what=what,
            unit="MB",
            ours=big.peak_mb,
            against=against,
            theirs=theirs,
            bound=bound,
        )


def _sizes(files: int, bench: Bench, big: _Loaded, out: Path) -> Iterator[Result]:
    floor = _timed(write_only, checkpoint=str(out), out=f"{out}.again", codec="snappy")
    zstd = out.stat().st_size
    snappy = _in_child(bench, build, _with_property(big, _CODEC, "snappy"), out=str(out))
    for codec, size, bound in (("zstd 1", zstd, 0.6), ("snappy", snappy.value["bytes"], 1.1)):
        yield Result(
            goal="15",
            what=f"checkpoint of {files:,} files, {codec}, size",
            unit="MB",
            ours=size / 1e6,
            against="pyarrow, snappy",
            theirs=floor.value["bytes"] / 1e6,
            bound=bound,
        )


def _incremental(bench: Bench, big: _Loaded) -> Iterator[Result]:
    """The same table with V2 checkpoints: all of it, then after a few changes."""
    location = bench.path("log")
    with_v2 = _upgraded(big)
    full = _in_child(bench, publish, with_v2, location=str(location))
    half = _CHANGED // 2
    gone = [_remove(add) for add in _live_files(with_v2.files)[-half:]]
    for name, actions in (
        (f"{_CHANGED:,} files added", adds(_CHANGED, with_v2.files * 2)),
        (f"{half} files added, {half} removed", [*adds(half, with_v2.files * 3), *gone]),
    ):
        changed = _committed(with_v2, actions)
        sample = _in_child(bench, publish, changed, location=str(location))
        yield Result(
            goal="20",
            what=f"V2 checkpoint of {big.files:,} files, {name}, CPU with the server",
            unit="s",
            ours=sample.cpu,
            against="the full build",
            theirs=full.cpu,
            bound=1 / 20,
        )


def _in_child(
    bench: Bench, call: Callable[..., Any], loaded: _Loaded, **arguments: str
) -> ChildSample:
    """Run on a table, and count the server's CPU as ours."""
    before = bench.server_cpu.seconds_of_all()
    sample = in_child(call, url=loaded.url, table=loaded.table, version=loaded.version, **arguments)
    server = bench.server_cpu.seconds_of_all() - before
    return ChildSample(
        wall=sample.wall, cpu=sample.cpu + server, peak_mb=sample.peak_mb, value=sample.value
    )


def _timed(call: Callable[..., Any], **arguments: str) -> ChildSample:
    """Of a call that knows itself what counts."""
    sample = in_child(call, **arguments)
    return ChildSample(
        wall=sample.value["wall"],
        cpu=sample.value["cpu"],
        peak_mb=sample.peak_mb,
        value=sample.value,
    )


def _load(url: str, files: int) -> _Loaded:
    """A hundred commits of adds, a tenth more than wanted; then one that removes so many."""
    metastore = a_metastore(url)
    # delta-rs writes no in-commit timestamps
    timestamps = {"delta.enableInCommitTimestamps": "false"}
    create_table(
        metastore,
        _TABLE,
        f"memory://bench/{_TABLE}",
        SCHEMA,
        partition_columns=PARTITION_COLUMNS,
        configuration=timestamps,
    )
    removed = files // 10
    per_commit = (files + removed) // _COMMITS
    loaded = _Loaded(url=url, table=_TABLE, version=0, files=files)
    for first in range(0, files + removed, per_commit):
        loaded = _committed(loaded, adds(per_commit, first))
    loaded = _committed(loaded, [_remove(an_add(n * _STEP)) for n in range(removed)])
    metastore.close()
    return loaded


def _live_files(files: int) -> list[AddFile]:
    """The last of the files that `_load` left."""
    last = range(files + files // 10 - 2 * _CHANGED, files + files // 10)
    return [an_add(number) for number in last if number % _STEP]


def _committed(loaded: _Loaded, actions: list[Any]) -> _Loaded:
    metastore = Metastore.open(loaded.url)
    outcome = SqlTxnLogWriter(metastore).commit(loaded.table, actions)
    metastore.close()
    if not isinstance(outcome, Committed):
        raise TypeError(outcome)
    return _Loaded(url=loaded.url, table=loaded.table, version=outcome.version, files=loaded.files)


def _with_property(loaded: _Loaded, name: str, value: str) -> _Loaded:
    metadata = LogReader(Metastore.open(loaded.url)).summary(loaded.table).metadata
    configuration = {**metadata.configuration, name: value}
    return _committed(loaded, [msgspec.structs.replace(metadata, configuration=configuration)])


def _upgraded(loaded: _Loaded) -> _Loaded:
    protocol = LogReader(Metastore.open(loaded.url)).summary(loaded.table).protocol
    return _committed(loaded, [protocol_with(protocol, ["v2Checkpoint"])])


def _remove(add: AddFile) -> Action:
    return RemoveFile(
        path=add.path,
        deletion_timestamp=_now_ms(),
        data_change=True,
        extended_file_metadata=True,
        partition_values=add.partition_values,
        size=add.size,
    )


def _now_ms() -> int:
    return int(time.time() * 1000)
