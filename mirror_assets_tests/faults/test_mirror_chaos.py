"""Two followers and single runs on the same 50 tables, killed at random, judged by a program.

What happened in the store is recorded operation by operation: in front of a real S3 server by a
proxy, on a local disk by the kernel. MIRROR_TEST_CHAOS_SECONDS makes it longer.
"""

from __future__ import annotations

import os
import random
import signal
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.log_writer import SqlTxnLogWriter
from mirror_assets.metastore.outcomes import Committed
from mirror_assets.storage.options import StoreOptions
from mirror_assets_tests.builders import a_metastore, add
from mirror_assets_tests.faults.http_proxy import fault_proxy
from mirror_assets_tests.faults.inotify import watched
from mirror_assets_tests.faults.processes import (
    Mirrors,
    a_writer,
    is_caught_up,
    mirrors,
    s3_environment,
    until,
)
from mirror_assets_tests.faults.store_history import Operation, created, violations
from mirror_assets_tests.mirror.mirroring import World

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirror_assets_tests.store_services import S3Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TABLES = 50


def seconds(standard: float) -> float:
    return float(os.environ.get("MIRROR_TEST_CHAOS_SECONDS", standard))


def test_on_a_local_disk(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    url = f"sqlite:///{tmp_path / 'metastore.db'}"
    with a_metastore(url) as metastore:
        world = World(metastore, str(tmp_path / "lake"), StoreOptions(durable=False))
        names = [world.table(f"db.t{number}") for number in range(TABLES)]
        logs = {name: Path(world.location(name)) / "_delta_log" for name in names}
        with watched(logs) as seen:
            storm(world, url, tmp_path, names, lasts=seconds(60))
        assert not seen.lost
        judge(world, names, seen.history)
        for name in names:
            table = DeltaTable(world.location(name))
            assert table.version() == world.state(name).head_version
            assert len(table.file_uris()) == table.version()


@pytest.mark.xdist_group("seaweedfs")
def test_on_a_real_s3_server(
    tmp_path: Path, postgres_url: Callable[[], str], seaweedfs: S3Server
) -> None:
    url, root = postgres_url(), f"s3://{seaweedfs.bucket}/{uuid.uuid4()}"
    with a_metastore(url) as metastore, fault_proxy(seaweedfs.endpoint) as proxy:
        world = World(metastore, root, seaweedfs.options())
        names = [world.table(f"db.t{number}") for number in range(TABLES)]
        environment = s3_environment(seaweedfs, root, proxy.endpoint)
        storm(world, url, tmp_path, names, lasts=seconds(60), environment=environment)
        judge(world, names, proxy.history)


def storm(
    world: World,
    url: str,
    home: Path,
    names: list[str],
    *,
    lasts: float,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Commit, publish and kill; then let one follower finish in peace."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - to repeat a failure
    with (
        mirrors(url, home, environment) as processes,
        a_writer(world, names, 0.03) as outcomes,
    ):
        kills = kill_at_random(processes, random.Random(seed), lasts)
    print(f"{kills} kills, {len(outcomes)} commits")  # noqa: T201 - how hard it was
    assert kills >= lasts / 6
    assert len(outcomes) > TABLES
    assert all(isinstance(outcome, Committed) for outcome in outcomes)
    with mirrors(url, home, environment) as processes:
        follower = processes.start("--follow")
        # something to do for it: a process that has not begun yet does not heed signals
        SqlTxnLogWriter(world.metastore).commit(names[0], [add("last")])
        until(lambda: is_caught_up(world, names), 120)
        follower.send_signal(signal.SIGTERM)
        assert follower.wait(60) == 0


def kill_at_random(processes: Mirrors, chance: random.Random, lasts: float) -> int:
    followers = [processes.start("--follow") for _ in range(2)]
    single, kills = processes.start(), 0
    end = time.monotonic() + lasts
    while time.monotonic() < end:
        time.sleep(chance.uniform(1, 4))
        victim = chance.randrange(2)
        followers[victim].kill()
        followers[victim].wait()
        kills += 1
        followers[victim] = processes.start("--follow")
        if single.poll() is not None or chance.random() < 0.5:
            single.kill()
            single = processes.start()
    return kills


def judge(world: World, names: list[str], history: list[Operation]) -> None:
    """Each file was written once with one content, there is no gap, all is SUCCESS."""
    assert violations(history) == []
    world.assert_mirrored(*names)
    frozen = {
        (name, commit.version): commit.sha256
        for name in names
        for commit in LogReader(world.metastore).commits(name)
    }
    assert created(history) == frozen
    assert any("checkpoint" in operation.name for operation in history)
