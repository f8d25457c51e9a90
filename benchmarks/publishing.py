"""Publishing a backlog against the bare writes of the same bytes (goals 9 and 10)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from benchmarks import backlog
from benchmarks.bench import Bench
from benchmarks.measuring import Sample, in_turns
from benchmarks.reporting import Result
from mirror_assets.delta.log_paths import CommitName
from mirror_assets.metastore.database import Metastore
from mirror_assets.storage.options import StoreOptions
from mirror_assets.storage.stores import open_store

_STORES = ("local", "S3")
#: as many as a mirror has by default
_THREADS = 8


def run(bench: Bench) -> Iterator[Result]:
    """One table with many commits, then many tables with one."""
    rounds, commits, tables = bench.of(5, 1), bench.of(500, 20), bench.of(2_000, 20)
    for goal, many, per_table, bounds in (
        ("9", 1, commits, {"local": 0.9, "S3": 0.9}),
        ("10", tables, 0, {"local": 0.7, "S3": 0.9}),
    ):
        metastore = bench.metastore("postgresql")
        names = backlog.fill(metastore, many, per_table)
        files = backlog.files_of(metastore, names)
        number = sum(map(len, files.values()))
        for store in _STORES:
            floor, ours = in_turns(
                rounds, _bare(bench, store, files), _mirrored(bench, store, metastore)
            )
            yield Result(
                goal=goal,
                what=f"commits published, {many:,} tables with {per_table + 1} each, {store}",
                unit="/s",
                ours=number / ours.wall,
                against="create-only PUTs of the same bytes",
                theirs=number / floor.wall,
                bound=bounds[store],
                at_least=True,
            )


def _bare(bench: Bench, store: str, files: Mapping[str, list[bytes]]) -> Callable[[], Sample]:
    def contender() -> Sample:
        root, options = bench.place(store)
        wall, cpu = time.perf_counter(), time.process_time()
        with ThreadPoolExecutor(_THREADS) as pool:
            for _ in pool.map(lambda name: _put(f"{root}/{name}", files[name], options), files):
                pass
        return Sample(wall=time.perf_counter() - wall, cpu=time.process_time() - cpu)

    return contender


def _put(location: str, files: list[bytes], options: StoreOptions) -> None:
    store = open_store(location, options, allowed_roots=())
    for version, data in enumerate(files):
        store.put_if_absent(CommitName(version), data)


def _mirrored(bench: Bench, store: str, metastore: Metastore) -> Callable[[], Sample]:
    def contender() -> Sample:
        root, options = bench.place(store)
        backlog.move(metastore, root)
        wall, cpu = backlog.publish(metastore, options)
        return Sample(wall=wall, cpu=cpu)

    return contender
