"""Taking over a log of more than a million files, against the bare parse of its JSON (goal 17)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson

from benchmarks.bench import Bench
from benchmarks.measuring import calmest_child, in_child
from benchmarks.reporting import Result
from benchmarks.samples import a_metastore, adds, an_add, version_zero, write_commit_file
from mirror_assets.delta.actions import Action, RemoveFile
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.importer import import_table
from mirror_assets.storage.log_source import open_log

_ADDS_PER_COMMIT = 10_000


def run(bench: Bench) -> Iterator[Result]:
    """The import and the parse in turns, each in a process of its own."""
    commits, per_commit = bench.of(110, 5), bench.of(_ADDS_PER_COMMIT, 1_000)
    table = _write_log(bench.path("log"), commits, per_commit)
    ours, theirs = [], []
    for _ in range(bench.of(2, 1)):
        theirs.append(in_child(count_lines, table=str(table)))
        url = bench.url("postgresql")
        a_metastore(url).close()
        ours.append(in_child(count_imported_adds, url=url, table=str(table)))
    sample, floor = calmest_child(ours), calmest_child(theirs)
    expected = commits * per_commit
    if sample.value != expected:
        message = f"{expected} adds went in, {sample.value} came out"
        raise AssertionError(message)
    what = f"import of {expected:,} adds in {commits} commits, Postgres, "
    for name, unit, mine, peer, other, bound in (
        ("CPU of the client", "s", sample.cpu, "bare orjson parse", floor.cpu, 2.0),
        ("peak memory", "MB", sample.peak_mb, "the limit", 250.0, 1.0),
        ("wall", "s", sample.wall, "bare orjson parse", floor.wall, None),
    ):
        yield Result(
            goal="17",
            what=what + name,
            unit=unit,
            ours=mine,
            against=peer,
            theirs=other,
            bound=bound,
        )


def count_lines(table: str) -> int:
    """The floor: parse every line of every commit, keep nothing."""
    lines = 0
    for path in sorted((Path(table) / "_delta_log").glob("*.json")):
        for line in path.read_bytes().splitlines():
            orjson.loads(line)
            lines += 1
    return lines


def count_imported_adds(url: str, table: str) -> int:
    """The whole import, the proof of parity included."""
    return import_table(Metastore.open(url), open_log(table), "imported").adds


def _write_log(table: Path, commits: int, per_commit: int) -> Path:
    """Every commit adds files; a tenth of them leaves with the next one."""
    log = table / "_delta_log"
    log.mkdir(parents=True)
    write_commit_file(log, 0, version_zero())
    for version in range(1, commits + 1):
        first = (version - 1) * per_commit
        actions: list[Action] = list(adds(per_commit, first))
        if version > 1:
            gone = range(first - per_commit, first - per_commit + per_commit // 10)
            actions += (_remove(number, version) for number in gone)
        write_commit_file(log, version, actions)
    return table


def _remove(number: int, version: int) -> RemoveFile:
    add = an_add(number)
    return RemoveFile(
        path=add.path,
        deletion_timestamp=add.modification_time + version,
        data_change=True,
        extended_file_metadata=True,
        partition_values=add.partition_values,
        size=add.size,
    )
