"""When checkpoints are due, and that one worker builds them."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import time_machine
from deltalake import DeltaTable

from mirror_assets.delta.log_paths import CommitName
from mirror_assets.errors import StoreUnavailableError
from mirror_assets.metastore.breaker_store import BreakerRow, read_breakers, write_breaker
from mirror_assets.metastore.checkpoint_queue import BuiltCheckpoint, CheckpointQueue
from mirror_assets.metastore.mirror_state import read_version_states
from mirror_assets.mirror import maintenance
from mirror_assets.mirror.breakers import store_of
from mirror_assets.mirror.checkpoint_policy import CheckpointFacts, CheckpointPolicy, due_by
from mirror_assets.storage.options import StoreOptions
from mirror_assets_tests.builders import add, commit
from mirror_assets_tests.mirror.mirroring import Flaky, World

if TYPE_CHECKING:
    from mirror_assets.delta.log_paths import LogPath
    from mirror_assets.metastore.database import Metastore
    from mirror_assets.storage.log_store import LogStore

POLICY = CheckpointPolicy()
RESTLESS = CheckpointPolicy(rest=0)
DAY_MS = 24 * 3_600_000
MIB = 1024 * 1024


def facts(**changes: float | None) -> CheckpointFacts:
    standard = {"commits": 1, "json_bytes": 0, "age_ms": 0, "num_files": 0, "wait_ms": 0}
    return CheckpointFacts(**{"interval": None, **standard, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (facts(commits=0, age_ms=10 * DAY_MS), None),
        (facts(commits=9), None),
        (facts(commits=10), "commits"),
        (facts(commits=10, wait_ms=1), None),
        (facts(commits=10, num_files=1_000_000), None),
        (facts(commits=110, num_files=1_000_000), "commits"),
        (facts(commits=1_000, num_files=10**9), "commits"),
        (facts(commits=3, interval=3, num_files=1_000_000), "commits"),
        (facts(commits=99, interval=100), None),
        (facts(json_bytes=16 * MIB), "bytes"),
        (facts(json_bytes=16 * MIB, num_files=1_000_000), None),
        (facts(json_bytes=100_000_000, num_files=1_000_000), "bytes"),
        (facts(commits=5, commit_ms=199), None),
        (facts(commits=5, commit_ms=200), "reader"),
        (facts(commits=5, commit_ms=200, wait_ms=1), None),
        (facts(commits=50, commit_ms=200, num_files=1_000_000), "reader"),
        (facts(commits=49, commit_ms=200, num_files=1_000_000), None),
        (facts(age_ms=DAY_MS), "age"),
        (facts(age_ms=DAY_MS, wait_ms=5), None),
    ],
)
def test_a_checkpoint_is_due_by_what_it_spares_a_reader_and_never_before_its_rest(
    given: CheckpointFacts, reason: str | None
) -> None:
    assert due_by(given, POLICY) == reason


def test_the_rest_is_a_multiple_of_the_build() -> None:
    assert POLICY.rest_ms(2.5) == 25_000


@pytest.fixture
def world(metastore: Metastore, tmp_path: Path) -> World:
    """On each engine in turn."""
    return World(metastore, str(tmp_path / "lake"), StoreOptions(durable=False))


def test_a_due_checkpoint_is_built_recorded_and_read(world: World) -> None:
    name, quiet = world.table("db.t", commits=10), world.table("db.quiet", commits=3)
    mirror = world.mirror()
    mirror.engine.run_until_idle()
    built = mirror.checkpoints.run_due()
    assert set(built) == {name}
    state = world.state(name)
    assert (state.checkpoint_version, world.state(quiet).checkpoint_version) == (10, -1)
    newest, *_ = read_version_states(world.metastore, name, limit=1)
    assert (newest.artifact, newest.status, newest.resolved_by) == ("checkpoint", "SUCCESS", "put")
    assert (newest.next_attempt_at_ms or 0) > (newest.published_at_ms or 0)
    names = {file.name for file in (world_log(world, name)).iterdir()}
    assert {"_last_checkpoint", f"{10:020d}.checkpoint.parquet", f"{10:020d}.crc"} <= names
    for version in range(11):
        assert DeltaTable(world.location(name), version=version).version() == version
    assert mirror.checkpoints.run_due() == {}


def test_with_a_checkpoint_goes_what_a_crashed_writer_left_long_ago(world: World) -> None:
    name = world.table("db.t", commits=10)
    mirror = world.mirror()
    mirror.engine.run_until_idle()
    left = world_log(world, name) / f".{'0' * 32}.tmp"
    left.write_bytes(b"{")
    mirror.checkpoints.build(name, 9)
    assert left.exists(), "another writer may be at it"
    with time_machine.travel(datetime.now(UTC) + timedelta(hours=2)):
        mirror.checkpoints.build(name)
    assert not left.exists()


def test_where_the_store_is_slow_a_checkpoint_is_due_sooner(world: World) -> None:
    name = world.table("db.t", commits=3)
    slow = Slow(world.store(name))
    mirror = world.mirror(open_log=lambda _: slow)
    mirror.engine.run_until_idle()
    fetched = slow.reads
    assert mirror.checkpoints.run_due() == {}
    assert slow.reads == fetched + 1
    commit(world.metastore, name, add("another"))
    mirror.engine.run_until_idle()
    assert mirror.checkpoints.run_due() == {}
    assert slow.reads == fetched + 1, "what one measurement told is believed for a while"
    slow.seconds = 0.4
    again = world.mirror(open_log=lambda _: slow)
    assert set(again.checkpoints.run_due()) == {name}
    for number in range(2):
        commit(world.metastore, name, add(f"more-{number}"))
    again.engine.run_until_idle()
    fetched = slow.reads
    assert again.checkpoints.run_due() == {}, "it rests, and nothing is measured meanwhile"
    assert slow.reads == fetched


def test_the_tables_own_interval_is_honoured(world: World) -> None:
    often = {"delta.checkpointInterval": "2"}
    seldom = {"delta.checkpointInterval": "50"}
    a = world.table("db.a", commits=4, configuration=often)
    world.table("db.b", commits=20, configuration=seldom)
    mirror = world.mirror(policy=RESTLESS)
    mirror.engine.run_until_idle()
    assert set(mirror.checkpoints.run_due()) == {a}, "and coalesced to the newest version"
    assert world.state(a).checkpoint_version == 4
    commit(world.metastore, a, add("one"), read_version=None)
    commit(world.metastore, a, add("two"))
    mirror.engine.run_until_idle()
    assert set(mirror.checkpoints.run_due()) == {a}
    assert world.state(a).checkpoint_version == 6


def test_no_checkpoint_before_the_last_one_has_rested(world: World) -> None:
    name = world.table("db.t", commits=2, configuration={"delta.checkpointInterval": "1"})
    mirror = world.mirror(policy=CheckpointPolicy(rest=10_000))
    mirror.engine.run_until_idle()
    mirror.checkpoints.run_due()
    commit(world.metastore, name, add("more"))
    mirror.engine.run_until_idle()
    assert mirror.checkpoints.run_due() == {}
    assert isinstance(mirror.checkpoints.build(name), BuiltCheckpoint), "by hand it can be had"


def test_one_worker_builds_a_tables_checkpoint(world: World) -> None:
    world.table("db.t", commits=10)
    world.mirror().engine.run_until_idle()
    queue = CheckpointQueue(world.metastore)
    (candidate,) = queue.candidates()
    assert queue.claim(candidate, "first", lease_ms=60_000)
    assert not queue.claim(candidate, "second", lease_ms=60_000)
    assert world.mirror().checkpoints.run_due() == {}


def test_a_builder_that_died_holds_others_up_only_for_its_lease(world: World) -> None:
    name = world.table("db.t", commits=10)
    world.mirror().engine.run_until_idle()
    queue = CheckpointQueue(world.metastore)
    (candidate,) = queue.candidates()
    assert queue.claim(candidate, "dead", lease_ms=0)
    assert set(world.mirror().checkpoints.run_due()) == {name}


@dataclass
class Slow:
    """A store in which fetching a commit takes its time."""

    inner: LogStore
    seconds: float = 0
    reads: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def read(self, path: LogPath) -> bytes | None:
        self.reads += isinstance(path, CommitName)
        time.sleep(self.seconds if isinstance(path, CommitName) else 0)
        return self.inner.read(path)


def test_a_failed_build_is_recorded_and_stops_no_other_table(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = world.table("db.bad", commits=10), world.table("db.good", commits=10)
    mirror = world.mirror()
    mirror.engine.run_until_idle()
    publish = maintenance.publish_checkpoint

    def failing(metastore, store, table, version, **options):
        if table == bad:
            raise StoreUnavailableError("away")
        return publish(metastore, store, table, version, **options)

    monkeypatch.setattr(maintenance, "publish_checkpoint", failing)
    done = mirror.checkpoints.run_due()
    assert isinstance(done[bad], StoreUnavailableError)
    assert isinstance(done[good], BuiltCheckpoint)
    row = next(r for r in read_version_states(world.metastore, bad, limit=1))
    assert (row.status, row.reason_code, row.attempts) == ("FAILED", "transient", 1)
    assert world.state(bad).state == "OK", "its commits are published all the same"


def test_two_workers_build_a_checkpoint_once(world: World) -> None:
    name = world.table("db.t", commits=10)
    world.mirror().engine.run_until_idle()
    done: list[dict] = []
    workers = [
        threading.Thread(target=lambda: done.append(world.mirror().checkpoints.run_due()))
        for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(len(each) for each in done) == [0, 0, 0, 1]
    assert world.state(name).checkpoint_version == 10


def world_log(world: World, name: str) -> Path:
    return Path(world.location(name)) / "_delta_log"


def test_while_the_store_is_left_alone_no_checkpoint_is_tried(world: World) -> None:
    name = world.table("db.t", commits=10)
    mirror = world.mirror(policy=RESTLESS)
    mirror.settle(patience_s=10)
    row = BreakerRow(store=store_of(world.location(name)), state="open", failures=5)
    write_breaker(world.metastore, row)
    assert world.mirror(policy=RESTLESS).checkpoints.run_due() == {}

    write_breaker(world.metastore, replace(row, state="closed", failures=0))
    built = world.mirror(policy=RESTLESS).checkpoints.run_due()[name]
    assert isinstance(built, BuiltCheckpoint)


def test_a_store_that_fails_for_checkpoints_opens_the_breaker(world: World) -> None:
    names = [world.table(f"db.t{number}", commits=10) for number in range(6)]
    world.mirror().settle(patience_s=20)
    store = Flaky(world.store(names[0]), script=[StoreUnavailableError("away")] * 99)
    done = world.flaky_mirror(store, policy=RESTLESS).checkpoints.run_due()
    assert len(done) == 5, "the sixth is left alone"
    assert [row.state for row in read_breakers(world.metastore)] == ["open"]
