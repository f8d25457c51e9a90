"""The validator against bare decoding of the same bytes: many commits, and a large checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.bench import Bench
from benchmarks.measuring import ChildSample, calmest_child, in_child
from benchmarks.reporting import Result
from benchmarks.samples import an_add, version_zero, write_commit_file
from mirror_assets.conformance.rulebook import Profile
from mirror_assets.conformance.validator import verify_log
from mirror_assets.delta.actions import AddFile
from mirror_assets.delta.checkpoint import checkpoint_schema
from mirror_assets.delta.commit_file import encode_action
from mirror_assets.delta.log_paths import ClassicCheckpoint
from mirror_assets.storage.log_source import open_log

_TURNS = 3
_ROWS = 20_000


def run(bench: Bench) -> Iterator[Result]:
    """Floor and ours in turns, each in a process of its own."""
    commits, files = bench.of(10_000, 500), bench.of(1_000_000, 20_000)
    long, wide = bench.path("long"), bench.path("wide")
    _write_commits(long, commits)
    _write_checkpoint(wide, files)
    turns = 1 if bench.quick else _TURNS
    ours, floor = _in_turns(turns, long, decode_lines)
    yield from _results(f"log of {commits:,} commits", ours, floor, "orjson over the lines")
    ours, floor = _in_turns(turns, wide, decode_checkpoint)
    yield from _results(f"checkpoint of {files:,} adds", ours, floor, "pyarrow over the file")


def validate(table: str) -> dict[str, Any]:
    """The whole validator."""
    report = verify_log(open_log(table), profile=Profile.FOREIGN)
    return {"errors": report.counts()["error"], "files": report.growth[-1].files}


def decode_lines(table: str) -> dict[str, Any]:
    """The floor: the same files, each line decoded and thrown away."""
    lines = 0
    for file in sorted((Path(table) / "_delta_log").glob("*.json")):
        for line in file.read_bytes().splitlines():
            orjson.loads(line)
            lines += 1
    return {"lines": lines}


def decode_checkpoint(table: str) -> dict[str, Any]:
    """The floor: the same file, each batch decoded and thrown away."""
    (name,) = (Path(table) / "_delta_log").glob("*.parquet")
    file = pq.ParquetFile(name)
    return {"rows": sum(batch.num_rows for batch in file.iter_batches(use_threads=False))}


def _in_turns(
    turns: int, table: Path, floor: Callable[..., Any]
) -> tuple[ChildSample, ChildSample]:
    samples = [
        (in_child(validate, table=str(table)), in_child(floor, table=str(table)))
        for _ in range(turns)
    ]
    ours, theirs = zip(*samples, strict=True)
    if ours[0].value["errors"]:
        raise RuntimeError("the validator finds errors in the benchmark's own log")
    return calmest_child(ours), calmest_child(theirs)


def _results(what: str, ours: ChildSample, floor: ChildSample, against: str) -> Iterator[Result]:
    for name, unit, mine, other, theirs, bound in (
        ("CPU", "s", ours.cpu, against, floor.cpu, 3.0),
        ("peak memory", "MB", ours.peak_mb, "the limit", 500.0, 1.0),
    ):
        yield Result(
            goal="22",
            what=f"validating a {what}, {name}",
            unit=unit,
            ours=mine,
            against=other,
            theirs=theirs,
            bound=bound,
        )


def _write_commits(table: Path, count: int) -> None:
    log = table / "_delta_log"
    log.mkdir(parents=True)
    write_commit_file(log, 0, version_zero())
    for version in range(1, count):
        write_commit_file(log, version, [an_add(version)])


def _write_checkpoint(table: Path, files: int) -> None:
    """Commit 0 and a checkpoint of a later version, as after a cleanup."""
    log = table / "_delta_log"
    log.mkdir(parents=True)
    version, schema = 10, checkpoint_schema()
    write_commit_file(log, version, [an_add(files - 1)])
    with pq.ParquetWriter(
        log / ClassicCheckpoint(version).name, schema, compression="zstd", store_schema=False
    ) as writer:
        writer.write_table(pa.Table.from_pylist(_first_rows(), schema=schema))
        for first in range(0, files, _ROWS):
            numbers = range(first, min(first + _ROWS, files))
            rows = [{"add": _row(an_add(number))} for number in numbers]
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))


def _first_rows() -> list[dict[str, Any]]:
    return [orjson.loads(encode_action(action)) for action in version_zero()[1:]]


def _row(add: AddFile) -> dict[str, Any]:
    row: dict[str, Any] = orjson.loads(encode_action(add))["add"]
    return row | {"dataChange": False}
