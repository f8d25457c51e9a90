"""From the SQL commit to the visible file: a follower, and a writer at a steady pace (goal 19)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import select

from benchmarks import backlog
from benchmarks.bench import Bench
from benchmarks.reporting import Result
from benchmarks.samples import an_add
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.followers import read_followers
from mirror_assets.metastore.log_writer import SqlTxnLogWriter
from mirror_assets.metastore.mirror_state import read_mirror_states
from mirror_assets.metastore.tables import dl_mirror_status
from mirror_assets.storage.options import StoreOptions

_ENGINES = {"postgresql": "Postgres", "sqlite": "SQLite"}
_RATE = 50
_PATIENCE_S = 60


def run(bench: Bench) -> Iterator[Result]:
    """Each engine with each store; the follower is the command line's own."""
    tables, seconds = bench.of(50, 5), bench.of(15, 2)
    for engine, engine_name in _ENGINES.items():
        for kind in ("local", "S3"):
            url = bench.url(engine)
            lags = _followed(bench, url, kind, tables, seconds)
            yield Result(
                goal="19",
                what=f"commit to visible file, {_RATE}/s over {tables} tables, "
                f"{engine_name}, {kind}, p95",
                unit="s",
                ours=lags[int(len(lags) * 0.95)] / 1000,
                against="the limit",
                theirs=1,
                bound=1,
            )


def _followed(bench: Bench, url: str, kind: str, tables: int, seconds: int) -> list[int]:
    """How late each version of the steady time was, in ms, ascending."""
    root, options = bench.place(kind)
    metastore = bench.opened(url)
    names = backlog.fill(metastore, tables, 0)
    backlog.move(metastore, root)
    writer = SqlTxnLogWriter(metastore)
    with _follower(url, options):
        _wait(lambda: bool(read_followers(metastore)) and _is_idle(metastore))
        began = time.monotonic()
        for number in range(seconds * _RATE):
            writer.commit(names[number % tables], [an_add(number)])
            time.sleep(max(0.0, began + (number + 1) / _RATE - time.monotonic()))
        _wait(lambda: _is_idle(metastore))
    status = dl_mirror_status
    query = select(status.c.lag_ms).where(status.c.version > 0, status.c.artifact == "commit")
    with metastore.read() as connection:
        return sorted(connection.execute(query).scalars())


@contextmanager
def _follower(url: str, options: StoreOptions) -> Iterator[None]:
    secrets = {name: secret.reveal() for name, secret in options.credentials}
    settings = {
        "MIRROR_METASTORE_URL": url,
        "MIRROR_LOG_LEVEL": "error",
        "MIRROR_STORE_ENDPOINT": options.endpoint or "",
        "MIRROR_STORE_REGION": options.region or "",
        "MIRROR_STORE_CREDENTIALS": ",".join(f"{name}=BENCH_{name}" for name in secrets),
        **{f"BENCH_{name}": value for name, value in secrets.items()},
    }
    command = [sys.executable, "-m", "mirror_assets_tests.cli.run", "mirror", "--follow", "--json"]
    process = subprocess.Popen(command, env={**os.environ, **settings}, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def _is_idle(metastore: Metastore) -> bool:
    states = read_mirror_states(metastore, percentiles=False)
    return all(state.lag_versions == 0 for state in states)


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the follower did not come along")
        time.sleep(0.1)
