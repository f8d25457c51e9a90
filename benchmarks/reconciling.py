"""A full reconcile: the digest of every commit file against SQL's (goal 18)."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks import backlog
from benchmarks.bench import Bench
from benchmarks.reporting import Result
from mirror_assets.mirror.reconciler import Mode, reconcile
from mirror_assets.storage.stores import open_store

#: files a second that are asked for
_LIMITS = {"local": 10_000, "S3": 1_000}


def run(bench: Bench) -> Iterator[Result]:
    """One published table, looked at several times; the calmest counts."""
    commits = bench.of(4_000, 30)
    metastore = bench.metastore("postgresql")
    (name,) = backlog.fill(metastore, 1, commits)
    for kind, limit in _LIMITS.items():
        root, options = bench.place(kind)
        backlog.move(metastore, root)
        backlog.publish(metastore, options)
        store = open_store(f"{root}/{name}", options, allowed_roots=())
        walls = []
        for _ in range(bench.of(5, 1)):
            before = time.perf_counter()
            report = reconcile(metastore, store, name, Mode.FULL)
            walls.append(time.perf_counter() - before)
            if report.has_errors:
                raise ValueError(report.findings)
        yield Result(
            goal="18",
            what=f"full reconcile of {commits + 1:,} commit files, {kind}",
            unit="files/s",
            ours=(commits + 1) / min(walls),
            against="the limit",
            theirs=limit,
            bound=1,
            at_least=True,
        )
