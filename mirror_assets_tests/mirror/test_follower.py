"""The follower in this process: it publishes, checkpoints, survives, and drains."""

from __future__ import annotations

import time
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest

from mirror_assets.errors import DatabaseUnavailableError, StoreUnavailableError
from mirror_assets.metastore.followers import beat, leave, read_followers
from mirror_assets.metastore.mirror_queue import MirrorQueue
from mirror_assets.mirror.checkpoint_policy import CheckpointPolicy
from mirror_assets.mirror.follower import Follower
from mirror_assets.storage.options import StoreOptions
from mirror_assets_tests.builders import add, commit
from mirror_assets_tests.mirror.mirroring import Flaky, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mirror_assets.metastore.database import Metastore
    from mirror_assets.mirror.service import Mirror


@pytest.fixture
def world(metastore: Metastore, tmp_path: Path) -> World:
    """On each engine in turn."""
    return World(metastore, str(tmp_path / "lake"), StoreOptions(durable=False))


@contextmanager
def following(mirror: Mirror) -> Iterator[Follower]:
    follower = Follower(mirror, checkpoint_s=0.1)
    stop = Event()
    thread = Thread(target=follower.run, args=(stop,))
    thread.start()
    try:
        yield follower
    finally:
        stop.set()
        thread.join(30)
        assert not thread.is_alive()


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_commits_are_published_as_they_come(world: World) -> None:
    name = world.table("db.t")
    with following(world.mirror()) as follower:
        for number in range(5):
            commit(world.metastore, name, add(f"f-{number}"))
            until(lambda number=number: world.state(name).mirrored_version == number + 1)
        assert [h.age_ms < 10_000 for h in read_followers(world.metastore)] == [True]
    world.assert_mirrored(name)
    assert follower.followed.commits[name] == 6
    assert read_followers(world.metastore) == [], "it said good-bye"


def test_due_checkpoints_are_built_beside(world: World) -> None:
    name = world.table("db.t", commits=5, configuration={"delta.checkpointInterval": "5"})
    with following(world.mirror(policy=CheckpointPolicy(rest=0))) as follower:
        until(lambda: world.state(name).checkpoint_version == 5)
        until(lambda: follower.followed.checkpoints[name] == 1)


def test_the_database_may_go_away_for_a_while(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = world.table("db.t", commits=1)
    claim, failures = MirrorQueue.claim, [DatabaseUnavailableError("away")] * 4

    def failing(self, *args, **options):
        if failures:
            raise failures.pop()
        return claim(self, *args, **options)

    monkeypatch.setattr(MirrorQueue, "claim", failing)
    with following(world.mirror()):
        until(lambda: world.state(name).mirrored_version == 1)
    assert failures == []


def test_the_store_may_go_away_for_a_while(world: World) -> None:
    name = world.table("db.t", commits=1)
    store = Flaky(world.store(name), script=[StoreUnavailableError("away")] * 3)
    with following(world.flaky_mirror(store)) as follower:
        until(lambda: world.state(name).mirrored_version == 1)
    assert follower.followed.failed[name] == 3
    world.assert_mirrored(name)


def test_when_one_dies_another_goes_on_after_the_lease(world: World) -> None:
    name = world.table("db.t", commits=1)
    MirrorQueue(world.metastore).claim("dead", tables=None, limit=9, lease_ms=600)
    with following(world.mirror()):
        until(lambda: world.state(name).mirrored_version == 1)
    world.assert_mirrored(name)


def test_a_heartbeat_of_a_dead_follower_grows_old(world: World) -> None:
    beat(world.metastore, "dead", "{}")
    time.sleep(0.3)
    (heartbeat,) = read_followers(world.metastore)
    assert (heartbeat.owner, heartbeat.beats, heartbeat.age_ms >= 200) == ("dead", 1, True)
    beat(world.metastore, "dead", '{"commits":1}')
    (heartbeat,) = read_followers(world.metastore)
    assert (heartbeat.beats, heartbeat.detail) == (2, '{"commits":1}')
    leave(world.metastore, "dead")
    assert read_followers(world.metastore) == []
