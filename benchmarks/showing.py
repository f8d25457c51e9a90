"""Many tables in Dagster: what loading the definitions costs, and how long the ticks take.

Definitions are loaded in a child, as a code server or a run loads them, imports and all. Ticks are
those of the first minute, when every version gets a partition and every table a heartbeat.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dagster as dg

from benchmarks import backlog
from benchmarks.bench import Bench
from benchmarks.reporting import Result
from mirror_assets.defs.access import MirrorAccess
from mirror_assets.defs.build import build_definitions
from mirror_assets.storage.options import StoreOptions

_SENSORS = ("sql_versions", "registry", "first_checks", "alerts")
_ROUNDS = 8
_LOAD_S, _TICK_S = 10.0, 5.0
_LOAD = "from mirror_assets.definitions import defs; defs.get_repository_def()"
_TICKS = "from benchmarks.showing import tell_ticks; tell_ticks()"


def run(bench: Bench) -> Iterator[Result]:
    """Loading, then the longest tick of each way to drive the mirror."""
    tables, versions = bench.of(200, 5), bench.of(50, 5)
    url = bench.url("sqlite")
    metastore = bench.opened(url)
    backlog.fill(metastore, tables, versions - 1)
    backlog.move(metastore, bench.place("local")[0])
    backlog.publish(metastore, StoreOptions(durable=False))
    size = f"{tables} tables x {versions} versions"
    before = sum(os.times()[2:4])
    _child(_LOAD, url, "follower")
    yield _result(
        f"loading the definitions of {size}", sum(os.times()[2:4]) - before, _LOAD_S, "CPU s"
    )
    for drive in ("follower", "runs"):
        ticks = json.loads(_child(_TICKS, url, drive))
        for kind, unit in (("cpu", "CPU s"), ("wall", "s")):
            longest = max(tick[kind] for tick in ticks)
            yield _result(
                f"longest of {len(ticks)} ticks, drive {drive}, {size}", longest, _TICK_S, unit
            )


def tell_ticks() -> None:
    """In the child: what each tick took, as JSON."""
    repository = build_definitions().get_repository_def()
    cursors: dict[str, str | None] = dict.fromkeys(_SENSORS)
    found: list[dict[str, Any]] = []
    with dg.DagsterInstance.get() as instance:
        for _ in range(_ROUNDS):
            for name, cursor in cursors.items():
                context = dg.build_sensor_context(
                    instance=instance,
                    cursor=cursor,
                    repository_def=repository,
                    resources={"access": MirrorAccess()},
                )
                cpu, wall = time.process_time(), time.perf_counter()
                answer = repository.get_sensor_def(name).evaluate_tick(context)
                cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
                cursors[name] = answer.cursor
                found.append({"sensor": name, "cpu": cpu, "wall": wall})
    print(json.dumps(found))


def _result(what: str, ours: float, limit: float, unit: str) -> Result:
    return Result(
        goal="Dagster", what=what, unit=unit, ours=ours, against="limit", theirs=limit, bound=1
    )


def _child(code: str, url: str, drive: str) -> str:
    with TemporaryDirectory() as home:
        (Path(home) / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
        environment = {
            **os.environ,
            "DAGSTER_HOME": home,
            "MIRROR_METASTORE_URL": url,
            "MIRROR_DRIVE": drive,
        }
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    return done.stdout
